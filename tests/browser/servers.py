"""The console's views of servers, clients and costs, in Chromium."""

import json
from collections import Counter
from pathlib import Path

from playwright.sync_api import Browser, Route, expect

from fl_core.wire import v1
from tests.browser.pages import ledger, opened, page_of, taught
from tests.builders import model
from tests.live import client_of, eventually
from tests.network import Node, network, settle

TAKEN = 8  # its column
MARKUP = "<img src=x onerror=document.title='owned'>"


def others(node: Node) -> list[int | None]:
    return [each["transactions"] for each in node.get(v1.VIEW_SERVERS).json()["servers"]]


def test_who_is_in_touch_with_whom_and_who_lacks_what(browser: Browser, tmp_path: Path) -> None:
    with network(tmp_path, 3) as servers:
        servers[0].publish(parents=[servers[0].ledger_id], model=model(1))
        settle(servers)
        assert servers[0].live is not None
        with page_of(browser, servers[0].live) as page:
            opened(page, servers[0].live, "servers", "Servers")
            expect(page.get_by_text("All have 1 update.")).to_be_visible()
            expect(page.locator("svg.topology line.up")).to_have_count(3)
            page.get_by_label("As seen by").select_option(label="server-2")
            expect(page.get_by_role("cell", name="server-0", exact=True)).to_be_visible()
            assert "through=" in page.url
            servers[2].stop()
            servers[0].publish(parents=[servers[0].ledger_id], model=model(2))
            eventually(lambda: others(servers[0]) == [3, 3, None])
            expect(page.get_by_text("server-2 does not answer")).to_be_visible(timeout=30_000)
            expect(page.get_by_text("See whether it runs there (dag-acfl serve)")).to_contain_text(servers[2].url)
            expect(page.locator("svg.topology circle.down")).to_have_count(1)


def test_what_a_peer_calls_itself_is_text(browser: Browser, tmp_path: Path) -> None:
    went_wrong = {
        "is_reachable": True,
        "troubles": ["connection refused"],
        "incidents": {"differs": 1, MARKUP: 2},
    }

    def lie(route: Route) -> None:
        seen = route.fetch().json()
        for server in seen["servers"]:
            for peer in server["peers"]:
                peer.update(went_wrong)
        body = json.dumps(seen).replace('"server-1"', json.dumps(MARKUP))
        route.fulfill(content_type="application/json", body=body)

    with network(tmp_path, 2) as servers:
        assert servers[0].live is not None
        with page_of(browser, servers[0].live) as page:
            page.route(f"**{v1.VIEW_SERVERS}", lie)
            opened(page, servers[0].live, "servers", "Servers")
            expect(page.get_by_role("cell", name=MARKUP, exact=True).first).to_be_visible()
            wrong = page.get_by_role("row").filter(has_text=MARKUP).last.get_by_role("cell").last
            expect(wrong).to_contain_text("lately: connection refused; did not hold the same when both were compared")
            expect(wrong).to_contain_text(f"1 time: what is missing is fetched by itself; {MARKUP}, 2 times")
            assert page.locator("main img").count() == 0
            assert page.title() != "owned"


def test_clients_are_shown_with_what_others_made_of_their_models(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path)
        with client_of(live.url) as client:
            seen = client.get(v1.VIEW_UPDATES).json()
        taken = Counter(
            seen["authors"][seen["author"][parent]]
            for author, parents in zip(seen["author"], seen["parents"], strict=True)
            for parent in parents
            if parent and seen["author"][parent] != author
        )
        assert sum(taken.values()) > 0
        opened(page, live, "clients", "Clients")
        for author in seen["authors"][1:]:
            row = page.get_by_role("row").filter(has_text=author[:12])
            expect(row.get_by_role("cell").nth(TAKEN)).to_have_text(str(taken[author]))


def test_costs_are_shown_by_kind_by_client_and_by_server(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path, clients=2, steps=2)
        opened(page, live, "costs", "Costs")
        for caption in ("By kind", "By client", "By server"):
            expect(page.get_by_role("heading", name=caption)).to_be_visible()
        expect(page.get_by_role("row", name="publications", exact=False)).to_be_visible()
