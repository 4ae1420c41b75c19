"""The documents say what the code does: every code, route, setting, command and link in them exists, and vice versa."""

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from itertools import chain
from pathlib import Path

import pytest
from safetensors.torch import load_file

from dag_acfl.__main__ import main
from docs.generate import pages, with_blocks
from docs.parts.commands import commands
from docs.parts.protocol import routes
from fl_client import LedgerClient
from fl_client.scaffold import client_source, load_trainer
from fl_core.aggregation import AGGREGATORS
from fl_core.dag.author import author_of_secret
from fl_core.dag.genesis import Bounds, Genesis
from fl_core.models import encode_model
from fl_core.selection import SELECTORS
from fl_core.wire import v1
from ledger_server import selecting
from ledger_server.app import create_app
from ledger_server.http.problem_types import ERROR_TYPES, PROBLEM_TYPES, REFUSAL_TYPES
from ledger_server.http.problems import _FRAMEWORK
from ledger_server.settings import Settings, load_settings
from tests.builders import make_genesis, model
from tests.live import run_app
from tests.serving import prepare, serving

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PROTOCOL = ROOT / "docs" / "protocol.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def problems_raised() -> Iterator[str]:
    """The code of each ``Problem("code", …)`` in the server's source."""
    for file in sorted((ROOT / "ledger_server").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("Problem", "_unauthorized")
            ):
                code = node.args[0] if node.args else None
                if isinstance(code, ast.Constant):
                    yield str(code.value)


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def commands_written(page: Path) -> Iterator[list[str]]:
    """Each ``dag-acfl …`` of a page's shell blocks and inline code, as words; comments gone."""
    text = page.read_text("utf-8")
    lines = [line for block in code_blocks(page, "bash") for line in block.splitlines()]
    lines += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    for line in lines:
        if "dag-acfl" not in line:
            continue
        words = shlex.split(line.partition(" #")[0])
        starts = [place for place, word in enumerate(words) if word in ("dag-acfl", ".venv/bin/dag-acfl")]
        if starts and len(words) > starts[0] + 1:
            yield words[starts[0] + 1 :]


def test_generated_parts_are_current() -> None:
    for page, text in pages().items():
        assert page.read_text("utf-8") == text, f"{page.name} is stale; run: make docs"


def test_a_block_that_no_page_has_is_told() -> None:
    page, blocks = "<!-- generated: a -->\nold\n<!-- end -->\n", {"a": lambda: "new"}
    assert with_blocks(page, blocks) == "<!-- generated: a -->\n\nnew\n<!-- end -->\n"
    with pytest.raises(ValueError, match=r"for b, c$"):
        with_blocks(page, {**blocks, "c": str, "b": str})


def test_problem_types_are_those_that_the_source_raises() -> None:
    raised = {*problems_raised(), *(code for code, _ in _FRAMEWORK.values())}
    assert len(raised) > 25
    assert raised - ERROR_TYPES.keys() == REFUSAL_TYPES.keys()
    assert all(PROBLEM_TYPES[code].status == status for status, (code, _) in _FRAMEWORK.items())


def test_protocol_names_every_problem_and_no_other() -> None:
    text = PROTOCOL.read_text("utf-8")
    known = PROBLEM_TYPES.keys()
    rows = set(re.findall(r"^\| `([a-z-]+)` \| \d{3} \|", text, re.MULTILINE))
    assert rows == known
    mentioned = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text))
    assert mentioned - known <= {"dag-acfl", *SELECTORS, *AGGREGATORS}


def test_every_problem_type_is_explained_where_its_type_points(tmp_path: Path, sqlite_url: str) -> None:
    with serving(sqlite_url, tmp_path) as server:
        for code in PROBLEM_TYPES:
            answer = server.client.get(v1.path(v1.PROBLEM, code=code))
            assert (answer.status_code, code in answer.text) == (200, True), code
        assert server.client.get(v1.path(v1.PROBLEM, code="no-such-code")).status_code == 404


@by_page
def test_routes_named_in_a_page_exist(page: Path) -> None:
    known = {re.sub(r"\{\w+\}", "{}", path) for path, _ in routes()}
    named = re.findall(r"(?:\$S|`|\s)(/v1/[a-z/{}$()<> .-]*)", page.read_text("utf-8"))
    for found in named:
        path = re.sub(r"\{\w+\}|<\w+>|\$\([^)]*\)?", "{}", found.split(" ")[0]).rstrip("/.)`")
        assert any(path in (each, each.removesuffix("/{}")) for each in known), found


@by_page
def test_settings_named_in_a_page_exist(page: Path) -> None:
    listed = set(re.findall(r"`(DAG_ACFL_\w+)`", (ROOT / "docs" / "settings.md").read_text("utf-8")))
    others = {"DAG_ACFL_DEBUG", "DAG_ACFL_TOKEN", "DAG_ACFL_DATA", "DAG_ACFL_TEST_PG_URL"}
    assert set(re.findall(r"\b(DAG_ACFL_[A-Z_]+[A-Z])\b", page.read_text("utf-8"))) <= listed | others


def test_every_setting_has_a_description() -> None:
    groups = [field.annotation for field in Settings.model_fields.values()]
    models = [Settings, *(group for group in groups if isinstance(group, type) and hasattr(group, "model_fields"))]
    assert len(models) == 8
    for each in models:
        assert [name for name, field in each.model_fields.items() if not field.description] == []


@by_page
def test_commands_named_in_a_page_exist_with_their_options(page: Path) -> None:
    known = commands()
    groups = {words.partition(" ")[0] for words in known if " " in words}
    for words in commands_written(page):
        if words[0] in groups and len(words) == 1:
            continue
        (found,) = [name for name in known if words[: len(name.split())] == name.split()] or [None]
        if found is None:
            assert words[0].startswith("-"), f"{page.name}: dag-acfl {' '.join(words)}"
            continue
        options = {spelling for each in known[found].params for spelling in (*each.opts, *each.secondary_opts)}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= options | {"--help"}, f"{page.name}: dag-acfl {' '.join(words)}"


def test_readme_names_the_commands_that_a_newcomer_needs() -> None:
    written = {" ".join(words[:2]) for words in commands_written(README)}
    assert {"client init", "client run", "ledger init", "ledger verify"} <= written
    assert "serve" in {words[0] for words in commands_written(README)}


@by_page
def test_make_targets_named_in_a_page_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = page.read_text("utf-8")
    named = set(re.findall(r"^make ([a-z-]+)", "\n".join(code_blocks(page, "bash")), re.MULTILINE))
    named |= set(re.findall(r"`make ([a-z-]+)", text))
    assert named <= targets


def test_what_pip_is_told_to_install_is_on_an_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    known = {re.split(r"[^\w-]", each)[0] for each in needed} - {"dag-acfl"}  # in a clone: '.[extra]'
    code = [
        file
        for name in ("fl_core", "ledger_server", "fl_client", "fl_simulator", "dag_acfl")
        for file in (ROOT / name).rglob("*.py")
    ]
    told = {
        (file.name, name)
        for file in [*PAGES, *code]
        for name in re.findall(r"pip install '?([.\w-]+)", file.read_text("utf-8"))
    }
    assert len(told) > 10
    assert {
        (where, name)
        for where, name in told
        if name not in known | {".", "mlflow", "openapi-python-client", "--dry-run"}
    } == set()


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not re.match(r"[a-z]+:", link):
            target = link.partition("#")[0]
            assert (page.parent / target).exists(), link


@by_page
def test_code_files_named_in_a_page_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in re.findall(
        r"`((?:fl_core|ledger_server|fl_client|fl_simulator|dag_acfl|tests|docs|benchmarks)/[\w./-]+)`", text
    ):
        assert (ROOT / name).exists(), name


def test_readme_fits_a_minute() -> None:
    lines = README.read_text("utf-8").splitlines()
    assert len(lines) <= 130
    assert max(map(len, lines)) <= 110


def test_changelog_speaks_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_bounds_table_has_every_bound_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \| ", PROTOCOL.read_text("utf-8"), re.MULTILINE))
    defaults = {field.name: field.default for field in fields(Bounds)}
    assert defaults.keys() <= rows.keys()
    for name, default in defaults.items():
        shown = rows[name]
        assert float(shown) == default if type(default) in (int, float) else shown == str(default).lower(), name


def test_the_sizing_table_has_the_bounds_of_memory() -> None:
    (said,) = re.findall(r"^\| memory \| (.+) \|$", (ROOT / "docs" / "operations.md").read_text("utf-8"), re.MULTILINE)
    assert f"`cache.model_bytes` ({Settings().cache.model_bytes / 1e6:.0f} MB)" in said
    assert f"up to {selecting._VECTOR_BYTES / 1e6:.0f} MB of what is compared" in said


def test_genesis_table_has_every_member() -> None:
    text = PROTOCOL.read_text("utf-8")
    for field in fields(Genesis):
        assert f"`{field.name}`" in text


def test_every_aggregator_is_defined_in_the_protocol_with_its_parameters() -> None:
    text = PROTOCOL.read_text("utf-8")
    tables = text.partition("<!-- generated: aggregators -->")[2].partition("<!-- end -->")[0]
    for name in AGGREGATORS:
        assert f"`{name}`:\n" in tables or f"`{name}` has no parameters" in tables
        assert f"\n`{name}`: " in text.partition("**The average.**")[2]


def test_decisions_are_numbered_once_and_have_a_status() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    numbers = [int(record.name[:4]) for record in records]
    assert numbers == sorted(set(numbers))  # one that was voided leaves a gap
    for number, record in zip(numbers, records, strict=True):
        text = record.read_text("utf-8")
        assert text.startswith(f"# {number}. "), record.name
        assert "\nStatus: " in text, record.name


@pytest.mark.skipif(shutil.which("curl") is None and not os.environ.get("CI"), reason="curl is not installed")
def test_round_with_curl_runs_as_the_protocol_shows_it(tmp_path: Path, sqlite_url: str) -> None:
    (block,) = [each for each in code_blocks(PROTOCOL, "bash") if "/v1/selections" in each]
    prepare(sqlite_url, tmp_path)
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url)
    with run_app(create_app(settings), settings) as live:
        script = block.replace("http://127.0.0.1:8900", live.url)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        with LedgerClient(live.url) as client:
            (newest,) = client.clients().items
    assert newest.author == author_of_secret((tmp_path / "secret").read_text())
    assert f'"id":"{newest.newest}"' in (tmp_path / "mine.json").read_text()
    assert f'"reference":"{newest.newest}"' in (tmp_path / "selection.json").read_text()
    assert (tmp_path / "model.safetensors").read_bytes() == model(1, 1, 1, 1)


def test_python_of_the_readme_takes_part(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = code_blocks(README, "python")
    file = tmp_path / "my_client.py"
    file.write_text(client_source())
    trainer = load_trainer(file)
    genesis = make_genesis(layout=trainer.layout(), selector="beast")
    first = encode_model(trainer.layout(), trainer.initial_arrays())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    prepare(sqlite_url, tmp_path, genesis=genesis, first=first)
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url)
    with run_app(create_app(settings), settings) as live:
        exec(compile(block.replace("http://127.0.0.1:8900", live.url), "README.md", "exec"), {})
        with LedgerClient(live.url) as client:
            (newest,) = client.clients().items
    assert newest.sequence == 9, "ten transactions, counted from 0"
    assert (tmp_path / "site-3" / "participant.json").exists()


def test_the_lora_example_sends_its_adapters_only_and_gives_the_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(ROOT / "examples" / "lora_client.py")
    monkeypatch.chdir(tmp_path)
    assert main(["ledger", "init", "--name", "lora", "--client", file, "--data-dir", "site"]) == 0
    settings = load_settings(data_dir=Path("site"))
    with run_app(create_app(settings), settings) as live:
        assert main(["client", "run", file, "--server", live.url, "--state", "mine", "--transactions", "2"]) == 0
        with LedgerClient(live.url) as client:
            genesis = client.genesis().genesis
            (newest,) = client.clients().items
    assert newest.sequence == 1
    adapters = {"fc1.lora_a", "fc1.lora_b", "fc2.lora_a", "fc2.lora_b"}
    assert {tensor.name for tensor in genesis.layout.tensors} == adapters
    assert main(["client", "export", "mine", "--client", file, "--out", "whole.safetensors"]) == 0
    model_of_the_file = runpy.run_path(file)["Model"]()
    base = model_of_the_file.fc1.base.weight.clone()
    assert model_of_the_file.fc2.lora_b.count_nonzero() == 0
    model_of_the_file.load_state_dict(load_file("whole.safetensors"))
    assert model_of_the_file.fc2.lora_b.count_nonzero() > 0
    assert (model_of_the_file.fc1.base.weight == base).all()
