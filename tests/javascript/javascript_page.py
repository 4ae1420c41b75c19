"""docs/javascript.md, step by step as it says, in an empty folder: ``make js``."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from dag_acfl.__main__ import main
from dag_acfl.sources import open_source
from fl_client import LedgerClient
from fl_core.models import ModelLayout, TensorSpec
from fl_core.verify import verify
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.builders import make_genesis, model
from tests.docs.test_docs import ROOT, code_blocks
from tests.javascript.client_in_chromium import chromium
from tests.javascript.origin import CLIENT
from tests.live import eventually, run_app
from tests.serving import prepare

PAGE = ROOT / "docs" / "javascript.md"


def block(language: str, word: str) -> str:
    """The one block of the page in which the word stands."""
    (found,) = [each for each in code_blocks(PAGE, language) if word in each]
    return found


def ran(command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """What a test serves is not told."""


@contextmanager
def pages(folder: Path) -> Iterator[str]:
    """A folder's files, as ``python -m http.server`` has them."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``npm pack`` makes."""
    folder = tmp_path_factory.mktemp("packed")
    ran(f"npm pack --pack-destination {shlex.quote(str(folder))}", CLIENT)
    (made,) = folder.iterdir()
    return made


@pytest.fixture
def installed(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the packed client in it."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    ran(f"npm install --offline {shlex.quote(str(package))}", folder)
    return folder


def test_the_page_leads_from_an_empty_folder_to_three_clients_that_average(installed: Path) -> None:
    for command in block("bash", "ledger init").splitlines()[:2]:
        assert main(shlex.split(command)[1:]) == 0
    ran(block("bash", "rotated_digits").replace("python", sys.executable, 1), installed)
    (installed / "site.mjs").write_text(block("js", "site-${site}.json"))
    with pages(installed) as address:
        settings = load_settings(cors_origins=address)
        with run_app(create_app(settings), settings) as live:
            said = []
            for command in block("bash", "ledger verify").replace("http://127.0.0.1:8900", live.url).splitlines():
                words = shlex.split(command)
                if words[0] == "node":
                    said.append(ran(command, installed))
                else:
                    server = ["--server", live.url] if words[1] == "client" else []
                    assert main([*words[1:], *server]) == 0
            (installed / "page.html").write_text(block("html", "indexedDb").replace("http://127.0.0.1:8900", live.url))
            with LedgerClient(live.url) as reader, chromium(f"{address}/page.html", installed / "profile"):
                eventually(lambda: reader.tips().transactions >= 1 + 6 + 3 + 5)
                clients = reader.clients().items
            with open_source(live.url) as ledger:
                assert [finding for finding in verify(ledger) if not finding.kind.is_warning] == []
    first, second = said
    assert first.startswith("#0 own, 0 others, accuracy 0.")
    assert second.startswith("#3 parents, 1 others, accuracy 0."), "it averaged with the Python client"
    assert sorted(each.sequence for each in clients) == [2, 4, 5]


def test_the_pages_own_trainer_learns(installed: Path, tmp_path: Path, sqlite_url: str) -> None:
    layout = ModelLayout.of([TensorSpec("weight", "F32", (1, 3)), TensorSpec("bias", "F32", (1,))])
    genesis = make_genesis(layout=layout, selector="beast")
    settings = load_settings(data_dir=tmp_path / "server", database_url=sqlite_url)
    prepare(sqlite_url, settings.data_dir, genesis=genesis, first=model(1, layout=layout))
    x = np.random.default_rng(1).random((50, 3))
    data = {"x": x.tolist(), "y": (x @ [2, -1, 0.5] + 1).tolist()}
    (installed / "linear.mjs").write_text(block("js", "export function linear"))
    (installed / "data.json").write_text(json.dumps(data))
    (installed / "run.mjs").write_text(
        """
        import { readFile } from "node:fs/promises";
        import { Participant } from "@dag-acfl/client";
        import { folder } from "@dag-acfl/client/folder";
        import { linear } from "./linear.mjs";
        const { x, y } = JSON.parse(await readFile("data.json", "utf8"));
        const participant = await Participant.open(process.argv[2], { trainer: linear(x, y), storage: await folder("kept") });
        await participant.run(4, { onStep: ({ after }) => console.log(after.loss) });
        """
    )
    with run_app(create_app(settings), settings) as live:
        losses = [float(line) for line in ran(f"node run.mjs {live.url}", installed).split()]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 4


def test_the_packages_readme_says_what_the_page_says(installed: Path) -> None:
    readme = installed / "node_modules" / "@dag-acfl" / "client" / "README.md"
    for language in ("bash", "js"):
        (said,) = code_blocks(readme, language)
        assert said in code_blocks(PAGE, language)
    for link in re.findall(r"\]\(([^)]+)\)", readme.read_text("utf-8")):
        assert (CLIENT / link).exists()


def test_a_program_in_typescript_sees_the_types(installed: Path) -> None:
    (installed / "typed.mts").write_text(
        """
        import { LedgerClient, Participant, type DagAcflError } from "@dag-acfl/client";
        import { folder } from "@dag-acfl/client/folder";
        import { mlp } from "@dag-acfl/client/mlp";
        const empty = { trainX: new Float32Array(), trainY: new Uint8Array() };
        const participant: Participant = await Participant.open("http://a", { trainer: mlp({ layers: [1, 2], ...empty }), storage: await folder("b") });
        await participant.run(1, { onStep: (step) => console.log(step.sequence.toFixed(), step.before?.accuracy.toFixed()) });
        const size: number = (await new LedgerClient("http://a").genesis()).layout.size;
        // @ts-expect-error: a number of steps is no text
        await participant.run("1");
        export const fault = (error: DagAcflError): string => `${error.code} ${size}`;
        """
    )
    shutil.copytree(CLIENT / "node_modules" / "@types", installed / "node_modules" / "@types")
    tsc = CLIENT / "node_modules" / ".bin" / "tsc"
    ran(f"{tsc} --noEmit --strict --target es2022 --module nodenext --skipLibCheck typed.mts", installed)
