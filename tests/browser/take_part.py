"""A page that takes part: it trains the demo's model in Chromium and publishes, beside the demo's own clients."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from dag_acfl.commands.ledger.init import first_model_of, rules_of
from dag_acfl.sources import open_source
from dag_acfl.trial.demo_client import sites, trainer
from fl_client import LedgerClient, Participant, ParticipantState
from fl_core.verify import verify
from fl_simulator.data.digits import load_digits
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from ledger_server.tokens import FILE, Scope, TokenFile, TokenRecord, new_token, token_digest
from tests.browser.pages import ledger, opened, page_of, taught
from tests.builders import ISSUER
from tests.live import Live, run_app
from tests.serving import prepare

CONSOLE = Path(__file__).parents[2] / "ledger_server" / "console"
UPRIGHT, TURNED = (0, 4, 8), (1, 5)
"""Sites of the demo: every fourth one's digits hang alike."""
SEVEN = [(0.3, 0.2), (0.7, 0.2), (0.45, 0.8)]


@contextmanager
def demo(folder: Path, **settings: object) -> Iterator[Live]:
    """A server with a ledger that has the demo's model and rules."""
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    found = load_settings(data_dir=folder / "server", database_url=url, **settings)
    first = first_model_of(trainer())
    prepare(url, found.data_dir, genesis=rules_of({"name": "digits"}, first), first=first.encoded)
    with run_app(create_app(found, key=ISSUER), found) as live:
        yield live


def learnt(live: Live, folder: Path, *, numbers: Sequence[int] = UPRIGHT + TURNED, steps: int = 3) -> dict[str, int]:
    """Sites of the demo take part; which author is which site."""
    authors = {}
    for _ in range(steps):
        for number in numbers:
            with (
                ParticipantState(folder / f"site-{number}") as state,
                LedgerClient([live.url], key=state.key) as client,
            ):
                Participant(client, trainer(site=number), state).step()
                authors[state.author] = number
    return authors


def trained(page: Page, *, updates: int) -> None:
    """Press the button, and wait for so many rows of the own updates in all."""
    page.get_by_role("button", name="Train and publish once").click()
    expect(page.locator("tbody tr").filter(has_text="UTC")).to_have_count(updates, timeout=120_000)
    expect(page.get_by_text("waiting for you")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def drawn(page: Page, points: Sequence[tuple[float, float]]) -> None:
    """Draw a line through these points, parts of the pad from its left and top."""
    page.get_by_role("application").scroll_into_view_if_needed()
    pad = page.get_by_role("application").bounding_box()
    assert pad is not None
    places = [(pad["x"] + x * pad["width"], pad["y"] + y * pad["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=8)
    page.mouse.up()


def test_a_page_trains_and_its_update_is_one_of_the_ledger(browser: Browser, tmp_path: Path) -> None:
    with demo(tmp_path) as live, page_of(browser, live) as page:
        authors = learnt(live, tmp_path)
        page.add_init_script("Math.random = () => 0.4")  # the same digits, in the same order
        opened(page, live, "take-part", "Take part")
        trained(page, updates=1)
        chosen = int(page.locator(".tile b").nth(2).inner_text())
        expect(page.get_by_text("Few of the others' models resemble yours yet")).to_have_count(int(chosen < 2))
        trained(page, updates=2)
        author = page.get_by_text("You are").get_by_role("link").first.get_attribute("title")
        with LedgerClient([live.url]) as reader:
            mine = [each for each in reader.transactions(limit=1000).items if each.author == author]
            taken = {each for update in mine for each in update.parents} - {reader.ledger_id()}
            parents = {reader.transaction(each).author for each in taken} - {author}
        assert [(each.sequence, each.num_examples) for each in mine] == [(0, 25), (1, 25)]
        assert {authors[each] for each in parents} <= set(UPRIGHT), "whose digits hang as the page's do"
        assert parents
        assert mine[1].metrics["accuracy"] > 0.5, "a tenth would be guessing"
        with open_source(live.url) as found:
            assert [each for each in verify(found) if not each.kind.is_warning] == []


def test_what_is_drawn_is_read_and_then_trained_on(browser: Browser, tmp_path: Path) -> None:
    with demo(tmp_path) as live, page_of(browser, live) as page:
        learnt(live, tmp_path, numbers=UPRIGHT)
        opened(page, live, "take-part", "Take part")
        trained(page, updates=1)
        drawn(page, SEVEN)
        said = page.locator("table.read tr.taken th").inner_text()
        sure = page.locator("table.read tbody tr").evaluate_all(
            "rows => rows.map(row => row.querySelectorAll('meter')[1].value)"
        )
        assert sum(sure) == pytest.approx(1)
        assert max(sure) == sure[int(said)]
        page.get_by_role("application").press("7")
        expect(page.get_by_text(f"{int(said == '7')} of 1", exact=True)).to_be_visible()
        expect(page.get_by_text("What it trains on: 26 digits")).to_be_visible()
        trained(page, updates=2)
        with LedgerClient([live.url]) as reader:
            newest = reader.transactions(limit=1000).items[-1]
        assert newest.num_examples == 26
        page.get_by_role("button", name="Take out this 7").click()
        expect(page.get_by_text("What it trains on: 25 digits")).to_be_visible()


def test_who_comes_back_is_the_same_client_until_it_leaves(browser: Browser, tmp_path: Path) -> None:
    with demo(tmp_path) as live, page_of(browser, live) as page:
        opened(page, live, "take-part?camera=90", "Take part")
        expect(page.get_by_label("Your camera hangs")).to_have_value("90")
        trained(page, updates=1)
        me = page.get_by_text("You are")
        author = me.get_by_role("link").first.get_attribute("title")
        opened(page, live, "", "Overview")
        page.reload()
        opened(page, live, "take-part", "Take part")
        expect(me.get_by_role("link").first).to_have_attribute("title", str(author))
        expect(page.get_by_label("Your camera hangs")).to_have_value("90")
        trained(page, updates=1)
        with LedgerClient([live.url]) as reader:
            (client,) = [each for each in reader.clients().items if each.author == author]
            assert client.sequence == 1
        page.get_by_role("button", name="Leave").click()
        page.get_by_role("button", name="Delete them").click()
        expect(page.get_by_text("not a client yet")).to_be_visible()
        trained(page, updates=1)
        assert me.get_by_role("link").first.get_attribute("title") != author


def test_it_goes_on_by_itself_while_other_views_are_shown_and_until_it_is_stopped(
    browser: Browser, tmp_path: Path
) -> None:
    with demo(tmp_path) as live, page_of(browser, live) as page:
        opened(page, live, "take-part", "Take part")
        page.get_by_role("button", name="Go on by itself").click()
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.get_by_text("2 of 2 updates")).to_be_visible(timeout=120_000)
        page.get_by_role("link", name="Take part").click()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("waiting for you")).to_be_visible(timeout=120_000)


def test_the_page_stays_alive_while_it_trains(browser: Browser, tmp_path: Path) -> None:
    """Training is a worker's: no task of the page's own thread is long."""
    with demo(tmp_path) as live, page_of(browser, live) as page:
        opened(page, live, "take-part", "Take part")
        trained(page, updates=1)
        workers = [each.url.removeprefix(live.url) for each in page.workers]
        assert workers == ["/ui/client/mlp_worker.js"]


def test_of_another_model_it_says_so_and_what_to_run(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path, clients=2, steps=1)
        opened(page, live, "take-part", "Take part")
        expect(page.get_by_text("fc.weight 1×3")).to_be_visible()
        expect(page.get_by_text("dag-acfl demo --keep-serving")).to_be_visible()
        expect(page.get_by_role("button", name="Train")).to_have_count(0)


def test_a_token_is_used_where_publishing_asks_for_one(browser: Browser, tmp_path: Path) -> None:
    with demo(tmp_path, auth={"required_for": ("reads", "writes")}) as live:
        secret = new_token()
        record = TokenRecord(name="visitor", scope=Scope.CLIENT, sha256=token_digest(secret), created_at_ms=0)
        TokenFile(tmp_path / "server" / FILE, now_ms=lambda: 0).add(record)
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{live.url}/ui/#/take-part")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Go on").click()
        trained(page, updates=1)
        context.close()


def test_a_refusal_is_told_in_words(browser: Browser, tmp_path: Path) -> None:
    with demo(tmp_path, auth={"required_for": ("writes",)}) as live:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{live.url}/ui/#/take-part")
        page.get_by_role("button", name="Train and publish once").click()
        expect(page.get_by_role("alert")).to_contain_text("bearer token", timeout=60_000)
        context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_it_can_be_read_by_all_and_fits_a_telephone(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    with demo(tmp_path) as live, page_of(browser, live, scheme=scheme, width=width) as page:
        opened(page, live, "take-part", "Take part")
        trained(page, updates=1)
        page.get_by_role("button", name="Show a test digit").click()
        expect(page.locator("table.read tr.taken")).to_be_visible()
        drawn(page, SEVEN)
        page.get_by_role("button", name="7", exact=True).click()
        page.get_by_role("button", name="Leave").click()
        found = [
            each["id"] for each in Axe().run(page).response["violations"] if each["impact"] in ("serious", "critical")
        ]
        assert found == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_digits_that_come_with_the_page_are_of_no_client_of_the_demo() -> None:
    text = (CONSOLE / "digits.js").read_text()
    rows = text.split("`")[1].split()
    images, labels = load_digits()
    of = {image.tobytes(): int(label) for image, label in zip(images, labels, strict=True)}
    found = [np.array([int(each, 17) / 16 for each in row], np.float32).reshape(8, 8) for row in rows]
    assert [of[each.tobytes()] for each in found] == list(range(10)) * 20
    upright = [
        np.ascontiguousarray(np.rot90(part, -site.cluster, axes=(1, 2)))
        for site in sites(16, 0)
        for part in (site.train_x, site.test_x)
    ]
    taken = {image.tobytes() for part in upright for image in part}
    assert not taken & {each.tobytes() for each in found}
    assert len({each.tobytes() for each in found}) == 200
