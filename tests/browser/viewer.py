"""The console of a copy: a bundle's, and a simulation's results with and without a ledger."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fl_core.wire import v1
from ledger_server.admin.bundle import write_bundle
from tests.browser.pages import faults, page_of
from tests.live import client_of
from tests.sources import sound_ledger

ROOT = Path(__file__).parents[2]
CLIENT = """
from tests.tiny_trainer import TinyTrainer

def trainer(site=0):
    return TinyTrainer(3.0 if site % 2 else 0.0)
"""
WITH_LEDGER = "my-client-8-sites-1-dag-acfl-seed-0"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods, eight clients of two kinds, six rounds."""
    folder = tmp_path_factory.mktemp("simulation")
    (folder / "my_client.py").write_text(CLIENT)
    command = ["simulate", "--client", "my_client.py", "--sites", "8", "--set", "run.rounds=6", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "dag_acfl", *command], cwd=folder, env=environment, check=True)
    return folder / "out" / "my_client"


@dataclass
class Viewer:
    url: str


@contextmanager
def viewed(what: Path) -> Iterator[Viewer]:
    """``dag-acfl ledger view`` as a person calls it."""
    command = [sys.executable, "-m", "dag_acfl", "ledger", "view", str(what)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("serving on ")).split()[-1]
        try:
            yield Viewer(url)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def shown_views(page: Page) -> list[str]:
    return page.get_by_role("navigation").get_by_role("link").all_inner_texts()


def test_a_simulations_folder_shows_its_runs_and_the_ledger_of_one(browser: Browser, results: Path) -> None:
    with viewed(results) as live, page_of(browser, live) as page:
        page.goto(f"{live.url}/ui/#/runs")
        expect(page.get_by_role("heading", level=1)).to_have_text("Runs of my_client")
        expect(page.locator("table").last.locator("tbody tr")).to_have_count(3)
        expect(page.locator("tr.taken")).to_contain_text("DAG-ACFL")
        expect(page.locator(".u-legend")).to_contain_text("FedAvg")
        expect(page.get_by_role("columnheader", name="clusters")).to_be_visible()
        assert "communities" not in page.get_by_role("main").inner_text()
        assert shown_views(page) == ["Runs", "Overview", "Updates", "Clusters", "Clients", "Servers", "Costs"]
        page.get_by_role("link", name="Updates", exact=True).click()
        expect(page.get_by_text("48 updates.")).to_be_visible()
        expect(page.get_by_text("virtual time").first).to_be_visible()
        page.get_by_role("table").get_by_role("link").first.click()
        for words in ("The id is that of the header's bytes", "The client has signed it"):
            expect(page.get_by_text(words)).to_be_visible()
        expect(page.get_by_role("heading", name="Why these models?")).to_be_visible()
        expect(
            page.get_by_text("resemble what it has learnt").or_(page.get_by_text("went on with its own"))
        ).to_be_visible()
        ranked = page.get_by_role("table").first.locator("tbody tr")
        expect(ranked.first).to_contain_text("key:")
        with client_of(live.url) as client:
            shown = client.get(f"{v1.VIEW_UPDATES}/{page.url.rpartition('/')[2]}").json()
        assert ranked.count() == len(shown["offered"])
        assert [each["similarity"] for each in shown["offered"]] == sorted(
            (each["similarity"] for each in shown["offered"]), reverse=True
        )
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.get_by_text("this is a copy")).to_be_visible()
        with client_of(live.url) as client:
            kinds = {each["kind"] for each in client.get(v1.ALARMS).json()["items"]}
        assert "zero-model" not in kinds, "nobody knows a model that was dropped"


def test_the_command_for_another_runs_ledger_is_copied_whole(browser: Browser, results: Path, tmp_path: Path) -> None:
    shown, other = ("dag-acfl-seed-0", "dag-acfl-seed-1")
    for each in (shown, other):
        shutil.copytree(results / WITH_LEDGER, tmp_path / "two runs" / each)
    with viewed(tmp_path / "two runs" / shown) as live, page_of(browser, live) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto(f"{live.url}/ui/#/runs")
        page.get_by_role("row").filter(has_text=other).get_by_role("button", name="Copy the command").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        command = shlex.split(page.evaluate("navigator.clipboard.readText()"))
        assert command == ["dag-acfl", "ledger", "view", str(tmp_path / "two runs" / other)]


def test_a_copy_can_be_replayed_from_its_beginning(browser: Browser, results: Path) -> None:
    with viewed(results / WITH_LEDGER) as live, page_of(browser, live) as page:
        page.goto(f"{live.url}/ui/#/updates")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_text(re.compile(r"^[0-3] of 48 updates"))).to_be_visible()
        expect(page.get_by_text("48 of 48 updates")).to_be_visible(timeout=30_000)
        expect(page.get_by_role("button", name="Replay")).to_be_visible()


def test_methods_without_a_ledger_have_curves_alone(browser: Browser, results: Path, tmp_path: Path) -> None:
    for each in results.glob("*fedavg*"):
        shutil.copytree(each, tmp_path / "baselines" / each.name)
    with viewed(tmp_path / "baselines") as live, page_of(browser, live) as page:
        page.goto(f"{live.url}/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Runs of baselines")
        expect(page.get_by_text("None of them has left a ledger")).to_be_visible()
        assert shown_views(page) == ["Runs", "Costs"]
        page.goto(f"{live.url}/ui/#/updates")
        expect(page.get_by_role("heading", level=1)).to_have_text("Updates: not here")


def test_a_run_that_goes_on_is_followed(browser: Browser, results: Path, tmp_path: Path) -> None:
    (run,) = results.glob("*fedavg*")
    copy = tmp_path / "going" / run.name
    shutil.copytree(run, copy)
    lines = (copy / "rounds.csv").read_text().splitlines(keepends=True)
    (copy / "summary.json").unlink()
    (copy / "rounds.csv").write_text("".join(lines[:3]))
    with viewed(copy.parent) as live, page_of(browser, live) as page:
        page.goto(f"{live.url}/ui/#/runs")
        expect(page.get_by_role("cell", name="2 of 6, not finished")).to_be_visible()
        (copy / "rounds.csv").write_text("".join(lines[:5]))
        expect(page.get_by_role("cell", name="4 of 6, not finished")).to_be_visible(timeout=15_000)


def test_a_run_that_is_damaged_while_it_is_shown_is_named(browser: Browser, results: Path, tmp_path: Path) -> None:
    (run,) = results.glob("*fedavg*")
    copy = tmp_path / "going" / run.name
    shutil.copytree(run, copy)
    (copy / "summary.json").unlink()
    with viewed(copy.parent) as live:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{live.url}/ui/#/runs")
        expect(page.get_by_role("cell", name="not finished")).to_be_visible()
        (copy / "run.json").write_text("{}")
        expect(page.get_by_role("alert")).to_contain_text("run.json is damaged", timeout=15_000)
        with client_of(live.url) as client:
            answer = client.get(v1.VIEW_SOURCE)
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/source-damaged")
        context.close()


def test_the_folder_of_a_ledger_stands_for_it_whatever_bytes_its_name_has(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    write_bundle(sound_ledger().source(), folder / os.fsdecode(b"led\xffger.dagacfl"))
    with viewed(folder) as live, page_of(browser, live) as page:
        page.goto(f"{live.url}/")
        expect(page.get_by_role("status").first).to_have_text("led\N{REPLACEMENT CHARACTER}ger.dagacfl, a file")
        page.goto(f"{live.url}/ui/#/take-part")
        expect(page.get_by_role("heading", level=1)).to_have_text("Take part: not here")
        expect(page.get_by_text("a copy, which nobody can take part in")).to_be_visible()


def test_a_bundle_whose_models_were_pruned_is_shown_too(browser: Browser, tmp_path: Path) -> None:
    sound = sound_ledger()
    source = sound.source()
    source.prune(sound.ann)
    write_bundle(source, tmp_path / "pruned.dagacfl")
    with viewed(tmp_path / "pruned.dagacfl") as live, page_of(browser, live) as page:
        page.goto(f"{live.url}/ui/#/updates/{sound.ann}")
        expect(page.get_by_text("The id is that of the header's bytes")).to_be_visible()
        expect(page.get_by_role("status").first).to_have_text("pruned.dagacfl, a file")
        assert "Take part" not in shown_views(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_simulations_views_can_be_read_by_all_and_fit_a_telephone(
    browser: Browser, results: Path, scheme: str
) -> None:
    with viewed(results) as live, page_of(browser, live, scheme=scheme, width=360) as page:
        found = []
        for view in (
            "runs",
            "runs?lines=run&over=bytes&figure=loss",
            "",
            "updates",
            "clusters",
            "clients",
            "servers",
            "costs",
        ):
            page.goto(f"{live.url}/ui/#/{view}")
            expect(page.get_by_role("status").first).to_have_text("a simulation")
            found += [(view, each) for each in faults(page)]
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        assert found == []
