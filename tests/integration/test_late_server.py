"""A server that joins when its peers have pruned becomes equal to them, and is told nothing that retention forbids."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from fl_core.dag.genesis import Policy
from fl_core.errors import ModelPrunedError
from fl_core.models import Buffer
from fl_core.types import Digest, TxId
from fl_core.wire import v1
from ledger_server.gossip.runtime import limits_for
from ledger_server.pruning import prune
from ledger_server.publishing import LedgerService
from tests.builders import make_genesis, model
from tests.databases import DatabaseUrls
from tests.network import Node, network, settle
from tests.serving import NOW_MS

ANN, BOB, CAT = (f"anon:{each * 64}" for each in "abc")
RULES = make_genesis(selector_params={"k": 4}, policy=Policy(freshness_window=3))


def grow(server: Node, rounds: int) -> list[str]:
    """Ann and Bob approve one another's newest in turn; Cat publishes once, and an anonymous tip falls behind."""
    first = server.ledger_id
    ids = [server.publish(parents=[first], model=model(9, 9), author=CAT)["id"]]
    ids.append(server.publish(parents=[first], model=model(0, 1, 0), author=ANN)["id"])  # never approved
    tip = first
    for number in range(1, rounds + 1):
        author = BOB if number % 2 else ANN
        tip = server.publish(parents=[tip], model=model(1, number / 64), author=author)["id"]
        ids.append(tip)
    return ids


def prune_and_forget(server: Node, keep_generations: int) -> int:
    """Prune, and begin anew, so that no model is in memory; how many went."""
    service = server.service
    report = prune(service.store, service.moment(keep_generations=keep_generations), now_ms=lambda: NOW_MS)
    server.stop()
    server.start()
    return report.models


def models_of(server: Node) -> list[tuple[int, bytes]]:
    """What ``GET`` of each transaction's model is answered, by id."""
    answers = [server.get(v1.path(v1.TRANSACTION_MODEL, transaction=each)) for each in sorted(server.ids())]
    return [(each.status_code, each.content if each.status_code == 200 else b"") for each in answers]


def selected(server: Node, transaction: str) -> object:
    """A selection without what differs by server: who signed it, and when."""
    answer = server.select(transaction)
    assert answer.status_code in (200, 201), answer.text
    out = answer.json()
    return {key: value for key, value in out.items() if not key.startswith("issuer")}


@pytest.mark.parametrize("keep_generations", [1, 3])
def test_a_late_server_becomes_equal_to_peers_that_have_pruned(
    keep_generations: int, database_urls: DatabaseUrls, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with network(tmp_path, 3, urls=database_urls(3), genesis=RULES) as servers:
        one, two, late = servers
        late.stop()
        ids = grow(one, 12)
        assert len(settle([one, two])) == 15
        gone = {prune_and_forget(each, keep_generations) for each in (one, two)}
        assert gone == {11 if keep_generations == 1 else 10}
        late.start()
        assert len(settle(servers)) == 15
        tips = [each.get(v1.TIPS).json() for each in servers]
        assert tips[0] == tips[1] == tips[2]
        assert models_of(one) == models_of(two) == models_of(late)
        assert late.service.store.pruned_models() == one.service.store.pruned_models() == gone.pop()
        assert selected(one, ids[-1]) == selected(two, ids[-1]) == selected(late, ids[-1])
        # It serves and grows as they do.
        late.publish(parents=[ids[-1]], model=model(1, 2), author=BOB)
        assert len(settle(servers)) == 16
        url = str(late.settings.resolved_database_url)
        capsys.readouterr()
        assert main(["ledger", "verify", "--json", "--database-url", url, "--data-dir", str(late.folder)]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["sound"], said["transactions"], said["findings"]) == (True, 16, [])


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
        pruned, late = servers
        late.stop()
        grow(pruned, 8)
        prune_and_forget(pruned, 1)
        url = str(late.settings.resolved_database_url)
        arguments = ["ledger", "join", pruned.url, "--database-url", url, "--data-dir", str(late.folder)]
        assert main(arguments) == 0
        late.start()
        assert settle(servers) == pruned.ids()
        assert models_of(late) == models_of(pruned)


def test_a_late_server_goes_on_after_a_restart_in_the_middle(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, 2, urls=database_urls(2), genesis=RULES) as servers:
        pruned, late = servers
        late.stop()
        grow(pruned, 40)
        prune_and_forget(pruned, 1)
        for _ in range(3):
            late.start()
            end_s, before = time.monotonic() + 0.6, len(late.ids())
            while time.monotonic() < end_s and len(late.ids()) <= before + 5:
                time.sleep(0.005)
            late.stop()
        late.start()
        assert settle(servers) == pruned.ids()


def test_a_peer_that_says_pruned_of_a_tip_gets_nowhere(
    database_urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ledger_server.gossip.runtime.limits_for",
        lambda size: replace(limits_for(size), orphan_lifetime_s=1.0, pull_interval_s=0.2, audit_interval_s=0.5),
    )
    with network(tmp_path, 2, urls=database_urls(2), genesis=RULES) as servers:
        liar, late = servers
        late.stop()
        ids = grow(liar, 6)
        tip, below = TxId(ids[-1]), TxId(ids[-2])
        lies = {liar.service.view(each).stored.transaction.header.model_digest for each in (tip, below)}
        with monkeypatch.context() as patched:
            patched.setattr(LedgerService, "model", _lying(lies))
            patched.setattr(LedgerService, "model_in_memory", lambda *_: None)
            late.start()
            wanted = liar.ids() - {tip, below}
            end_s = time.monotonic() + 20
            while late.ids() != wanted or not _drops(late):
                assert time.monotonic() < end_s, f"{len(late.ids())} transactions, {_drops(late)} dropped"
                time.sleep(0.05)
            assert late.service.store.pruned_models() == 0
        # Told the truth, it takes them, with their models.
        late.stop()
        late.start()
        assert settle(servers) == liar.ids()
        assert models_of(late) == models_of(liar)


def _drops(server: Node) -> bool:
    return 'incident="dropped"' in server.get("/metrics").text


def _lying(digests: set[Digest]) -> object:
    truth = LedgerService.model

    def model_or_lie(self: LedgerService, digest: Digest) -> Buffer:
        if digest in digests:
            raise ModelPrunedError("so it says", digest=digest)
        return truth(self, digest)

    return model_or_lie
