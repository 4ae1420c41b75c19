"""Every view in every state: no ledger's size, no scheme and no change of ledger brings an error or shuts anybody out."""

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fl_client import LedgerClient
from tests.browser.console import HEADINGS, VIEWS
from tests.browser.pages import faults, filled, opened, page_of, taught
from tests.browser.staying import BACK_MS, is_said, kept
from tests.live import Live, free_ports

SCHEMES = ("light", "dark")


def addresses(live: Live) -> list[tuple[str, str]]:
    """Each view with its heading, and of an update and of a client the page of the newest."""
    with LedgerClient([live.url]) as client:
        clients = [each for each in client.clients().items if each.depth]
    if not clients:
        return [(view, "") for view in VIEWS]
    newest = max(clients, key=lambda each: each.depth)
    views = list(zip(VIEWS, HEADINGS, strict=True))
    return [*views, (f"updates/{newest.newest}", "Update"), (f"clients/{newest.author}", "Client")]


def visit(page: Page, live: Live, pages: Iterable[tuple[str, str]]) -> list[tuple[str, object]]:
    """Go to each without loading the page anew; what axe finds."""
    found: list[tuple[str, object]] = []
    for address, heading in pages:
        opened(page, live, address, heading)
        is_said(page, "live")
        found += [(address, each) for each in faults(page)]
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("updates", [0, 1, 300])
def test_each_view_of_a_ledger_of_any_size(browser: Browser, tmp_path: Path, updates: int, scheme: str) -> None:
    all_views(browser, tmp_path, updates, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_view_of_a_ledger_whose_clients_have_selected(browser: Browser, tmp_path: Path, scheme: str) -> None:
    (port,) = free_ports(1)
    with kept(tmp_path / "a", port) as live:
        taught(live, tmp_path)
        with page_of(browser, live, scheme=scheme) as page:
            assert visit(page, live, addresses(live)) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_view_of_two_ledgers_that_take_turns_at_an_address(browser: Browser, tmp_path: Path, scheme: str) -> None:
    (port,) = free_ports(1)
    for name, updates in (("first", 40), ("second", 25)):
        with kept(tmp_path / name, port, name=name):
            pass
        filled(f"sqlite:///{tmp_path / name / 'ledger.sqlite3'}", tmp_path / name / "server", updates=updates)
    wrong: list[str] = []
    with ExitStack() as held:
        context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
        held.callback(context.close)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        for name in ("first", "second", "first"):
            with kept(tmp_path / name, port, name=name) as live:
                if name == "first" and page.url == "about:blank":
                    page.goto(f"{live.url}/ui/")
                expect(page.locator("header strong")).to_have_text(name, timeout=BACK_MS)
                is_said(page, "live")
                wrong.clear()  # a browser calls it an error that a server is away
                assert visit(page, live, addresses(live)) == []
                expect(page.get_by_text(re.compile(f"of {40 if name == 'first' else 25} updates"))).to_be_visible()
                assert wrong == []
            is_said(page, re.compile("not connected"))


def all_views(browser: Browser, folder: Path, updates: int, scheme: str) -> None:
    """No error, no request to elsewhere, and nothing serious for axe."""
    (port,) = free_ports(1)
    with kept(folder / "a", port):
        pass
    filled(f"sqlite:///{folder / 'a' / 'ledger.sqlite3'}", folder / "a" / "server", updates=updates)
    with kept(folder / "a", port) as live, page_of(browser, live, scheme=scheme) as page:
        assert visit(page, live, addresses(live)) == []
