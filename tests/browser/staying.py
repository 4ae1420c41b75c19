"""A page that stays open: through restarts, cuts and sleep, beside other tabs, and while its server becomes another."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest
from playwright.sync_api import Browser, Page, expect

from fl_core.types import Digest
from ledger_server.api import console
from ledger_server.app import create_app
from ledger_server.http.serve import bind
from ledger_server.settings import Settings, load_settings
from tests.browser.pages import ledger, taught
from tests.builders import ISSUER, make_genesis
from tests.live import Live, free_ports, run_app
from tests.serving import prepare

BACK_MS = 60_000
SILENT_FOR_AN_HOUR = "01:00:00"


@contextmanager
def kept(folder: Path, port: int, *, name: str = "test") -> Iterator[Live]:
    """A server at this port with the ledger in this folder, which is founded where there is none yet."""
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    settings: Settings = load_settings(data_dir=folder / "server", database_url=url, drain_s=1, port=port)
    if not (folder / "ledger.sqlite3").exists():
        folder.mkdir(exist_ok=True)
        prepare(url, settings.data_dir, genesis=make_genesis(name=name, selector_params={"k": 2}))
    with run_app(create_app(settings, key=ISSUER), settings, listening=bind(settings)) as live:
        yield live


@contextmanager
def open_page(browser: Browser, url: str, *, at: str = "updates") -> Iterator[Page]:
    """A page whose errors are the network's: what is seen of them is what the tests are about."""
    context = browser.new_context()
    page = context.new_page()
    broken: list[str] = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.goto(f"{url}/ui/#/{at}")
    yield page
    context.close()
    assert broken == []


def is_said(page: Page, words: str | re.Pattern[str]) -> None:
    expect(page.get_by_role("status").first).to_have_text(words, timeout=BACK_MS)


def rows(page: Page) -> list[str]:
    """The updates in the table, newest first, by the beginning of their ids."""
    return page.locator("table tbody tr td:nth-child(2)").all_inner_texts()


def holds_each_once(page: Page, ids: list[str]) -> None:
    """Genesis and these, in this order."""
    expect(page.get_by_text(f"{len(ids)} of {len(ids)} updates")).to_be_visible(timeout=BACK_MS)
    expect(page.get_by_text(f"{len(ids)} updates.")).to_be_visible()
    assert rows(page)[:-1] == [each[:8] for each in reversed(ids)]


def test_while_its_server_is_away_it_says_so_and_then_has_what_came_each_once(browser: Browser, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with ExitStack() as opened:
        with kept(tmp_path / "a", port) as live:
            ids = taught(live, tmp_path, clients=2, steps=1)
            page = opened.enter_context(open_page(browser, live.url))
            is_said(page, "live")
            holds_each_once(page, ids)
        is_said(page, re.compile("not connected, last heard"))
        with kept(tmp_path / "a", port) as live:
            ids += taught(live, tmp_path, clients=2, steps=1)
            is_said(page, "live")
            holds_each_once(page, ids)
            ids += taught(live, tmp_path, clients=2, steps=1)
            holds_each_once(page, ids)


def test_a_network_that_is_cut_and_mended_costs_no_update(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, Wire(live.port) as wire, open_page(browser, wire.url) as page:
        ids = taught(live, tmp_path, clients=2, steps=1)
        is_said(page, "live")
        page.context.set_offline(True)
        wire.cut()
        is_said(page, re.compile("not connected"))
        ids += taught(live, tmp_path, clients=2, steps=1)
        page.context.set_offline(False)
        is_said(page, "live")
        holds_each_once(page, ids)


def test_after_an_hours_sleep_a_stream_that_died_without_a_word_is_replaced(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, Wire(live.port) as wire, open_page(browser, "about:blank", at="") as page:
        page.clock.install()
        page.goto(f"{wire.url}/ui/#/updates")
        is_said(page, "live")
        wire.freeze()
        ids = taught(live, tmp_path, clients=2, steps=2)
        expect(page.get_by_text("0 updates.")).to_be_visible()
        page.clock.fast_forward(SILENT_FOR_AN_HOUR)
        page.clock.run_for(5_000)
        is_said(page, "live")
        page.clock.resume()
        holds_each_once(page, ids)


def test_where_another_ledger_is_served_now_it_begins_anew(browser: Browser, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with ExitStack() as opened:
        with kept(tmp_path / "a", port, name="first") as live:
            taught(live, tmp_path / "a", clients=4, steps=2)
            page = opened.enter_context(open_page(browser, live.url))
            expect(page.locator("header strong")).to_have_text("first")
            page.get_by_label("Show the ledger as it was").fill("5")
            expect(page.get_by_text("4 of 8 updates")).to_be_visible()
        is_said(page, re.compile("not connected"))
        with kept(tmp_path / "b", port, name="second") as live:
            ids = taught(live, tmp_path / "b", clients=2, steps=1)
            expect(page.locator("header strong")).to_have_text("second", timeout=BACK_MS)
            is_said(page, "live")
            holds_each_once(page, ids)


def test_where_the_server_has_another_page_now_it_offers_to_load_it(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    with ExitStack() as opened:
        with kept(tmp_path / "a", port) as live:
            page = opened.enter_context(open_page(browser, live.url))
            is_said(page, "live")
        monkeypatch.setattr(console, "page_digest", lambda: Digest("1" * 64))
        with kept(tmp_path / "a", port):
            button = page.get_by_role("alert").get_by_role("button", name="Load it")
            button.click(timeout=BACK_MS)
            is_said(page, "live")
            expect(button).to_have_count(0)


def test_tabs_that_nobody_looks_at_leave_the_server_to_those_that_are_seen(browser: Browser, tmp_path: Path) -> None:
    """A browser has six connections to a server; each of nine tabs shows what comes all the same."""
    with ledger(tmp_path) as live, open_page(browser, live.url) as first:
        is_said(first, "live")
        for _ in range(8):
            page = first.context.new_page()
            page.clock.install()
            page.goto(f"{live.url}/ui/#/updates")
            is_said(page, "live")
            page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            page.clock.fast_forward(20_000)
        ids = taught(live, tmp_path, clients=2, steps=1)
        holds_each_once(first, ids)
        page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        is_said(page, "live")
        page.clock.resume()
        holds_each_once(page, ids)


class Wire:
    """Carries bytes between a browser and a server, until it is cut or holds them back without a word."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._frozen: set[socket.socket] = set()
        self._streams: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """Close every connection."""
        for each in [*self._ends]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def freeze(self) -> None:
        """Connections with a stream of events carry nothing more, and do not end either."""
        self._frozen |= self._streams

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if b"/events HTTP/" in data:
                    self._streams |= {source, target}
                if source not in self._frozen:
                    target.sendall(data)
        if source not in self._frozen:
            for each in (source, target):
                with suppress(OSError):
                    each.close()
