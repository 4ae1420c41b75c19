"""From whom a client learnt, and why: what somebody comes upon who looks for it."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.pages import ledger, page_of, taught


def test_a_clients_page_leads_to_why_it_learnt_from_these(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        ids = taught(live, tmp_path)
        page.goto(f"{live.url}/ui/#/updates/{ids[-1]}")
        page.get_by_role("main").get_by_role("link", name="key:").first.click()
        expect(page.get_by_role("heading", name="Whom it learnt from")).to_be_visible()
        page.get_by_text("Why from these, and not from others").get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Update {ids[-1][:8]}")
        expect(page.get_by_role("heading", name="Why these models?")).to_be_visible()


def test_the_box_beside_an_update_lies_within_the_graph(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path)
        page.goto(f"{live.url}/ui/#/updates")
        expect(page.get_by_text("12 updates.")).to_be_visible()
        drawing = page.locator(".drawing")
        frame = drawing.bounding_box()
        assert frame is not None
        tip, lowest = page.locator(".tip"), frame["y"] + frame["height"] - 38
        for left in range(16, int(frame["width"]) - 110, 6):
            page.mouse.move(frame["x"] + frame["width"] - left, lowest)
            if tip.count():
                break
        box = tip.bounding_box(timeout=10_000)
        assert box is not None
        assert frame["y"] <= box["y"]
        assert box["y"] + box["height"] <= frame["y"] + frame["height"]
