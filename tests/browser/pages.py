"""Ledgers that a browser looks at, and the pages that show them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from playwright.sync_api import Browser, Page, expect

from fl_client import LedgerClient, Participant, ParticipantState
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.builders import ISSUER, make_genesis
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
    yield page
    context.close()
    assert wrong == []


def opened(page: Page, live: Served, address: str, heading: str) -> None:
    page.goto(f"{live.url}/ui/#/{address}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
