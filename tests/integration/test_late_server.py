"""A server that joins late becomes equal to its peers, whatever models they have pruned."""

import json
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from fl_core.types import digest_of
from fl_core.wire import v1
from ledger_server.admin.archive import archive as archive_evidence
from ledger_server.admin.bundle import Bundle
from ledger_server.pruning import prune
from tests.builders import START, make_genesis, model
from tests.databases import DatabaseUrls
from tests.network import Node, network, settle
from tests.serving import NOW_MS, named

ANN, BOB, CAT = (each * 64 for each in "abc")
RULES = make_genesis(selector_params={"k": 4})


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


def prune_and_forget(server: Node, keep_s: int = 0) -> int:
    """Prune, and begin anew, so that no model is in memory; how many went."""
    service = server.service
    report = prune(service.store, service.snapshot(keep_ms=1000 * keep_s), now_ms=lambda: NOW_MS)
    server.stop()
    server.start()
    return report.models


def models_of(server: Node) -> list[tuple[int, bytes]]:
    """What ``GET`` of each transaction's model is answered, by id."""
    answers = [server.get(v1.path(v1.TRANSACTION_MODEL, transaction=each)) for each in sorted(server.ids())]
    return [(each.status_code, each.content if each.status_code == 200 else b"") for each in answers]


def test_a_model_that_one_peer_still_has_is_fetched_from_it(tmp_path: Path) -> None:
    with network(tmp_path, 3, genesis=RULES) as servers:
        pruned, whole, late = servers
        late.stop()
        grow(pruned, 8)
        settle([pruned, whole])
        assert prune_and_forget(pruned) == 7
        late.start()
        settle(servers)
        assert late.service.store.removal.count() == 0
        assert models_of(late) == models_of(whole)


def test_a_server_that_joins_by_command_becomes_complete(
    database_urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with network(tmp_path, 2, urls=database_urls(2), genesis=RULES) as servers:
        first, late = servers
        late.stop()
        grow(first, 8)
        monkeypatch.setenv("DAG_ACFL_DATABASE_URL", str(late.settings.resolved_database_url))
        assert main(["ledger", "join", first.url, "--data-dir", str(late.folder)]) == 0
        monkeypatch.delenv("DAG_ACFL_DATABASE_URL")
        late.start()
        assert settle(servers) == first.ids()
        assert models_of(late) == models_of(first)


def state_of(server: Node, asker: str) -> dict[str, object]:
    """What a server shows and answers: tips, what it offers, and the average for one question, to the byte."""
    answer = server.select(asker).json()
    aggregate = server.get(v1.path(v1.MODEL, digest=answer["aggregate"]["digest"]))
    assert aggregate.status_code == 200
    return {
        "tips": server.get(v1.TIPS).json(),
        "candidates": server.service.node.candidate_rule.candidates(None),
        "parents": answer["parents"],
        "aggregate": digest_of(aggregate.content),
    }


def verified(place: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert main(["ledger", "verify", "--json", place]) == 0
    said: dict[str, object] = json.loads(capsys.readouterr().out)
    return {name: said[name] for name in ("sound", "transactions", "pruned", "vouched_models")}


def test_a_server_joins_where_everybody_has_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with network(tmp_path, 4, genesis=RULES) as servers:
        *early, late = servers
        late.stop()
        ids = grow(early[0], 8)
        settle(early)
        for server in early:
            assert prune_and_forget(server) == 7
        late.start()
        assert settle(servers) == early[0].ids()
        assert late.service.store.removal.count() == 7
        assert models_of(late) == models_of(early[0])
        assert state_of(late, ids[-1]) == state_of(early[0], ids[-1])

        chosen = named(late.service, sorted([ids[-1], ids[3]]), {"secret": ANN})
        upon_an_unknown_norm = {"num_examples": 1, "secret": ANN, "start": START, **chosen}
        refused = late.post(upon_an_unknown_norm, model(1, 1 / 8))
        assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (422, "parents-stale")
        newest = late.publish(parents=[ids[-1]], model=model(1, 1 / 8), secret=ANN)["id"]
        settle(servers)
        newest = early[1].publish(parents=[newest], model=model(1, 1 / 4), secret=BOB)["id"]
        settle(servers)
        late.stop()
        late.start()
        assert len(late.service.acts.checkpoints) == 1, "kept, so that nobody is asked again"
        newest = early[2].publish(parents=[newest], model=model(1, 1 / 2), secret=ANN)["id"]
        assert settle(servers) >= {newest}
        assert state_of(late, newest) == state_of(early[2], newest)

        url = str(late.settings.resolved_database_url)
        told = {"sound": True, "transactions": 14, "pruned": 7, "vouched_models": 7}
        assert verified(url, capsys) == told
        assert main(["ledger", "export", str(tmp_path / "late.dagacfl"), url]) == 0
        assert verified(str(tmp_path / "late.dagacfl"), capsys) == told
        with Bundle(tmp_path / "late.dagacfl") as bundle:
            assert bundle.checkpoints() == late.service.store.checkpoints()
        assert prune_and_forget(late) == 2
        assert verified(url, capsys) == {**told, "pruned": 9}


def test_who_joins_takes_the_word_of_one_that_joined_itself(tmp_path: Path) -> None:
    with network(tmp_path, 3, genesis=RULES) as servers:
        first, second, third = servers
        second.stop()
        third.stop()
        grow(first, 8)
        prune_and_forget(first)
        second.start()
        settle([first, second])
        first.stop()
        third.start()
        settle([second, third])
        assert models_of(third) == models_of(second)


def archive(server: Node, file: Path) -> int:
    """Move all evidence to an archive; of how many selections."""
    return archive_evidence(server.service.store, file, before_ms=2**62, rest=lambda _: None).evidence


def evidence_of(server: Node) -> list[int]:
    """How each update's evidence is answered for, by id."""
    path = v1.TRANSACTION_ATTACHMENT
    return [server.get(v1.path(path, transaction=each)).status_code for each in sorted(server.ids())]


def select_often(server: Node, rounds: int) -> list[str]:
    """Ann and Bob publish by selections, in turn."""
    newest = {
        secret: server.publish(parents=[server.ledger_id], model=model(number), secret=secret)["id"]
        for number, secret in enumerate((ANN, BOB))
    }
    for number in range(1, rounds + 1):
        secret = BOB if number % 2 else ANN
        selection = server.select(newest[secret]).json()["id"]
        newest[secret] = server.publish(selection=selection, model=model(1, number / 64), secret=secret)["id"]
    return [*newest.values()]


def test_a_server_joins_where_everybody_has_archived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with network(tmp_path, 3, genesis=RULES) as servers:
        *early, late = servers
        late.stop()
        newest = select_often(early[0], 6)
        settle(early)
        files = [tmp_path / f"{number}.dagacfl" for number, _ in enumerate(early)]
        assert [archive(*each) for each in zip(early, files, strict=True)] == [6, 6]
        prune_and_forget(early[0])
        late.start()
        assert settle(servers) == early[0].ids()
        assert evidence_of(late) == evidence_of(early[0])
        assert evidence_of(late).count(410) == 6
        assert models_of(late) == models_of(early[1]), "who has not pruned serves the models"
        assert late.service.store.archived() == len(late.ids())
        assert state_of(late, newest[0]) == state_of(early[1], newest[0])

        selection = late.select(newest[0]).json()["id"]
        late.publish(selection=selection, model=model(1, 1 / 2), secret=ANN)
        settle(servers)
        assert all(evidence_of(each).count(410) == 6 for each in servers), "what is new has its evidence everywhere"
        url = str(late.settings.resolved_database_url)
        capsys.readouterr()
        assert main(["ledger", "verify", "--json", url]) == 0
        assert json.loads(capsys.readouterr().out)["archived"] == 6
        assert main(["ledger", "verify", "--json", url, "--archive", str(files[1])]) == 0
        assert json.loads(capsys.readouterr().out)["archived"] == 0


def test_evidence_that_one_peer_still_has_is_fetched_from_it(tmp_path: Path) -> None:
    with network(tmp_path, 3, genesis=RULES) as servers:
        first, whole, late = servers
        late.stop()
        select_often(first, 6)
        settle([first, whole])
        archive(first, tmp_path / "past.dagacfl")
        first.stop()
        late.start()
        settle([whole, late])
        first.start()
        settle(servers)
        assert evidence_of(late) == evidence_of(whole)
        assert 410 not in evidence_of(late)
        assert evidence_of(first).count(410) == 6


def test_who_joins_takes_the_word_of_one_that_joined_where_evidence_was_archived(tmp_path: Path) -> None:
    with network(tmp_path, 3, genesis=RULES) as servers:
        first, second, third = servers
        second.stop()
        third.stop()
        select_often(first, 6)
        archive(first, tmp_path / "past.dagacfl")
        second.start()
        settle([first, second])
        first.stop()
        third.start()
        settle([second, third])
        assert evidence_of(third) == evidence_of(second)
        assert evidence_of(third).count(410) == 6
