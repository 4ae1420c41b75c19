"""Ledgers that a browser looks at, and the pages that show them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from fl_client import LedgerClient, Participant, ParticipantState
from fl_core.dag.building import build_update
from fl_core.dag.figures import Figures, Step
from fl_core.types import TxId
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from ledger_server.store.appending import Entry
from ledger_server.store.stored import StoredTransaction
from tests.builders import CREATED_AT_MS, ISSUER, author_of, key_from_seed, make_genesis
from tests.live import Live, run_app
from tests.serving import prepare
from tests.tiny_trainer import TinyTrainer


class Served(Protocol):
    """What answers at an address."""

    url: str


@contextmanager
def ledger(folder: Path, *, name: str = "test", **settings: object) -> Iterator[Live]:
    """A server with a new ledger, in this process."""
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    found = load_settings(data_dir=folder / "server", database_url=url, **settings)
    prepare(url, found.data_dir, genesis=make_genesis(name=name, selector_params={"k": 2}))
    with run_app(create_app(found, key=ISSUER), found) as live:
        yield live


def taught(live: Live, folder: Path, *, clients: int = 4, steps: int = 3) -> list[str]:
    """Clients of two kinds take part in turn; their updates' ids, in order of arrival."""
    ids: list[str] = []
    for _ in range(steps):
        for number in range(clients):
            with (
                ParticipantState(folder / f"site-{number}") as state,
                LedgerClient([live.url], key=state.key) as client,
            ):
                report = Participant(client, TinyTrainer(target=2.0 if number % 2 else -2.0), state).step()
                ids.append(report.transaction)
    return ids


def filled(url: str, folder: Path, *, updates: int, authors: int = 20) -> list[TxId]:
    """Write updates into a new ledger's journal, a minute apart, each upon its author's newest and another's; their ids."""
    keys = [key_from_seed(100 + number) for number in range(authors)]
    ids, entries = list[TxId](), list[Entry]()
    with open_store(url, data_dir=folder) as store:
        held = store.genesis()
        assert held is not None
        newest, genesis = [held[0].id] * authors, held[0]
        for place in range(1, updates + 1):
            number = place % authors
            parents = tuple(sorted({newest[number], newest[number - 1]}))
            unsigned = build_update(
                ledger=genesis.id,
                author=author_of(keys[number]),
                sequence=(place - 1) // authors,
                created_at_ms=CREATED_AT_MS,
                num_examples=100,
                start=genesis.header.model_digest,
                model_digest=genesis.header.model_digest,
                model_size=genesis.header.model_size,
                parents=parents,
                metrics={"accuracy": place / updates},
            )
            at_ms = CREATED_AT_MS + 60_000 * place
            sealed = unsigned.issue(
                ISSUER, author_signature=unsigned.sign_as_author(keys[number]), received_at_ms=at_ms
            )
            newest[number] = sealed.id
            ids.append(sealed.id)
            figures = Figures(1.0, Step(1.0, (1.0,)), (1 / len(parents),) * len(parents)).encode()
            entries.append(Entry(StoredTransaction(place, sealed, figures, at_ms), None, None))
            if len(entries) == 500 or place == updates:
                assert store.append_all(entries)
                entries = []
    return ids


def faults(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds of this page that is serious."""
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in Axe().run(page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@contextmanager
def page_of(browser: Browser, live: Served, *, scheme: str = "light", width: int = 1280) -> Iterator[Page]:
    """A page that must neither err nor ask anybody else."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    page, wrong = context.new_page(), list[str]()
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: wrong.append(request.url) if not request.url.startswith((live.url, "blob:", "data:")) else None,
    )
    try:
        yield page
    finally:
        page.unroute_all(behavior="ignoreErrors")  # a question may be on its way yet, whose answer a test would change
        context.close()
    assert wrong == []


def opened(page: Page, live: Served, address: str, heading: str) -> None:
    page.goto(f"{live.url}/ui/#/{address}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
