"""The console's views in Debian's Chromium, as a person sees them: ``make console``."""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Route, expect

from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.http.serve import bind
from ledger_server.settings import load_settings
from ledger_server.tokens import FILE, Scope, TokenFile, TokenRecord, new_token, token_digest
from tests.browser.pages import ledger, opened, page_of, taught
from tests.builders import ISSUER, make_genesis
from tests.live import client_of, run_app
from tests.serving import prepare

MARKUP = "<img src=x onerror=document.title='owned'>accuracy"
VIEWS = ("", "updates", "clusters", "training", "clients", "servers", "costs", "take-part", "operate")
HEADINGS = ("Overview", "Updates", "Clusters", "Training", "Clients", "Servers", "Costs", "Take part", "Operate")


def test_an_update_appears_while_the_page_is_open(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path, clients=2, steps=1)
        opened(page, live, "updates", "Updates")
        expect(page.get_by_text("2 updates.")).to_be_visible()
        (newest,) = taught(live, tmp_path / "late", clients=1, steps=1)
        expect(page.get_by_role("link", name=newest[:8])).to_be_visible(timeout=5000)
        expect(page.get_by_text("3 updates.")).to_be_visible()


def test_why_these_models_names_what_was_taken_and_signatures_are_checked_here(
    browser: Browser, tmp_path: Path
) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        ids = taught(live, tmp_path)
        opened(page, live, f"updates/{ids[-1]}", ids[-1][:8])
        expect(page.get_by_text("Why these models?")).to_be_visible()
        path = v1.path(v1.TRANSACTION_ATTACHMENT, transaction=ids[-1])
        with client_of(live.url) as client:
            evidence = client.get(path).json()
        taken = [each["update"] for each in evidence["candidates"] if each["selected"]]
        expect(page.locator("tr.taken")).to_have_count(len(taken))
        expect(page.locator("tr.taken").first).to_contain_text(taken[0][:8])
        for line in (
            "The id is that of the header's bytes",
            "receipt is signed by its key",
            "The client has signed it",
        ):
            expect(page.get_by_text(line)).to_be_visible()
        page.get_by_role("link", name="Show it in the graph").click()
        expect(page.get_by_text("Chosen:")).to_be_visible()
        with client_of(live.url) as client:
            parents = client.get(v1.VIEW_UPDATES).json()["parents"]
        past = {len(ids)}
        for arrival in range(len(ids), 0, -1):
            past.update(parents[arrival] if arrival in past else ())
        expect(page.get_by_text("Chosen:")).to_contain_text(f"descends from {len(past - {0, len(ids)})} of them and")


def test_a_link_leads_to_what_its_sender_saw(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        ids = taught(live, tmp_path)
        opened(page, live, f"updates?lane=cluster&x=depth&span=10&end=8&update={ids[3]}", "Updates")
        expect(page.get_by_label("A lane for each")).to_have_value("cluster")
        expect(page.get_by_label("Across")).to_have_value("depth")
        expect(page.get_by_role("button", name="Paused")).to_be_visible()
        expect(page.get_by_text("7 updates.")).to_be_visible()


def test_the_graph_is_gone_through_by_keys(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        ids = taught(live, tmp_path)
        opened(page, live, "updates", "Updates")
        expect(page.get_by_role("link", name=ids[-1][:8])).to_be_visible()
        page.get_by_role("application").focus()
        page.keyboard.press("p")
        expect(page.get_by_text("Chosen:")).to_contain_text(ids[-1][:8])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text(ids[-1][:8])


def test_time_travel_shows_all_views_as_it_was(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path)
        opened(page, live, "", "Overview")
        expect(page.get_by_text("12 of 12 updates")).to_be_visible()
        page.get_by_label("Show the ledger as it was").fill("5")
        expect(page.get_by_text("4 of 12 updates")).to_be_visible()
        page.get_by_role("link", name="Updates", exact=True).click()
        expect(page.get_by_text("4 updates.")).to_be_visible()
        page.get_by_role("button", name="Back to now").click()
        expect(page.get_by_text("12 updates.")).to_be_visible()


def lying(told: str, instead: str) -> Callable[[Route], None]:
    """Answers what the server does, but for this."""
    return lambda route: route.fulfill(
        content_type="application/json", body=route.fetch().text().replace(told, instead)
    )


def test_text_of_a_server_is_text(browser: Browser, tmp_path: Path) -> None:
    """A ledger's own name cannot be markup; a server that lies could say anything."""
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        ids = taught(live, tmp_path)
        page.route(f"**{v1.GENESIS}", lying('"name":"test"', f'"name":"{MARKUP}"'))
        page.route(f"**{v1.VIEW_UPDATES}?*", lying('"accuracy"', f'"{MARKUP}"'))
        for address, heading in (
            ("", "Overview"),
            ("training", "Training"),
            (f"updates/{ids[0]}", "Update"),
            ("servers", "Servers"),
        ):
            opened(page, live, address, heading)
            expect(page.locator("header strong")).to_have_text(MARKUP)
            assert page.locator("img").count() == 0
            assert page.title() != "owned"


def test_where_reading_asks_for_a_token_the_page_does_and_puts_it_into_no_address(
    browser: Browser, tmp_path: Path
) -> None:
    with ledger(tmp_path, auth={"required_for": ("reads",)}) as live:
        secret = new_token()
        record = TokenRecord(name="reader", scope=Scope.CLIENT, sha256=token_digest(secret), created_at_ms=0)
        TokenFile(tmp_path / "server" / FILE, now_ms=lambda: 0).add(record)
        asked: list[str] = []
        context = browser.new_context()
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{live.url}/ui/")
        expect(page.get_by_role("heading", level=1)).to_have_text("This server asks for a token")
        assert page.get_by_role("main").inner_text().count("dag-acfl tokens create") == 1
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Nobody has published yet")
        expect(page.get_by_text("--token-file NAME.token")).to_be_visible()
        expect(page.get_by_role("status").first).to_have_text("live")
        assert not [url for url in asked if secret in url]
        context.close()


def test_a_page_says_that_its_server_is_gone_and_goes_on_when_it_is_back(browser: Browser, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    settings = load_settings(data_dir=tmp_path / "server", database_url=url, drain_s=1)
    prepare(url, settings.data_dir, genesis=make_genesis())
    context = browser.new_context()
    page = context.new_page()
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        page.goto(f"{live.url}/ui/")
        expect(page.get_by_role("status").first).to_have_text("live")
        again = load_settings(data_dir=settings.data_dir, database_url=url, port=live.port)
    expect(page.get_by_role("status").first).to_contain_text("not connected")
    with run_app(create_app(again, key=ISSUER), again, listening=bind(again)):
        expect(page.get_by_role("status").first).to_have_text("live", timeout=30_000)
    context.close()


def test_it_fits_a_telephone(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live, width=360) as page:
        ids = taught(live, tmp_path)
        for view in (*VIEWS, f"updates/{ids[-1]}"):
            opened(page, live, view, "")
            expect(page.get_by_role("status").first).to_have_text("live")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, f"{view or 'overview'} is {wide} pixels wide"


def test_an_update_that_is_nowhere_is_said_to_be(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{live.url}/ui/#/updates/{'0' * 64}")
        expect(page.get_by_text("no transaction 0000")).to_be_visible()
        page.goto(f"{live.url}/ui/#/elsewhere")
        expect(page.get_by_role("heading", level=1)).to_have_text("There is no such view")
        context.close()


def test_a_table_is_sorted_by_a_column_up_down_and_as_it_was(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path)
        opened(page, live, "updates", "Updates")
        arrivals = page.locator("tbody td:first-child")
        expect(arrivals.first).to_have_text("12")
        heading = page.get_by_role("columnheader", name="learnt from")
        heading.get_by_role("button").click()
        expect(heading).to_have_attribute("aria-sort", "descending")
        counts = [int(each) for each in page.locator("tbody td:nth-child(5)").all_inner_texts()]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] > counts[-1]
        heading.get_by_role("button").click()
        expect(arrivals.first).to_have_text("0")
        heading.get_by_role("button").click()
        expect(arrivals.first).to_have_text("12")


def test_a_clients_name_in_the_graph_and_its_row_in_the_matrix_lead_to_it(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path)
        opened(page, live, "updates", "Updates")
        expect(page.get_by_text("12 updates.")).to_be_visible()
        page.get_by_role("application").click(position={"x": 40, "y": 14 + 22 * 1.5})  # genesis has the first lane
        expect(page.get_by_role("heading", level=1)).to_contain_text("Client key:")
        opened(page, live, "clusters", "Clusters")
        page.get_by_label("Who learns from whom; the table").click(position={"x": 40, "y": 5})
        expect(page.get_by_role("heading", level=1)).to_contain_text("Client key:")
        expect(page.get_by_text("began with an average that others' models were part of")).to_be_visible()
