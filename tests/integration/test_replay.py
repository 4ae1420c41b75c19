"""Replaying what a real server recorded, and the command as a person types it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dag_acfl.__main__ import main
from dag_acfl.sources import open_source
from fl_core.dag.genesis import Component, Policy
from fl_core.models import encode_flat
from fl_core.selection import Selection, change_point_probabilities
from fl_core.types import AuthorId, TxId
from fl_simulator.replay import LEDGERS_OWN, Obstacle, replay, summarise
from fl_simulator.replay.history import read_history
from fl_simulator.replay.questions import Question, questions
from ledger_server.admin.bundle import write_bundle
from ledger_server.app import create_app
from ledger_server.pruning import moment_of, prune
from ledger_server.publishing import LedgerService, Publication, create_ledger
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from tests.builders import CREATED_AT_MS, ISSUER, LAYOUT, TinyLedger, make_genesis, model
from tests.integration.test_service import NOW_MS
from tests.live import run_app
from tests.sources import MemorySource

CAMPS = {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1, "f": 1}
TURNS = 4


def author(letter: str) -> AuthorId:
    return AuthorId("anon:" + letter * 64)


def trained(camp: int, rng: np.random.Generator, *, steps: int) -> bytes:
    """A model that has gone its camp's way from genesis (1, 1, 1, 1), and a little astray."""
    way = np.eye(4)[camp] * steps
    return encode_flat(LAYOUT, (1 + way + 0.2 * rng.normal(size=4)).astype(np.float32))


def grown(url: str, folder: Path, selector: Component, *, keep_evidence: bool = True) -> list[Selection]:
    """A ledger by its real server: six authors of two camps join, ask, train and publish, in turn.

    Returns what the server answered, by place; without evidence only joiners publish by selection.
    """
    genesis = make_genesis(
        selector=selector.name, selector_params=selector.params, policy=Policy(max_norm_growth=99.0, max_parents=8)
    )
    rng = np.random.default_rng(7)
    answers: list[Selection] = []
    with open_store(url, data_dir=folder) as store:
        create_ledger(store, genesis, model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
        service = LedgerService(
            store,
            key=ISSUER,
            now_ms=lambda: NOW_MS,
            detect=change_point_probabilities,
            cache_bytes=1 << 20,
            recent_selections=4,
        )
        try:
            newest: dict[str, TxId] = {}
            for turn in range(TURNS):
                for letter, camp in CAMPS.items():
                    mine = trained(camp, rng, steps=turn + 1)
                    asked = service.select_for(newest[letter])[0] if turn else service.select_with(mine)[0]
                    selection = asked.evidence.selection
                    by_evidence = keep_evidence or not turn
                    publication = Publication(
                        num_examples=1,
                        selection=asked.id if by_evidence else None,
                        parents=None if by_evidence else selection.parents,
                        author=author(letter),
                        sequence=turn,
                    )
                    newest[letter] = service.publish(publication, mine).transaction
                    answers.append(selection)
        finally:
            service.close()
    return answers


def taken(selection: Selection) -> tuple[TxId, ...]:
    return tuple(sorted(each.transaction for each in selection.candidates if each.selected))


@pytest.mark.parametrize(
    "selector",
    [
        Component("beast"),
        Component("beast", {"rule": "literal", "alpha": 0.3}),
        Component("least-squares"),
        Component("largest-gap"),
        Component("top-k", {"k": 2}),
    ],
    ids=lambda each: "-".join([each.name, *map(str, each.params.values())]),
)
def test_the_ledgers_own_selector_makes_the_ledgers_own_choices(
    database_url: str, tmp_path: Path, selector: Component
) -> None:
    answers = grown(database_url, tmp_path, selector)
    with open_source(database_url) as source:
        result = replay(source, [Component(LEDGERS_OWN), selector], workers=2)
    assert len(result.replayed) == len(answers) == TURNS * len(CAMPS)
    assert result.skipped == ()
    for answer, selection in zip(answers, result.replayed, strict=True):
        assert selection.from_evidence
        assert [selection.ledger.taken, *(each.taken for each in selection.choices)] == [taken(answer)] * 3
    assert len({selection.ledger.taken for selection in result.replayed}) > 6, "these are choices, not all the same"
    assert [each.same for each in summarise(result)] == [1, 1, 1]


def test_on_both_databases_a_pruned_ledger_is_replayed_from_its_evidence(database_url: str, tmp_path: Path) -> None:
    answers = grown(database_url, tmp_path, Component("largest-gap"))
    with open_store(database_url, data_dir=tmp_path) as store:
        dropped = prune(store, moment_of(store, keep_generations=1), now_ms=lambda: NOW_MS)
    assert dropped.models > len(CAMPS)
    truth = {author(letter): camp for letter, camp in CAMPS.items()}
    with open_source(database_url) as source:
        result = replay(source, [Component("largest-gap"), Component("top-k", {"k": 5})], truth=truth)
    assert len(result.replayed) == len(answers)
    was, again, five = summarise(result)
    assert (again.same, again.satisfaction, again.foreign) == (1, was.satisfaction, 0)
    assert (was.communities, was.purity, was.misclassified) == (2, 1, 0)
    assert five.foreign is not None
    assert five.foreign > 0.5, "two of a camp are others' tips, so the other three of five are foreign"
    assert five.more == sum(len(taken(each)) < min(5, len(each.candidates)) for each in answers)


def test_without_evidence_the_server_is_asked_the_same_again_from_the_models(database_url: str, tmp_path: Path) -> None:
    """Everybody takes every tip, so that all that a client was asked about is among what it approved."""
    answers = grown(database_url, tmp_path, Component("top-k", {"k": 7}), keep_evidence=False)
    with open_source(database_url) as source:
        asked = list(questions(source, read_history(source, progress=lambda _: None)))
        result = replay(source, [Component(LEDGERS_OWN), Component("beast", {"samples": 800, "chains": 1})])
    assert len(asked) == len(answers)
    for answer, question in zip(answers, asked, strict=True):
        assert isinstance(question, Question)
        request = question.request
        found = zip(request.candidates, request.similarities, request.update_similarities, strict=True)
        assert {each.transaction: (models, updates) for each, models, updates in found} == {
            each.transaction: pytest.approx((each.similarity, each.update_similarity), abs=1e-6)
            for each in answer.candidates
        }
    assert [each.from_evidence for each in result.replayed] == [True] * 6 + [False] * 18
    _, again, beast = summarise(result)
    assert again.same == 1
    assert beast.same is not None
    assert beast.same < 1


# -- the command --------------------------------------------------------------------------------------


@pytest.fixture
def bundle(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ledger of two camps, exported, in an otherwise empty folder with a wide terminal."""
    grown(database_url, tmp_path, Component("largest-gap"))
    folder = tmp_path / "work"
    folder.mkdir()
    with open_source(database_url) as source:
        write_bundle(source, folder / "x.dagacfl")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [f"{author(letter)},camp {camp}" for letter, camp in CAMPS.items()]
    Path("clusters.csv").write_text("\n".join(["author,cluster", *rows, ""]), encoding="utf-8")
    return folder / "x.dagacfl"


def command(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    code = main(["ledger", "replay", *arguments])
    printed = capsys.readouterr()
    assert code == 0, printed
    return printed.out


def refused(*arguments: str, code: int = 1, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["ledger", "replay", *arguments]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def test_the_command_shows_and_writes_what_each_selector_takes(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    selectors = ("--selector", "ledger", "--selector", "top-k:k=1", "--selector", "beast:rule=literal,alpha=0.3")
    files = ("--clusters", "clusters.csv", "--json", "figures.json", "--out", "selections.csv")
    text = command(str(bundle), *selectors, *files, capsys=capsys)
    assert "24 of 24 selections replayed: 24 from evidence, 0 rebuilt" in text
    for words in ("as it was: largest-gap", "top-k k=1", "beast alpha=0.3 rule=literal", "100.0 %", "purity"):
        assert words in text
    figures = json.loads(Path("figures.json").read_text(encoding="utf-8"))
    assert (figures["selections"], figures["replayed"], figures["from_evidence"], figures["shortened"]) == (
        24,
        24,
        24,
        0,
    )
    assert set(figures["not_replayable"]) == {each.value for each in Obstacle}
    was, own, one, _ = figures["selectors"]
    assert {**own, "selector": was["selector"]} == was
    assert one["counts"] == {"0": 1, "1": 23}, "the first had nobody to take"
    with Path("selections.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24 * 4
    assert [row["selector"] for row in rows[:4]] == ["as it was", "ledger", "top-k k=1", "beast alpha=0.3 rule=literal"]
    ones = [row for row in rows if row["selector"] == "top-k k=1"]
    assert sum(int(row["same"]) for row in ones) / 24 == one["same"]
    assert all(len(row["taken"].split()) == int(row["tips"]) for row in rows)
    assert sum(int(row["foreign"]) > 0 for row in ones) / 24 == one["foreign"]


def test_a_parameter_for_all_selectors_is_set_once(
    bundle: Path, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--selector", "largest-gap", "--selector", "least-squares", "--set", "min_update_similarity=-1")
    from_bundle = command(str(bundle), *given, capsys=capsys)
    assert "least-squares min_update_similarity=-1" in from_bundle
    assert command(database_url, *given, capsys=capsys) == from_bundle


def test_a_live_server_is_replayed_by_its_address(
    bundle: Path, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(data_dir=bundle.parent, database_url=database_url)
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        command(live.url, "--selector", "top-k", "--out", "live.csv", capsys=capsys)
    command(str(bundle), "--selector", "top-k", "--out", "file.csv", capsys=capsys)
    assert Path("live.csv").read_bytes() == Path("file.csv").read_bytes()


def test_what_cannot_be_replayed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = TinyLedger()
    ann = tiny.publish("ann", [tiny.genesis_id], model(2, 1, 1, 1))
    bob = tiny.publish("bob", [tiny.genesis_id], model(2, 1.1, 1, 1))
    tiny.publish("ann", sorted([ann, bob]), model(3))
    source = MemorySource.of(tiny)
    source.prune(ann)
    write_bundle(source, tmp_path / "x.dagacfl")
    monkeypatch.setenv("COLUMNS", "160")
    text = command(str(tmp_path / "x.dagacfl"), "--selector", "top-k", "--out", str(tmp_path / "x.csv"), capsys=capsys)
    assert "0 of 3 selections replayed" in text
    assert "2 not replayable: joined without evidence" in text
    assert "1 not replayable: without evidence, and a model that was compared is pruned" in text
    rows = (tmp_path / "x.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[3] for row in rows[1:]] == ["joined-without-evidence"] * 2 + ["model-pruned"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--selector", "nearest"), "top-k"),
        (("--selector", "sdagfl"), "samples, which no ledger holds"),
        (("--selector", "Top K"), "must be a name"),
        (("--selector", "top-k:k"), "must be name=value"),
        (("--selector", "top-k:k=0"), "at least 1"),
        (("--selector", "top-k:k=1", "--set", "k=2"), "given by --set and by --selector top-k:k=1"),
        (("--selector", "beast", "--set", "k=2"), "'k'"),
        (("--selector", "top-k", "--set", "k"), "must be name=value"),
        (("--selector", "ledger", "--set", "k=2"), "own parameters"),
        (("--selector", "top-k", "--clusters", "none.csv"), "none.csv: No such file"),
        (("--selector", "top-k", "--clusters", "x.dagacfl"), "author,cluster"),
        (("--selector", "top-k", "--clusters", "binary.csv"), "is no CSV file"),
        (("--selector", "top-k", "--clusters", "twice.csv"), "line 3: a stands there twice"),
        (("--selector", "top-k", "--clusters", "short.csv"), "line 2: must be an author and a cluster"),
        (("--selector", "top-k", "--clusters", "long.csv"), "line 2: must be an author and a cluster"),
        (("--selector", "top-k", "--clusters", "other.csv"), "lack author anon:"),
        (("--selector", "top-k", "--out", "missing/x.csv"), "cannot write missing/x.csv"),
        (("--selector", "top-k", "--json", "."), "cannot write ."),
    ],
)
def test_what_is_written_wrongly_is_refused_in_one_line(
    bundle: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "binary.csv": b"author,cluster\n\xff\xfe,1\n",
        "twice.csv": b"author,cluster\na,1\na,1\n",
        "short.csv": b"author,cluster\na\n",
        "long.csv": b"author,cluster\na,1,2\n",
        "other.csv": b"author,cluster\na,1\n",
    }
    for name, content in files.items():
        Path(name).write_bytes(content)
    assert words in refused(str(bundle), *arguments, capsys=capsys)


def test_no_selector_is_a_command_written_wrongly(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--selector" in refused(str(bundle), code=2, capsys=capsys)


def test_a_ledger_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in refused("missing.dagacfl", "--selector", "top-k", capsys=capsys)
