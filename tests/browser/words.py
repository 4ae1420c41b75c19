"""What a newcomer stumbled over: addresses, names, numbers and refusals that the console's pages say, in Chromium."""

import re
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from fl_client import LedgerClient
from fl_core.wire import v1
from tests.browser.console import lying
from tests.browser.operate import OPERATOR, operating, said
from tests.browser.operate import ledger as operated
from tests.browser.pages import ledger, opened, page_of, taught

STILL_MS = 5000


def at_bar(page: Page, updates: int) -> None:
    """The bar on top, and the address, say that so many of twelve updates are shown."""
    expect(page.get_by_text(f"{updates} of 12 updates")).to_be_visible()
    address = re.compile(rf"[?&]at={updates}\b") if updates < 12 else re.compile(r"^((?!at=).)*$")
    expect(page).to_have_url(address, timeout=STILL_MS)


def test_a_link_that_was_cut_off_within_a_letter_shows_a_page_all_the_same(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        page.goto(f"{live.url}/ui/#/clients/key%3Aab%c")
        expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_the_bars_place_is_in_the_address_and_goes_back_and_forth_with_it(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path)
        opened(page, live, "", "Overview")
        at_bar(page, 12)
        page.get_by_label("Show the ledger as it was").fill("5")
        at_bar(page, 4)
        page.get_by_role("link", name="Updates", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Updates")
        at_bar(page, 4)
        page.get_by_role("button", name="Back to now").click()
        at_bar(page, 12)
        page.go_back()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        at_bar(page, 4)
        page.go_forward()
        expect(page.get_by_role("heading", level=1)).to_have_text("Updates")
        at_bar(page, 12)


def test_a_link_shows_the_ledger_as_it_was_and_one_beyond_its_end_as_it_is(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live:
        taught(live, tmp_path)
        for told, shown in ((4, 4), (0, 0), (99, 12)):
            with page_of(browser, live) as page:
                opened(page, live, f"clients?at={told}", "Clients")
                at_bar(page, shown)


def test_a_clients_id_may_be_shortened_where_only_one_begins_so(browser: Browser, tmp_path: Path) -> None:
    with operated(tmp_path) as live, page_of(browser, live) as page:
        ids = taught(live, tmp_path)
        with LedgerClient([live.url]) as reader:
            author = reader.transaction(ids[0]).author
        operating(page, live, "quarantine")
        field, see = page.get_by_label("Client or update"), page.get_by_role("button", name="See what it withholds")
        page.get_by_label("Why").fill("flips labels")
        for written, meant in ((author[:12], author), (ids[0][:16], f"update:{ids[0]}"), (author.upper(), author)):
            field.fill(written)
            see.click()
            said(page, "would be offered to nobody")
            page.get_by_role("button", name="Cancel").click()
            expect(field).to_have_value(meant)
        field.fill("key:")
        see.click()
        expect(page.get_by_role("alert")).to_contain_text("Ids are digits and the letters a to f")
        field.fill("key:" + "0" * 20)
        see.click()
        expect(page.get_by_role("alert")).to_have_text("Nothing in this ledger begins so.")
        headings = page.get_by_role("main").get_by_role("heading").all_inner_texts()
        assert headings == ["Operate", "Quarantine a client or an update", "Decided"]
        page.get_by_role("group", name="What is known").get_by_role("button", name=author[:12]).click()
        expect(field).to_have_value(author)
        assert OPERATOR not in page.url


def test_what_an_operator_types_stays_while_updates_come(browser: Browser, tmp_path: Path) -> None:
    with operated(tmp_path) as live, page_of(browser, live) as page:
        for part, label, typed in (
            ("quarantine", "Client or update", "key:"),
            ("tokens", "Days", "7"),
            ("pruning", "Keep", "3"),
        ):
            operating(page, live, part)
            field = page.get_by_label(label)
            field.fill(typed)
            taught(live, tmp_path, clients=1, steps=1)
            page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")  # drawn anew, as with each update
            page.wait_for_timeout(200)
            expect(field).to_have_value(typed)


def test_a_page_that_stayed_open_has_its_parts_in_the_order_of_one_that_is_opened_now(
    browser: Browser, tmp_path: Path
) -> None:
    with ledger(tmp_path) as live, ExitStack() as opening:
        (update,) = taught(live, tmp_path, clients=1, steps=1)
        with LedgerClient([live.url]) as reader:
            author = reader.transaction(update).author
        pages = {}
        for view in ("", "updates", "clusters", "training", "clients", f"clients/{author}", f"updates/{update}"):
            pages[view] = opening.enter_context(page_of(browser, live))
            opened(pages[view], live, view, "")
        taught(live, tmp_path, clients=3, steps=4)
        for page in pages.values():
            expect(page.get_by_text("13 of 13 updates")).to_be_visible()
        pages[""].wait_for_timeout(6000)  # until clients and clusters were asked for again
        stayed = {view: page.locator("main").evaluate(PARTS) for view, page in pages.items()}
        for view, page in pages.items():
            page.reload()
            expect(page.get_by_text("13 of 13 updates")).to_be_visible()
            page.wait_for_timeout(500)
            assert page.locator("main").evaluate(PARTS) == stayed[view], view


PARTS = "main => [...main.querySelectorAll('h1, h2, h3, caption, button, canvas')].map(each => each.textContent)"
PLACES = """async ([before, now]) => (await import("/ui/clustering.js")).placesOf(before, now)"""


def test_a_cluster_keeps_its_number_and_colour_while_it_keeps_most_of_its_clients(
    browser: Browser, tmp_path: Path
) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        opened(page, live, "", "Nobody has published yet")

        def places(before: str, now: str) -> list[int]:
            return page.evaluate(PLACES, [[[*each] for each in told.split()] for told in (before, now)])  # type: ignore[no-any-return]

        assert places("", "abc de") == [0, 1], "at first as the server names them"
        assert places("abc de", "defg abc") == [1, 0], "another one is the largest now"
        assert places("abc de", "de abx") == [1, 0], "who leaves takes no number along"
        assert places("abcd ef", "ab cd ef") == [0, 2, 1], "of two halves the first is it"
        assert places("abc de fg", "fg abc hi") == [2, 0, 1], "what is new takes the number that is free"
        assert places("abc de", "abcde") == [0], "one that takes another in stays itself"


def test_numbers_are_said_as_people_say_them_and_genesis_is_no_clients_update(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path, clients=1, steps=1)
        opened(page, live, "updates", "Updates")
        expect(page.get_by_text("1 update.")).to_be_visible()
        opened(page, live, "servers", "Servers")
        expect(page.get_by_text("1 of the 1 update that this page holds")).to_be_visible()
        with LedgerClient([live.url]) as reader:
            expect(page.get_by_text("dag-acfl ledger join")).to_contain_text(f"--ledger {reader.genesis().ledger}")
        opened(page, live, "", "Overview")
        for tile in ("1update1 in the last minute", "1client", "0alarms"):
            expect(page.get_by_role("listitem").filter(has_text=tile)).to_be_visible()


def test_a_figure_may_have_any_name(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path, clients=2, steps=2)
        page.route(f"**{v1.VIEW_UPDATES}?*", lying('"accuracy"', '"constructor"'))
        opened(page, live, "training?metric=constructor&beside=loss", "Training")
        expect(page.locator(".u-legend")).to_contain_text("constructor")
        expect(page.locator(".chart canvas")).to_be_visible()
