"""A ledger of listed authors on two servers: who publishes where and when, and what a rotated key goes on with."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dag_acfl.__main__ import main
from fl_core.dag.acts import sign_rotation
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from ledger_server.keys import KEY_FILE
from tests.builders import author_of, key_from_seed, make_genesis, model, write_key
from tests.live import eventually
from tests.network import Node, network, settle
from tests.serving import signed

OLD, NEW, THIRD, FOURTH = 7, 8, 9, 10
MEMBERS = tuple(
    sorted(
        (Member(public_key_of(key_from_seed(1000 + number)), f"server-{number}") for number in range(2)),
        key=lambda each: each.key,
    )
)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Node]]:
    monkeypatch.setattr("ledger_server.following.EVERY_S", 0.05)
    with network(tmp_path, 2, genesis=replace(make_genesis(authors="listed"), members=MEMBERS)) as running:
        for node in running:
            write_key(node.key, node.folder / KEY_FILE)
        yield running


def command(capsys: pytest.CaptureFixture[str], node: Node, *words: str) -> str:
    assert main([*words, "--data-dir", str(node.folder)]) == 0, capsys.readouterr()
    return capsys.readouterr().out


def status(node: Node, value: float, *, seed: int, sequence: int, **changes: Any) -> int:
    answer = node.post(signed(node, model(value), seed=seed, sequence=sequence, **changes), model(value))
    assert answer.status_code in (201, 403), answer.text
    assert (answer.status_code == 403) == (answer.json().get("type") == "/problems/author-refused")
    return answer.status_code


def offered(node: Node) -> list[str]:
    """The authors whose updates a newcomer is offered."""
    return [each["author"] for each in node.join(model(9)).json()["candidates"]]


def test_members_list_authors_and_a_rotated_key_goes_on(
    servers: list[Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = servers
    old, new = (author_of(key_from_seed(seed)) for seed in (OLD, NEW))
    assert [status(node, 1, seed=OLD, sequence=0) for node in servers] == [403, 403]

    said = command(capsys, first, "authors", "add", old)
    assert "in effect with 2 signatures everywhere, here at once" in said
    proposal = said.split()[1].rstrip(":")
    eventually(lambda: first.service.acts.authors.allows(old))
    eventually(lambda: proposal in command(capsys, second, "authors", "list"))
    assert [status(node, 1, seed=OLD, sequence=0) for node in (second, first)] == [403, 201]
    assert len(settle(servers)) == 2, "what a member's server took is part of the ledger"
    assert (offered(first), offered(second)) == ([old], []), "and offered where its author is listed"

    assert f"{old} may publish" in command(capsys, second, "members", "sign", proposal)
    eventually(lambda: all(node.service.acts.authors.allows(old) for node in servers))
    assert offered(second) == [old]
    assert status(second, 2, seed=OLD, sequence=1) == 201
    newest = max(settle(servers), key=lambda each: first.service.view(each).stored.transaction.header.sequence)

    keys = (write_key(key_from_seed(seed), tmp_path / f"{seed}.pem") for seed in (OLD, NEW))
    assert command(capsys, second, "authors", "rotate", *keys) == f"{new} goes on as {old}\n"
    eventually(lambda: all(node.service.acts.authors.allows(new) for node in servers))
    assert (offered(first), status(first, 3, seed=OLD, sequence=2)) == ([], 403)
    selection = first.select(newest).json()
    assert (selection["source"], selection["parents"]) == ("own", [newest]), "the old key's newest is its own"
    conflict = first.post(signed(first, model(3), seed=NEW, sequence=0), model(3)).json()
    assert conflict["next_sequence"] == 2, "and so is its count"
    assert status(first, 3, seed=NEW, sequence=2) == 201
    settle(servers)
    assert offered(second) == [new]
    assert command(capsys, second, "authors", "list").splitlines()[1:] == [f"  {new}  goes on as {old}"]

    for node, seed in ((first, THIRD), (second, FOURTH)):
        signed_twice = sign_rotation(key_from_seed(NEW), key_from_seed(seed), ledger=node.ledger_id)
        assert node.service.acts.admit(signed_twice), "each server has heard one of two, or of both"
    eventually(lambda: all(node.service.acts.authors.contested == {new} for node in servers))
    assert [offered(node) for node in servers] == [[], []]
    assert [status(node, 4, seed=seed, sequence=3) for node in servers for seed in (NEW, THIRD, FOURTH)] == [403] * 6
    pem = write_key(key_from_seed(FOURTH), tmp_path / "fourth.pem")
    assert main(["authors", "rotate", str(tmp_path / f"{NEW}.pem"), pem, "--data-dir", str(first.folder)]) == 1
    assert f"members may decide otherwise: dag-acfl authors rotate {new}" in capsys.readouterr().err
    listed = command(capsys, second, "authors", "list")
    assert listed.count(f"would go on as {new}, whose rotations contradict one another") == 2
    proposal = command(capsys, first, "authors", "rotate", new, pem).split()[1].rstrip(":")
    eventually(lambda: proposal in command(capsys, second, "authors", "list"))
    assert "goes on as" in command(capsys, second, "members", "sign", proposal)
    fourth = author_of(key_from_seed(FOURTH))
    eventually(lambda: all(node.service.acts.authors.allows(fourth) for node in servers))
    assert status(second, 4, seed=FOURTH, sequence=3) == 201
    settle(servers)
    assert [offered(node) for node in servers] == [[fourth], [fourth]]
    said = command(capsys, first, "trust", "quarantine", old, "--reason", "flips labels")
    assert [said.count(f"quarantine {name}:") for name in (old, new, fourth)] == [1, 1, 1], "an act for each name"


def test_what_cannot_be_is_said_in_a_line(
    servers: list[Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    author = "hash:" + "5" * 64
    for words, fault in (
        (["add", "site-3"], "key: or hash: and 64"),
        (["rotate", author, author_of(key_from_seed(NEW))], "name its PEM file"),
        (["rotate", "old.pem", author], "key: or hash: and 64"),
    ):
        assert main(["authors", *words, "--data-dir", str(servers[0].folder)]) == 1
        assert fault in capsys.readouterr().err
