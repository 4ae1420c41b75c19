"""The command as a person types it: help that teaches, errors of one line, and every part reachable."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dag_acfl.__main__ import main
from docs.parts.commands import commands
from fl_client import LedgerClient, ParticipantState
from fl_core.errors import ParameterError
from fl_core.models import ModelLayout, encode_model
from fl_core.types import ZERO_ID, AuthorId
from ledger_server.admin import doctor as health
from ledger_server.admin.bundle import write_bundle
from tests.builders import seal
from tests.live import eventually, free_ports
from tests.postgres import Databases
from tests.sources import sound_ledger


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, a wide terminal without colours, and nothing of the machine's own settings."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DAG_ACFL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments: str, code: int = 0, capsys: pytest.CaptureFixture[str]) -> str:
    """Run in this process; returns what was printed."""
    assert main(arguments) == code, capsys.readouterr()
    return capsys.readouterr().out


def refused(*arguments: str, code: int = 1, capsys: pytest.CaptureFixture[str]) -> str:
    """Run what must fail; returns its one line."""
    assert main(arguments) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


def first_model(path: Path) -> Path:
    """A safetensors file of two layers; the last one is fc2."""
    arrays = {
        name: np.full(shape, 0.5, np.float32)
        for name, shape in (("fc1.weight", (2, 2)), ("fc1.bias", (2,)), ("fc2.weight", (1, 2)), ("fc2.bias", (1,)))
    }
    path.write_bytes(encode_model(ModelLayout.of_arrays(arrays), arrays))
    return path


@pytest.fixture
def ledger(configured_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The data folder of a new ledger."""
    folder = tmp_path / "site"
    model = str(first_model(tmp_path / "first.safetensors"))
    run("ledger", "init", "--name", "pilot", "--model", model, "--data-dir", str(folder), capsys=capsys)
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As ``configured_database``, but without tables."""
    with ExitStack() as stack:
        if request.param == "postgresql":
            databases: Databases = request.getfixturevalue("postgresql")
            monkeypatch.setenv("DAG_ACFL_DATABASE_URL", stack.enter_context(databases.fresh(migrated=False)))
        yield


@contextmanager
def served(folder: Path, *options: str, port: int = 0) -> Iterator[str]:
    """`dag-acfl serve` in a process of its own, which logs into the file `log`; gives its URL."""
    command = [sys.executable, "-m", "dag_acfl", "serve", "--data-dir", str(folder), "--port", str(port), *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (
        Path("log").open("a") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as it,
    ):
        assert it.stdout is not None
        try:
            line = it.stdout.readline()
            assert line.startswith("serving on http://"), line
            yield line.removeprefix("serving on ").strip().replace("0.0.0.0", "127.0.0.1")
        finally:
            it.terminate()
            assert it.wait(20) == 0


# -- help ---------------------------------------------------------------------------------------------


def test_python_m_dag_acfl_calls_itself_so() -> None:
    command = [sys.executable, "-m", "dag_acfl", "serve"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    helped = subprocess.run([*command, "--help"], env=environment, capture_output=True, text=True, check=True)
    assert "Usage: python -m dag_acfl serve [OPTIONS]" in helped.stdout
    wrong = subprocess.run([*command, "--prot", "1"], env=environment, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.endswith("; see: python -m dag_acfl serve --help\n")


@pytest.mark.parametrize("command", commands())
def test_every_command_teaches_by_an_example_that_is_a_real_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run(*command.split(), "--help", capsys=capsys)
    example = re.search(r"Example: dag-acfl (.+)", text)
    assert example is not None, text
    assert example[1].startswith(command)
    for flag in re.findall(r"--[a-z-]+", example[1]):
        assert flag in text.replace(example[0], "")


def test_no_help_has_a_line_break_within_a_paragraph() -> None:
    broken = [name for name, command in commands().items() if re.search(r"[^\n]\n[^\n]", command.help)]
    assert broken == []


@pytest.mark.parametrize("group", sorted({name.split()[0] for name in commands() if " " in name}))
def test_every_group_shows_one_of_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"Example: dag-acfl (\S+ \S+)", run(group, "--help", capsys=capsys))
    assert example is not None
    assert example[1] in commands()
    assert example[1].startswith(f"{group} ")


def test_help_loads_nothing_heavy() -> None:
    heavy = "('torch', 'numpy', 'sqlalchemy', 'fastapi', 'urllib3', 'matplotlib', 'networkx', 'Rbeast')"
    code = (
        "import sys; from dag_acfl.__main__ import main; assert main(['--help']) == 0; "
        f"loaded = [name for name in {heavy} if name in sys.modules]; assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(
        r"dag-acfl \S+ \(commit [0-9a-f]{12}(-dirty)?, schema \d{4}\)\n", run("--version", capsys=capsys)
    )


# -- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--prot", "1"),
        ("nonsense",),
        ("serve", "--port", "many"),
        ("keys", "show"),
        ("demo", "--clients", "1"),
    ],
)
def test_a_command_written_wrongly_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--help" in refused(*arguments, code=2, capsys=capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve",), "dag-acfl ledger init"),
        (
            ("serve", "--data-dir", "x y"),
            "ledger init --data-dir 'x y', or take a server's with: dag-acfl ledger join URL",
        ),
        (("serve", "--log-level", "loud"), "log_level"),
        (("ledger", "verify"), "dag-acfl ledger init"),
        (("ledger", "verify", "missing.dagacfl"), "no such file"),
        (("ledger", "view", str(Path(__file__).resolve())), "test_cli.py: not a ledger bundle"),
        (("ledger", "init", "--name", "x"), "one of --model FILE, --client FILE"),
        (("ledger", "init", "--name", "x", "--model", "missing"), "missing: No such file"),
        (("ledger", "init", "--name", "x", "--client", "missing.py"), "dag-acfl client init"),
        (("keys", "show", "missing.pem"), "cannot read the key"),
        (("tokens", "create", "site-3"), "or name the folder of one with --data-dir"),
        (("tokens", "list", "--data-dir", "sit-a"), "there is no ledger in sit-a yet"),
        (("client", "run", "missing.py"), "dag-acfl client init"),
        (("client", "flower", "."), "pip install 'flwr"),
        (("client", "status", "missing"), "no state folder"),
        (("client", "init", "client.txt"), "must end in .py"),
        (("data", "fetch", "imagenet"), "known:"),
    ],
)
def test_a_failure_is_one_line_that_names_the_fix(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dag_acfl.sources.SERVER_TIMEOUT_S", 0.5)
    assert words in refused(*arguments, capsys=capsys)


def test_a_pipe_in_a_folder_that_is_looked_at_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "ledger.dagacfl")
    assert "no run of a simulation is in it" in refused("ledger", "view", str(tmp_path), capsys=capsys)


@pytest.mark.parametrize("command", ["ledger join http://127.0.0.1:9", "ledger verify http://127.0.0.1:9"])
def test_a_server_that_is_down_is_asked_again_in_lines_for_people(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dag_acfl.sources.SERVER_TIMEOUT_S", 0.5)
    assert main(command.split()) == 1
    *again, last = capsys.readouterr().err.splitlines()
    assert again
    for line in again:
        assert re.fullmatch(r"no server can be used \(http://127\.0\.0\.1:9: .+\); check .+; trying again", line)
    assert re.match(r"error: no server can be used \(http://127\.0\.0\.1:9: .+\); check", last)


def test_where_there_is_no_ledger_yet_one_line_says_how_to_get_there(
    postgresql: Databases, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL the tables come first; for SQLite, which makes its own, see the failures above."""
    need_a_ledger = (
        "serve --port 0",
        "ledger inspect",
        "ledger verify",
        "ledger export x",
        "ledger prune --keep-days 0",
    )
    with postgresql.fresh(migrated=False) as url:
        monkeypatch.setenv("DAG_ACFL_DATABASE_URL", url)
        for command in need_a_ledger:
            assert "dag-acfl db upgrade" in refused(*command.split(), capsys=capsys)
        run("db", "upgrade", capsys=capsys)
        for command in need_a_ledger:
            assert "dag-acfl ledger init" in refused(*command.split(), capsys=capsys)
    assert not Path("x").exists()


@pytest.mark.parametrize("arguments", ["--debug keys show missing.pem", "keys show missing.pem --debug"])
def test_debug_shows_the_traceback_wherever_it_stands(arguments: str) -> None:
    with pytest.raises(ParameterError, match="cannot read the key"):
        main(arguments.split())


def test_a_bug_is_one_line_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> None:
        raise ZeroDivisionError("division by\nzero")

    monkeypatch.setattr("ledger_server.keys.load_key", broken)
    line = refused("keys", "show", "x.pem", capsys=capsys)
    assert line == "error: ZeroDivisionError: division by zero (a bug; run again with --debug and report it)"


# -- keys ---------------------------------------------------------------------------------------------


def test_a_key_is_its_owners_only_and_shows_as_an_author(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run("keys", "generate", "key.pem", capsys=capsys)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert run("keys", "show", "key.pem", capsys=capsys) == made
    assert re.search(r"^author id +key:[0-9a-f]{64}$", made, re.MULTILINE)
    assert "cannot write" in refused("keys", "generate", "key.pem", capsys=capsys)


# -- ledgers ------------------------------------------------------------------------------------------


def test_a_new_ledger_compares_all_that_is_trained_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    init = ("ledger", "init", "--name", "pilot", "--model", model)
    text = run(*init, "--data-dir", "a", capsys=capsys)
    assert re.search(r"compared +all that is trained$", text, re.MULTILINE)
    text = run(*init, "--data-dir", "b", "--compare", "fc1.weight", capsys=capsys)
    assert re.search(r"compared +fc1\.weight$", text, re.MULTILINE)
    text = run(*init, "--data-dir", "c", "--compare", "last", capsys=capsys)
    assert re.search(r"compared +fc2\.bias, fc2\.weight$", text, re.MULTILINE)


NORMALISED = """
import torch
from torch import nn
from fl_client.training import TorchTrainer

def trainer():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2), nn.BatchNorm1d(2))
    return TorchTrainer(model, (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)))
"""


def test_running_statistics_are_never_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither of a trainer's model, which says what is trained, nor of a file, whose names do."""
    Path("my_client.py").write_text(NORMALISED)
    init = ("ledger", "init", "--name", "pilot")
    text = run(*init, "--client", "my_client.py", "--data-dir", "a", capsys=capsys)
    without = r"1\.running_mean, 1\.running_var, 3\.running_mean, 3\.running_var"
    assert re.search(rf"compared +all that is trained, without {without}$", text, re.MULTILINE)
    text = run(*init, "--client", "my_client.py", "--data-dir", "b", "--compare", "last", capsys=capsys)
    assert re.search(r"compared +3\.bias, 3\.weight$", text, re.MULTILINE)
    assert re.search(
        r"profile +open\n  against +.+one bad client .+\n  leaves +.+backdoors by two of ten, .+ four honest",
        text,
    )
    arrays = {name: np.ones(70_000, np.float32) for name in ("weight", "norm.running_var")}
    Path("large.safetensors").write_bytes(encode_model(ModelLayout.of_arrays(arrays), arrays))
    text = run(*init, "--model", "large.safetensors", "--data-dir", "c", capsys=capsys)
    said = r"all that is trained, without norm\.running_var; as a sketch of 8,192 values"
    assert re.search(rf"compared +{said}$", text, re.MULTILINE)


def test_a_ledger_of_listed_authors_begins_with_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, author = str(first_model(tmp_path / "first.safetensors")), "hash:" + "5" * 64
    init = ("ledger", "init", "--name", "pilot", "--model", model, "--author", author)
    assert "--authors listed" in refused(*init, capsys=capsys)
    text = run(*init, "--authors", "listed", "--data-dir", "x", capsys=capsys)
    assert re.search(r"profile +listed\n  against +.+strangers.+\n  leaves +.+backdoors by two of ten", text)
    listed = run("authors", "list", "--data-dir", "x", capsys=capsys)
    assert listed == f"ledger 'pilot': 1 author listed\n  {author}\n"
    other = "hash:" + "6" * 64
    assert f"{other} was never listed" in refused("authors", "remove", other, "--data-dir", "x", capsys=capsys)
    run("authors", "rotate", author, other, "--data-dir", "x", capsys=capsys)
    run("authors", "remove", author, "--data-dir", "x", capsys=capsys)
    assert run("authors", "list", "--data-dir", "x", capsys=capsys).startswith("ledger 'pilot': 0 authors listed\n")
    run("authors", "remove", author, "--data-dir", "x", capsys=capsys)
    run("ledger", "verify", "x", capsys=capsys)
    run("ledger", "init", "--name", "open", "--model", model, "--data-dir", "y", capsys=capsys)
    assert "this ledger is open" in refused("authors", "add", author, "--data-dir", "y", capsys=capsys)


def test_a_quarantine_is_reported_with_its_reason_and_lifted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    author, here = "hash:" + "5" * 64, ("--data-dir", "x")
    run(
        "ledger",
        "init",
        "--name",
        "a",
        "--model",
        str(first_model(tmp_path / "first.safetensors")),
        *here,
        capsys=capsys,
    )
    assert run("trust", "report", "x", capsys=capsys) == "nothing is quarantined or erased\n"
    said = run("trust", "quarantine", author, "--reason", "flips labels", *here, capsys=capsys)
    (act,) = json.loads(run("trust", "report", "x", "--json", capsys=capsys))["decisions"]
    assert (act["subject"], act["reason"], act["reach"]) == (author, "flips labels", "everywhere")
    assert said.splitlines()[0] == f"{author} is quarantined, act {act['act'][:8]}"
    assert run("trust", "heal", "x", capsys=capsys) == "0 clients affected; 0 healed, 0 not yet\n"
    for command in ("report", "heal"):
        assert run("trust", command, *here, capsys=capsys) == run("trust", command, "x", capsys=capsys)
        assert "name the one to read" in refused("trust", command, "http://127.0.0.1:1", *here, capsys=capsys)
    assert "0 updates of 0 authors" in run("trust", "taint", author, *here, capsys=capsys)
    run("trust", "lift", act["act"][:8], *here, capsys=capsys)
    said = run("trust", "erase", author, "--reason", "withdrew", *here, capsys=capsys)
    assert said == f"the models of {author} are erased\n"
    lines = run("trust", "report", "x", capsys=capsys).splitlines()
    assert lines[0] == f"quarantine {act['act'][:8]}  lifted      {author}  flips labels"
    assert lines[1].endswith(f"everywhere  {author}  withdrew")
    assert "none would fit" in refused("trust", "taint", "hash:55555555", *here, capsys=capsys)


RULES = """
name = "from the file"

[selector]
name = "top-k"
k = 5

[aggregator]
name = "multi-krum"
byzantine = 2

[authors]
keys_only = true

[bounds]
max_parents = 7
max_step_growth = 4

[training]
epochs = 2
learning_rate = 0.25
"""


def test_a_file_and_options_make_genesis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    Path("genesis.toml").write_text(RULES)
    options = ("--name", "pilot", "--hint", "epochs=3")
    run("ledger", "init", "genesis.toml", "--model", model, "--data-dir", "x", *options, capsys=capsys)
    inspected = run("ledger", "inspect", "x", capsys=capsys)
    assert re.search(r"profile +open, but for selector, aggregator, authors, max_step_growth", inspected)
    assert re.search(r"leaves +one bad client: not measured with these rules", inspected)
    told = json.loads(run("ledger", "inspect", "x", "--json", capsys=capsys))["protection"]
    assert told["against"] == "steps that are too long"
    run("ledger", "export", "out.dagacfl", "x", capsys=capsys)
    document = re.search(rb'\{"aggregator".+?"weights":\{.+?\}\}\}', Path("out.dagacfl").read_bytes())
    assert document is not None
    genesis = json.loads(document[0])
    assert genesis["name"] == "pilot"
    assert genesis["selector"] == {"name": "top-k", "params": {"k": 5}}
    assert genesis["aggregator"]["name"] == "multi-krum"
    assert genesis["aggregator"]["params"] == {"byzantine": 2, "keep": 0}, "defaults are written out"
    assert genesis["bounds"]["max_parents"] == 7
    assert genesis["bounds"]["max_step_growth"] == 4
    assert genesis["authors"]["params"] == {"keys_only": True}
    assert genesis["training"] == {"epochs": 3, "initial_epochs": 3, "learning_rate": 0.25}


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ('selector.name = "magic"', "known: beast, largest-gap, least-squares, top-k"),
        ('aggregator.name = "mode"', "known: fedavg, krum, median, multi-krum, trimmed-mean"),
        ('aggregator = { name = "krum", byzantine = -1 }', "at least 0"),
        ("bounds.max_step_growth = 1", "max_step_growth"),
        ('selector = { name = "beast", alpha = 2 }', "below 1"),
        ('selector.colour = "red"', "no parameter 'colour'"),
        ('selector.name = ["beast"]', "[selector]: name must be text"),
        ('aggregator.name = "FedAvg"', "[aggregator]: a ledger names its rules by words"),
        ('candidates.name = "oldest"', "known: newest, tips"),
        ('candidates.colour = "red"', "no parameters, not colour"),
        ("weights.factor = 5", "no parameter 'factor'; it belongs to name = \"examples\""),
        ("freshness = { b = 1, a = 1 }", "no parameter 'a'; known: window_s"),
        ('comparison = { name = "layers", tensors = ["fc9.weight"] }', "fc9.weight"),
        ("bounds.max_parents = 0", "max_parents"),
        ("bounds = 3", "bounds must be a table"),
        ("training = 3", "training must be a table"),
        ("supersedes = 3", "supersedes must be"),
        ("colour = 3", "unknown: colour"),
        ("name", "is not TOML"),
    ],
)
def test_a_wrong_rule_leaves_no_ledger_behind(
    rules: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    Path("genesis.toml").write_text(rules)
    options = ("--name", "x", "--model", model, "--hint", "epochs=2")
    assert words in refused("ledger", "init", "genesis.toml", *options, capsys=capsys)
    assert not Path("dag-acfl-data").exists()


def test_weights_that_the_aggregator_does_not_count_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    Path("genesis.toml").write_text('weights.name = "examples"')
    text = run("ledger", "init", "genesis.toml", "--name", "x", "--model", model, "--data-dir", "x", capsys=capsys)
    assert "weights examples\n            of the project's own aggregators fedavg alone counts examples" in text


def test_a_hint_given_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    hints = ("--hint", "a=1", "--hint", "a=2")
    assert "twice" in refused("ledger", "init", "--name", "x", "--model", model, *hints, capsys=capsys)


def test_a_second_ledger_in_one_folder_is_refused(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tmp_path / "first.safetensors")
    line = refused("ledger", "init", "--name", "b", "--model", model, "--data-dir", str(ledger), capsys=capsys)
    assert "already" in line


def test_a_bundle_is_inspected_and_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bundle(sound_ledger().source(), tmp_path / "x.dagacfl")
    text = " ".join(run("ledger", "inspect", "x.dagacfl", capsys=capsys).split())
    assert "3 authors" in text
    for rule in ("selector", "weights", "examples: factor 1000000", "max_parents 64", "members"):
        assert rule in text
    summary = json.loads(run("ledger", "inspect", "x.dagacfl", "--json", capsys=capsys))
    assert (summary["transactions"], summary["tips"], len(summary["authors"])) == (6, 1, 3)
    assert "sound: 6 transactions, 6 models, 3 averages" in run("ledger", "verify", "x.dagacfl", capsys=capsys)
    report = json.loads(run("ledger", "verify", "x.dagacfl", "--json", capsys=capsys))
    assert report["sound"] is True
    assert report["findings"] == []


def test_authors_without_a_key_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = sound_ledger()
    author = AuthorId("hash:" + "1" * 64)
    header = ledger.tiny.transactions[ledger.bob_again].header
    update = seal(replace(header, author=author, attachment_digest=ZERO_ID))
    source = ledger.source()
    source.kept[update.id] = update
    write_bundle(source, tmp_path / "x.dagacfl")
    assert f"1 without a key, for whose updates only servers vouch: {author}" in run(
        "ledger", "verify", "x.dagacfl", capsys=capsys
    )
    assert json.loads(run("ledger", "verify", "x.dagacfl", "--json", capsys=capsys))["vouched"] == [author]


def test_a_damaged_bundle_fails_and_names_the_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = sound_ledger()
    source = ledger.source()
    digest = source.kept[ledger.cat].header.model_digest
    source.models[digest] = source.models[digest][:-1] + b"\x01"
    write_bundle(source, tmp_path / "x.dagacfl")
    text = run("ledger", "verify", "x.dagacfl", code=1, capsys=capsys)
    assert f"fault: model-corrupt  {ledger.cat}" in text
    report = json.loads(run("ledger", "verify", "x.dagacfl", "--json", code=1, capsys=capsys))
    assert [(f["kind"], f["transaction"]) for f in report["findings"]] == [("model-corrupt", ledger.cat)]


def test_a_database_a_server_and_a_bundle_are_one_ledger(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("ledger", "export", "database.dagacfl", str(ledger), capsys=capsys)
    with served(ledger) as url:
        run("ledger", "export", "server.dagacfl", url, capsys=capsys)
        assert "sound: 1 transaction, 1 model, 0 averages" in run("ledger", "verify", url, capsys=capsys)
        assert "pilot" in run("ledger", "inspect", url, capsys=capsys)
        for more in ((), ("--server", url)):
            text = run("doctor", "--port", url.rpartition(":")[2], "--data-dir", str(ledger), *more, capsys=capsys)
            assert re.search(r"^note +port .* is the running server's", text, re.MULTILINE)
        assert re.search(r"^ok +server .* clocks agree within \d s \(the header counts whole", text, re.MULTILINE)
    assert Path("server.dagacfl").read_bytes() == Path("database.dagacfl").read_bytes()


# -- server, database, doctor -------------------------------------------------------------------------


def test_print_config_is_toml_with_flags_and_environment_in_force(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tomllib

    monkeypatch.setenv("DAG_ACFL_PORT", "8901")
    monkeypatch.setenv("DAG_ACFL_HTTP__KEEP_ALIVE_S", "50")
    monkeypatch.setenv("DAG_ACFL_DOCS_ENABLED", "no")
    text = run("serve", "--print-config", "--host", "0.0.0.0", capsys=capsys)
    settings = tomllib.loads(text)
    assert settings["port"] == 8901
    assert settings["docs_enabled"] is False
    assert (settings["host"], settings["http"]["keep_alive_s"]) == ("0.0.0.0", 50)


def test_the_schema_is_brought_up_to_date(new_database: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"^revision \S+ \(was empty\)$", run("db", "upgrade", capsys=capsys), re.MULTILINE)
    assert re.match(r"revision \S+$", run("db", "upgrade", capsys=capsys)), "a second time there is nothing to do"


def test_a_server_says_who_may_ask_and_that_it_has_no_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    folder, here = tmp_path / "ledger", ("--data-dir", str(tmp_path / "ledger"))
    run("ledger", "init", "--name", "pilot", "--model", model, *here, capsys=capsys)
    with served(folder, "--host", "0.0.0.0") as url:
        assert "asks for a bearer token" in refused("ledger", "inspect", url, capsys=capsys)
        run("tokens", "create", "site-1", "--out", "token", *here, capsys=capsys)
        assert "pilot" in run("ledger", "inspect", url, "--token-file", "token", capsys=capsys)
        with LedgerClient(url, token=Path("token").read_text().strip()) as client:
            genesis = client.genesis()
            client.publish(client.download(genesis.model_digest), parents=[genesis.ledger], num_examples=1)
    with served(folder, "--host", "0.0.0.0", "--public") as url, LedgerClient(url) as client:
        assert client.tips().transactions == 2, "what has ended holds nothing"
    (reads, public) = [line for line in Path("log").read_text().splitlines() if "TLS" in line]
    assert (
        "0.0.0.0 is reached by others: reads, writes ask for a token (dag-acfl tokens create), and without TLS" in reads
    )
    assert "everybody who reaches the server may read and write, and without TLS" in public
    modes = {stat.S_IMODE(each.stat().st_mode) for each in folder.rglob("*") if each.is_file()}
    assert (modes, stat.S_IMODE(folder.stat().st_mode)) == ({0o600}, 0o700), "models are their server's alone"


def test_the_doctor_says_one_line_for_each_check(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run("doctor", "--data-dir", str(ledger), "--port", "0", capsys=capsys)
    lines = text.splitlines()
    names = [line.split()[1] for line in lines]
    assert names == [
        "python",
        "packages",
        "torch",
        "folder",
        "disk",
        "port",
        "access",
        "database",
        "bucket",
        "keys",
        "server",
    ]
    assert not [line for line in lines if line.startswith("fail")]


def test_the_doctor_finds_a_port_that_another_program_has(
    ledger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_TIMEOUT_S", 0.1)  # the other program never answers
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        other.close()  # nobody answers; and then somebody who is no server
        with socket.create_server(("127.0.0.1", port)) as silent:
            silent.listen()
            for server in ("no url", "http://[", "http://127.0.0.1:x"):
                arguments = ("--data-dir", str(ledger), "--port", str(port), "--server", server)
                text = run("doctor", *arguments, code=1, capsys=capsys)
                assert re.search(r"^fail port .* cannot be had", text, re.MULTILINE)


def test_the_doctor_finds_an_open_key_and_says_how_to_close_it(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ledger / "server-key.pem").chmod(0o644)
    text = run("doctor", "--data-dir", str(ledger), "--port", "0", code=1, capsys=capsys)
    assert re.search(r"^fail keys .*chmod 600", text, re.MULTILINE)


# -- clients ------------------------------------------------------------------------------------------


def test_a_new_file_makes_a_ledger_and_takes_part_in_it(
    configured_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("client", "init", "my_client.py", capsys=capsys)
    assert "exists" in refused("client", "init", "my_client.py", capsys=capsys)
    text = run("ledger", "init", "--name", "pilot", "--client", "my_client.py", "--data-dir", "x", capsys=capsys)
    assert "2,410 parameters" in text
    with served(tmp_path / "x") as url:
        text = run("client", "run", "my_client.py", "--server", url, "--transactions", "1", capsys=capsys)
        assert re.match(r"client key:[0-9a-f]+… \(new\), state in my_client-state", text)
        assert re.search(r"^#0 [0-9a-f]{12}  its own model, .* accuracy 0\.\d{3} → 0\.\d{3}  loss ", text, re.MULTILINE)
        text = run("ledger", "inspect", url, capsys=capsys)
        assert re.search(r"transactions +2, 1 generation, 1 tip *$", text, re.MULTILINE)
        assert re.search("^ *1 author *$", text, re.MULTILINE)
        text = run("ledger", "export-model", "--cluster", "1", url, capsys=capsys)
        assert text.startswith("cluster 1 of 1, the average of its only author's newest model: ")
        text = run("client", "export", "my_client-state", capsys=capsys)
        assert "from my_client import Model  #" in text
        text = run(
            *("client", "run", "my_client.py", "--server", url, "--transactions", "2", "--set", "site=4"),
            *("--state", "other", "--set", "loss=virtual-teacher", "--set", "beta=0.9"),
            capsys=capsys,
        )
        assert "done after 2 transactions" in text
        shown = json.loads(run("client", "status", "my_client-state", "--server", url, "--json", capsys=capsys))
        assert shown["transactions"] == 1
        assert shown["server"].startswith(f"knows transaction {shown['transaction']}")
        assert "sound: 4 transactions" in run("ledger", "verify", url, capsys=capsys)
        assert "trainer(): " in refused("client", "run", "my_client.py", "--set", "colour=red", capsys=capsys)
    assert "none yet" not in run("client", "status", "my_client-state", capsys=capsys)


@pytest.fixture
def waving(tmp_path: Path) -> Path:
    """A client's file of numbers only, whose model's size is an option."""
    path = tmp_path / "waving.py"
    path.write_text(WAVING)
    return path


WAVING = """
import numpy as np
from fl_client.training import TrainingResult
from fl_core.models import ModelLayout

class Waving:
    def __init__(self, width): self.width = width
    def layout(self): return ModelLayout.of_arrays(self.initial_arrays())
    def initial_arrays(self): return {"w": np.ones(self.width, np.float32)}
    def train(self, arrays, *, epochs, hints=None): raise RuntimeError("no wave today")
    def evaluate(self, arrays): return {"accuracy": 0.5}

def trainer(width): return Waving(width)
"""


def test_a_ledger_is_founded_with_the_trainers_own_arguments(waving: Path, capsys: pytest.CaptureFixture[str]) -> None:
    founding = ("ledger", "init", "--name", "waves", "--client", "waving.py", "--data-dir", "x")
    assert "its parameters: width" in refused(*founding, capsys=capsys)
    assert "--set is for" in refused(
        "ledger", "init", "--name", "x", "--model", "m.safetensors", "--set", "width=7", capsys=capsys
    )
    assert "7 parameters" in run(*founding, "--set", "width=7", capsys=capsys)


def test_a_mistake_in_the_clients_file_is_no_bug_of_ours_and_a_wrong_server_binds_nothing(
    tmp_path: Path, waving: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("ledger", "init", "--name", "w", "--client", "waving.py", "--set", "width=7", "--data-dir", "x", capsys=capsys)
    with served(tmp_path / "x") as url:
        line = refused("client", "run", "waving.py", "--set", "width=8", "--server", url, capsys=capsys)
        assert "the trainer's model is not the ledger's: tensor 'w' is [8] here, [7] there" in line
        assert line.endswith("the server's ledger is 'w': is it the right one?")
        line = refused("client", "run", "waving.py", "--set", "width=7", "--server", url, capsys=capsys)
        assert line == "error: train() failed: waving.py, line 10: RuntimeError: no wave today"
    assert re.search(r"^ledger +none yet$", run("client", "status", "waving.py", capsys=capsys), re.MULTILINE)


def test_status_looks_at_a_running_client_and_at_one_whose_server_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dag_acfl.commands.client.STATUS_TIMEOUT_S", 0.1)
    with ParticipantState("site") as state:
        text = run("client", "status", "site", "--server", "http://127.0.0.1:1", capsys=capsys)
        assert f"author        {state.author}" in text
        assert f"running       process {os.getpid()}" in text
        assert "server        cannot be asked: no server can be used" in text
    assert "running       no" in run("client", "status", "site", capsys=capsys)


def test_a_duration_that_is_none_is_refused_before_anything_is_made(
    tmp_path: Path, waving: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "write it as 90s" in refused("client", "run", "waving.py", "--every", "soon", capsys=capsys)
    assert list(tmp_path.iterdir()) == [waving]


def test_the_data_sets_are_listed_with_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAG_ACFL_DATA", str(tmp_path / "nowhere"))
    text = run("data", "list", capsys=capsys)
    known = set(re.findall(r"fetch (\S+)", text))
    assert {"mnist", "fashion-mnist", "cifar-10", "emnist-letters"} <= known
    assert "digits" in text
    said = run("data", "--help", capsys=capsys)
    assert {name for name in known if name not in said} == set()


ROOT = Path(__file__).parents[2]


# -- members ------------------------------------------------------------------------------------------


def test_a_second_server_is_added_by_one_command_on_each_and_the_first_is_not_restarted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    run("ledger", "init", "--name", "pilot", "--model", model, "--data-dir", "first", capsys=capsys)
    (port,) = free_ports(1)
    with served(Path("first")) as url:
        here = f"http://127.0.0.1:{port}"
        line = refused("ledger", "join", url, "--data-dir", "first", "--url", here, capsys=capsys)
        assert f"first is {url}'s own; for another server: --data-dir FOLDER" in line
        assert here not in run("keys", "peer", "--data-dir", "first", capsys=capsys)
        printed = run("ledger", "join", url, "--data-dir", "second", "--url", here, capsys=capsys)
        (entry,) = re.findall(rf"dag-acfl members add '(second={here}#[0-9a-f]{{64}})'", printed)
        assert run("keys", "peer", "--data-dir", "second", capsys=capsys).strip() == entry, "the address that was named"
        said = run("members", "add", entry, "--data-dir", "first", capsys=capsys)
        assert said == "second is a member; an act needs 2 of 2 signatures from now on\n"
        with served(Path("second"), port=port), LedgerClient(url) as client, LedgerClient(here) as other:
            genesis = client.genesis()
            first = client.download(genesis.model_digest)
            published = client.publish(first, parents=[genesis.ledger], num_examples=1).id
            eventually(lambda: published in [tip.transaction for tip in other.tips().items])
            back = other.publish(first, parents=[genesis.ledger], num_examples=2).id
            eventually(lambda: back in [tip.transaction for tip in client.tips().items])


def test_members_are_listed_with_what_a_person_does_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    run("ledger", "init", "--name", "pilot", "--model", model, "--data-dir", "first", capsys=capsys)
    on_first = ("--data-dir", "first")
    key = run("keys", "show", "first/server-key.pem", capsys=capsys).split()[2]
    alone = f"ledger 'pilot': 1 member; an act needs 1 of 1 signatures\n  founder          {key}  this server\n"
    assert run("members", "list", *on_first, capsys=capsys) == alone
    second, third = (
        run("keys", "peer", f"http://{name}:8900", "--data-dir", name, capsys=capsys).strip() for name in ("b", "c")
    )
    assert "the last member" in refused("members", "remove", "founder", *on_first, capsys=capsys)
    run("members", "add", second, *on_first, capsys=capsys)
    proposed = run("members", "add", third, *on_first, capsys=capsys)
    assert run("members", "add", third, *on_first, capsys=capsys) == proposed, "typed twice, it is one proposal"
    listed = run("members", "list", *on_first, capsys=capsys)
    assert listed.startswith("ledger 'pilot': 2 members; an act needs 2 of 2 signatures\n")
    assert listed.endswith(proposed)
    assert f"  b                {second.rpartition('#')[2]}  http://b:8900\n" in listed
    assert re.search(r"1 more of b, each there: dag-acfl members sign [0-9a-f]{8}\n", proposed)
    taken = third.replace("c=", "b=")
    assert "a member is called b already" in refused("members", "add", taken, *on_first, capsys=capsys)
    assert "no proposal here is called" in refused("members", "sign", "0" * 64, *on_first, capsys=capsys)
    assert "no member is called" in refused("members", "remove", "nobody", *on_first, capsys=capsys)
    assert "NAME=URL#KEY" in refused("members", "add", "b", *on_first, capsys=capsys)
    assert "ledger init" in refused("members", "list", "--data-dir", "nowhere", capsys=capsys)


def test_a_new_key_is_made_and_the_command_says_when_to_use_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    run("ledger", "init", "--name", "pilot", "--model", model, "--data-dir", "first", capsys=capsys)
    rotate = ("members", "rotate", "--data-dir", "first", "--url", "http://moved:8900")
    said = run(*rotate, capsys=capsys)
    assert said.startswith("founder has a new key; an act needs 1 of 1 signatures from now on\n")
    assert said.endswith("now: mv first/server-key.next.pem first/server-key.pem   and restart this server, no other\n")
    assert run(*rotate, capsys=capsys) == said, "typed twice, it is one change"
    assert "=http://moved:8900#" in run("keys", "peer", "--data-dir", "first", capsys=capsys)
    new = run("keys", "show", "first/server-key.next.pem", capsys=capsys).split()[2]
    listed = run("members", "list", "--data-dir", "first", capsys=capsys)
    assert listed.endswith(f"  founder          {new}  http://moved:8900\n")
    Path("first/server-key.next.pem").replace("first/server-key.pem")
    assert run("members", "list", "--data-dir", "first", capsys=capsys).endswith(f"{new}  this server\n")


def test_a_new_key_for_a_server_whose_key_is_a_secret_is_not_moved_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    run("ledger", "init", "--name", "pilot", "--model", model, "--data-dir", "first", capsys=capsys)
    Path("first/server-key.pem").replace("secret.pem")
    monkeypatch.setenv("DAG_ACFL_SERVER_KEY", "secret.pem")
    said = run("members", "rotate", "--data-dir", "first", capsys=capsys)
    assert said.endswith(
        "now: put what first/server-key.next.pem holds where DAG_ACFL_SERVER_KEY (secret.pem) has its key from, and "
        "restart this server, no other\n"
    )
    Path("secret.pem").write_bytes(Path("first/server-key.next.pem").read_bytes())
    assert "delete server-key.next.pem" in refused("members", "rotate", "--data-dir", "first", capsys=capsys)


def test_who_may_not_rotate_has_no_new_key_afterwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(first_model(tmp_path / "first.safetensors"))
    run("ledger", "init", "--name", "pilot", "--model", model, "--data-dir", "first", capsys=capsys)
    bad = ("members", "rotate", "--data-dir", "first", "--url", "nowhere")
    assert "its address must look like" in refused(*bad, capsys=capsys)
    Path("first/server-key.pem").unlink()
    run("keys", "generate", "first/server-key.pem", capsys=capsys)
    assert "is no member of the ledger" in refused("members", "rotate", "--data-dir", "first", capsys=capsys)
    assert not Path("first/server-key.next.pem").exists()
