"""The console on a ledger of 10,000 updates, and while many come: what is drawn, found, sent and held; nothing is timed."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from fl_client import LedgerReader
from fl_core.node import Publication
from fl_core.types import TxId
from ledger_server.app import create_app
from ledger_server.publishing import LedgerService
from ledger_server.settings import load_settings
from tests.browser.pages import filled, opened, page_of
from tests.builders import ISSUER, author_of, key_from_seed, make_genesis, model, new_secret
from tests.live import Live, eventually, run_app
from tests.serving import prepare

AUTHORS, UPDATES = 40, 10_000


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, list[TxId]]]:
    """A server of such a ledger, and the ids in order of arrival."""
    folder = tmp_path_factory.mktemp("old")
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    settings = load_settings(data_dir=folder / "server", database_url=url)
    genesis = prepare(url, settings.data_dir, genesis=make_genesis())
    ids = [genesis, *filled(url, settings.data_dir, updates=UPDATES, authors=AUTHORS)]
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        yield live, ids


@pytest.fixture
def young(tmp_path: Path) -> Iterator[tuple[Live, LedgerService]]:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    settings = load_settings(data_dir=tmp_path / "server", database_url=url)
    prepare(url, settings.data_dir, genesis=make_genesis())
    app = create_app(settings, key=ISSUER)
    with run_app(app, settings) as live:
        yield live, app.state.service


def painted(page: Page) -> int:
    """How many of the graph's pixels have a colour: dots, lines, names."""
    return int(
        page.evaluate(
            """() => {
              const canvas = document.querySelector("canvas");
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              let found = 0;
              for (let place = 3; place < data.length; place += 4) found += data[place] > 0;
              return found;
            }"""
        )
    )


def test_the_newest_of_many_are_drawn_and_less_than_a_megabyte_is_sent(
    browser: Browser, old: tuple[Live, list[TxId]]
) -> None:
    live, ids = old
    with page_of(browser, live) as page:
        session, received = page.context.new_cdp_session(page), list[float]()
        session.send("Network.enable")
        session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
        opened(page, live, "updates", "Updates")
        expect(page.get_by_text("300 updates.")).to_be_visible()
        expect(page.get_by_role("link", name=ids[-1][:8])).to_be_visible()
        expect(page.get_by_role("status").first).to_have_text("live")
        eventually_painted(page, 10_000)
        assert 50_000 < sum(received) < 1_000_000


def eventually_painted(page: Page, pixels: int) -> None:
    eventually(lambda: painted(page) > pixels)


def test_all_of_many_are_drawn_as_a_density_and_a_click_leads_closer(
    browser: Browser, old: tuple[Live, list[TxId]]
) -> None:
    live, _ = old
    with page_of(browser, live) as page:
        opened(page, live, "updates", "Updates")
        page.get_by_role("button", name="All").click()
        expect(page.get_by_text("10,000 updates, in")).to_be_visible()
        eventually_painted(page, 100_000)
        expect(page.get_by_role("cell", name="250", exact=True)).to_have_count(AUTHORS)
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as CSV").click()
        head, *rows = (line.split(",") for line in saved.value.path().read_text().split())
        assert {len(row) for row in rows} == {len(head)}
        assert sum(int(number) for row in rows for number in row[3:]) == UPDATES + 1
        with LedgerReader(live.url) as reader:
            clusters = len(reader.clusters().clusters)
        for lane, rows in (("server", 1), ("cluster", clusters + 1)):
            page.get_by_label("A lane for each").select_option(lane)
            expect(page.locator("tbody tr")).to_have_count(rows)
        page.get_by_label("A lane for each").select_option("client")
        for axis in ("time", "depth", "order"):
            page.get_by_label("Across").select_option(axis)
            expect(page.get_by_text("10,000 updates, in")).to_be_visible()
        page.get_by_role("application").click(position={"x": 600, "y": 200})
        expect(page.get_by_text("2,500 updates.")).to_be_visible()
        assert "span=2500" in page.url


def test_filters_reach_all_of_the_ledger_and_stand_in_the_address(
    browser: Browser, old: tuple[Live, list[TxId]]
) -> None:
    live, ids = old
    author = author_of(key_from_seed(105))
    with LedgerReader(live.url) as reader:
        assert reader.transaction(ids[5]).author == author
    with page_of(browser, live) as page:
        opened(page, live, "updates", "Updates")
        page.get_by_text("Only some updates").click()
        page.get_by_label("of client").fill(author.partition(":")[2][:12])
        page.get_by_label("of client").press("Enter")
        expect(page.get_by_text("250 updates of 10,000.")).to_be_visible()
        expect(page.get_by_role("link", name=ids[9_965][:8])).to_be_visible()
        page.get_by_label("to (UTC)").fill("2023-11-15T00:00")
        page.get_by_label("tips only").check()
        address = page.url
        assert "author=" in address
        assert "until=2023-11-15T00" in address
        assert "tips=1" in address
        page.get_by_role("button", name="Clear").click()
        expect(page.get_by_text("300 updates.")).to_be_visible()
        opened(page, live, "updates?tips=1", "Updates")
        expect(page.get_by_text("1 update of 10,000.")).to_be_visible()
        opened(page, live, f"updates?author={author}&since=2100-01-01T00%3A00", "Updates")
        expect(page.get_by_text("0 updates of 10,000.")).to_be_visible()
        opened(page, live, "updates?tainted=1", "Updates")
        expect(page.get_by_text("0 updates of 10,000.")).to_be_visible()


def test_of_many_updates_a_curve_shows_some_and_says_how_many(browser: Browser, old: tuple[Live, list[TxId]]) -> None:
    live, _ = old
    with page_of(browser, live) as page:
        opened(page, live, "training", "Training")
        expect(page.get_by_text("One update in 21 is shown.")).to_be_visible()  # 500 of 10,001 at most


def test_what_cannot_be_asked_for_is_said_to_be(browser: Browser, old: tuple[Live, list[TxId]]) -> None:
    live, _ = old
    context = browser.new_context()
    page = context.new_page()
    opened(page, live, "updates?author=nobody", "Updates")
    expect(page.get_by_role("alert")).to_contain_text("author")
    context.close()


def test_an_update_that_the_page_does_not_hold_is_found_by_its_beginning(
    browser: Browser, old: tuple[Live, list[TxId]]
) -> None:
    live, ids = old
    with page_of(browser, live) as page:
        opened(page, live, "updates", "Updates")
        field = page.get_by_role("textbox", name="Beginning of an update")
        field.fill(ids[17][:12].upper())
        field.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text(ids[17][:8])
        field.fill(ids[17][:1])
        field.press("Enter")
        authors = {author_of(key_from_seed(100 + number)) for number in range(AUTHORS)}
        lines = 20 + sum(author.partition(":")[2][0] == ids[17][0] for author in authors) + 1
        expect(page.get_by_role("list", name="What begins so").get_by_role("listitem")).to_have_count(lines)
        field.press("Escape")
        expect(page.get_by_role("list", name="What begins so")).to_have_count(0)
        for text, said in (("zz", "letters a to f"), ("0" * 40, "nothing in this ledger")):
            field.fill(text)
            field.press("Enter")
            expect(page.get_by_role("alert")).to_contain_text(said)


def publish(service: LedgerService, count: int, *, pause_s: float = 0.0) -> None:
    """As many updates, by 20 authors in turn."""
    secrets = [new_secret() for _ in range(20)]
    for place in range(count):
        publication = Publication(num_examples=1, parents=(service.id,), secret=secrets[place % 20])
        service.publish(publication, model(1 + place, 1))
        time.sleep(pause_s)


def test_two_hundred_updates_within_seconds_all_appear_in_order_and_once(
    browser: Browser, young: tuple[Live, LedgerService]
) -> None:
    live, service = young
    with page_of(browser, live) as page:
        publish(service, 1)
        opened(page, live, "updates", "Updates")
        expect(page.get_by_text("1 update.")).to_be_visible()
        publisher = threading.Thread(target=publish, args=(service, 200), kwargs={"pause_s": 0.02})
        publisher.start()
        publisher.join()
        expect(page.get_by_text("201 updates.")).to_be_visible(timeout=10_000)
        arrivals = page.locator("tbody tr td:first-child").all_inner_texts()
        assert arrivals == [str(201 - row) for row in range(50)]


def heap_bytes(session: CDPSession) -> float:
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


def test_a_page_holds_no_more_however_many_updates_come(browser: Browser, old: tuple[Live, list[TxId]]) -> None:
    """Of its ledger, counted in the page itself: a heap alone says little within seconds."""
    live, _ = old
    with page_of(browser, live) as page:
        opened(page, live, "updates", "Updates")
        held = page.evaluate(
            """async () => {
              const { Ledger } = await import("./ledger.js");
              const ledger = new Ledger();
              ledger.source = { ledger: "a" };
              const counts = [];
              for (let round = 0; round < 45; round += 1) {
                const arrivals = Array.from({ length: 1000 }, (_, place) => round * 1000 + place);
                ledger.heard({
                  ledger: "a", transactions: arrivals.at(-1) + 1, every: 1, arrivals, ids: arrivals.map(String), authors: ["key:a"], author: arrivals.map(() => 0),
                  servers: ["s"], server: arrivals.map(() => 0), parents: arrivals.map((each) => (each ? [each - 1, -1] : [])), depth: arrivals,
                  received_at_ms: arrivals, num_examples: arrivals, step: arrivals, metrics: {},
                });
                counts.push([ledger.updates.size, ledger.arrivals.size, ledger.children.size]);
              }
              return counts;
            }"""
        )
        full, last = held[21], held[-1]
        assert all(count <= 21_000 for count in full)
        assert last == full, "after 22,000 and after 45,000"
