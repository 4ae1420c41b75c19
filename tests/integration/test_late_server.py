"""A server that joins late becomes equal to its peers as long as one of them kept its models."""

from pathlib import Path

from dag_acfl.__main__ import main
from fl_core.wire import v1
from ledger_server.pruning import prune
from tests.builders import make_genesis, model
from tests.databases import DatabaseUrls
from tests.network import Node, network, settle
from tests.serving import NOW_MS

ANN, BOB, CAT = (each * 64 for each in "abc")
RULES = make_genesis(selector_params={"k": 4}, freshness_window=3)


def grow(server: Node, rounds: int) -> list[str]:
    """Ann and Bob approve one another's newest in turn; Cat publishes once, and an anonymous tip falls behind."""
    first = server.ledger_id
    ids = [server.publish(parents=[first], model=model(9, 9), secret=CAT)["id"]]
    ids.append(server.publish(parents=[first], model=model(0, 1, 0), secret=ANN)["id"])  # never approved
    tip = first
    for number in range(1, rounds + 1):
        secret = BOB if number % 2 else ANN
        tip = server.publish(parents=[tip], model=model(1, number / 64), secret=secret)["id"]
        ids.append(tip)
    return ids


def prune_and_forget(server: Node, keep_generations: int) -> int:
    """Prune, and begin anew, so that no model is in memory; how many went."""
    service = server.service
    report = prune(service.store, service.snapshot(keep_generations=keep_generations), now_ms=lambda: NOW_MS)
    server.stop()
    server.start()
    return report.models


def models_of(server: Node) -> list[tuple[int, bytes]]:
    """What ``GET`` of each transaction's model is answered, by id."""
    answers = [server.get(v1.path(v1.TRANSACTION_MODEL, transaction=each)) for each in sorted(server.ids())]
    return [(each.status_code, each.content if each.status_code == 200 else b"") for each in answers]


def test_a_model_that_one_peer_still_has_is_fetched_from_it(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, 3, urls=database_urls(3), genesis=RULES) as servers:
        pruned, whole, late = servers
        late.stop()
        grow(pruned, 8)
        settle([pruned, whole])
        assert prune_and_forget(pruned, 1) == 7
        late.start()
        settle(servers)
        assert late.service.store.pruned_models() == 0
        assert models_of(late) == models_of(whole)


def test_a_server_that_joins_by_command_becomes_complete(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, 2, urls=database_urls(2), genesis=RULES) as servers:
        first, late = servers
        late.stop()
        grow(first, 8)
        url = str(late.settings.resolved_database_url)
        arguments = ["ledger", "join", first.url, "--database-url", url, "--data-dir", str(late.folder)]
        assert main(arguments) == 0
        late.start()
        assert settle(servers) == first.ids()
        assert models_of(late) == models_of(first)
