"""The console's page for operators, in Chromium: said in words, done only then, and seen by others."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fl_client import LedgerClient
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from ledger_server.tokens import FILE, Scope, TokenFile, TokenRecord, new_token, token_digest
from tests.browser.pages import faults, opened, page_of, taught
from tests.builders import ISSUER, key_from_seed, make_genesis
from tests.live import Live, client_of, run_app
from tests.serving import prepare

FOUNDER = Member(public_key_of(ISSUER), "founder")
SECOND = f"second=http://second.example:8900#{public_key_of(key_from_seed(1001))}"
OPERATOR, CLIENT = new_token(), new_token()


@contextmanager
def ledger(folder: Path, *, members: bool = True, **settings: object) -> Iterator[Live]:
    """A server whose key is that of the ledger's only member, with an operator's token and a client's."""
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    found = load_settings(data_dir=folder / "server", database_url=url, **settings)
    genesis = make_genesis(selector_params={"k": 2}, freshness_s=1)
    prepare(url, found.data_dir, genesis=replace(genesis, members=(FOUNDER,)) if members else genesis)
    tokens = TokenFile(found.data_dir / FILE, now_ms=lambda: 0)
    for name, scope, secret in (("ada", Scope.OPERATOR, OPERATOR), ("site-1", Scope.CLIENT, CLIENT)):
        tokens.add(TokenRecord(name=name, scope=scope, sha256=token_digest(secret), created_at_ms=0))
    with run_app(create_app(found, key=ISSUER), found) as live:
        yield live


def operating(page: Page, live: Live, part: str = "members") -> None:
    """The page, with an operator's token in this tab."""
    page.add_init_script(f"sessionStorage.setItem('dag-acfl-token', '{OPERATOR}')")
    opened(page, live, f"operate?part={part}", "Operate")
    expect(page.get_by_role("button", name="Forget the token")).to_be_visible()


def said(page: Page, *words: str) -> None:
    for each in words:
        expect(page.get_by_role("dialog")).to_contain_text(each)


def test_it_asks_for_an_operators_token_and_a_clients_is_not_enough(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live:
        context = browser.new_context()
        page, asked = context.new_page(), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        opened(page, live, "operate", "Operate")
        for secret, answer in ((new_token(), "unknown to this server"), (CLIENT, "scope operator")):
            page.get_by_label("Operator's token").fill(secret)
            page.get_by_role("button", name="Go on").click()
            expect(page.get_by_role("alert")).to_contain_text(answer)
        page.get_by_label("Operator's token").fill(OPERATOR)
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_text("This server is a member")).to_be_visible()
        assert not [url for url in asked if "dagacfl_" in url]
        page.get_by_role("button", name="Forget the token").click()
        expect(page.get_by_label("Operator's token")).to_be_visible()
        context.close()


def test_a_client_is_quarantined_after_it_is_said_what_that_withholds_and_let_free_again(
    browser: Browser, tmp_path: Path
) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        ids = taught(live, tmp_path)
        with LedgerClient([live.url]) as reader:
            author = reader.transaction(ids[0]).author
        operating(page, live, f"quarantine&subject={author}")
        expect(page.get_by_label("Client or update")).to_have_value(author)
        page.get_by_label("Why").fill("flips labels")
        page.get_by_role("button", name="See what it withholds").click()
        said(page, "have its steps in their models", "it can be lifted", "flips labels", "in effect at once")
        with client_of(live.url) as client:
            assert client.get(v1.QUARANTINE).json()["decisions"] == [], "it was only asked for"
            page.get_by_role("button", name="Quarantine", exact=True).click()
            said(page, "is quarantined", "in effect.")
            page.get_by_role("button", name="Close").click()
            expect(page.get_by_role("row").filter(has_text="flips labels").first).to_contain_text("everywhere")
            (decision,) = client.get(v1.QUARANTINE).json()["decisions"]
            assert (decision["subject"], decision["reach"]) == (author, "everywhere")
            page.get_by_role("button", name="Lift").click()
            said(page, "is offered again", "flips labels")
            page.get_by_role("button", name="Lift it").click()
            said(page, "is lifted")
            page.get_by_role("button", name="Close").click()
            expect(page.get_by_text("no more: lifted")).to_be_visible()
            assert client.get(v1.QUARANTINE).json()["withheld"] == 0


def test_a_quarantine_that_nobody_else_has_signed_says_who_may_and_is_taken_back(
    browser: Browser, tmp_path: Path
) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        operating(page, live)
        page.get_by_label("Another server").fill(SECOND)
        page.get_by_role("button", name="Add …").click()
        page.get_by_role("button", name="Propose it").click()
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("heading", name="an act needs 2 of 2 signatures")).to_be_visible()
        operating(page, live, f"quarantine&subject=hash:{'5' * 64}")
        page.get_by_label("Why").fill("flips labels")
        page.get_by_role("button", name="See what it withholds").click()
        page.get_by_role("button", name="Quarantine", exact=True).click()
        said(page, "signed by 1 of 2 that are needed; second may sign, there.")
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Lift").click()
        said(page, "Only this server has signed it", "nobody is asked to sign it any more")
        page.get_by_role("button", name="Lift it").click()
        said(page, "took back: quarantine", "in effect.")
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_text("no more: lifted")).to_be_visible()
        operating(page, live)
        expect(page.get_by_role("heading", name="an act needs 2 of 2 signatures")).to_be_visible()
        expect(page.get_by_role("heading", name="Waiting for signatures")).to_have_count(0)


def test_what_is_cancelled_is_not_done(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        operating(page, live, "members")
        page.get_by_label("Another server").fill(SECOND)
        page.get_by_role("button", name="Add …").click()
        said(page, "becomes a member", SECOND)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_label("Another server")).to_have_value(SECOND)
        expect(page.get_by_role("heading", name="an act needs 1 of 1 signatures")).to_be_visible()


def test_members_are_added_and_what_one_signature_does_not_decide_waits(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        operating(page, live)
        page.get_by_label("Another server").fill(SECOND)
        page.get_by_role("button", name="Add …").click()
        page.get_by_role("button", name="Propose it").click()
        said(page, "second is a member: in effect.")
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("heading", name="an act needs 2 of 2 signatures")).to_be_visible()
        page.get_by_role("button", name="Remove second").click()
        said(page, "1 more is missing")
        page.get_by_role("button", name="Propose it").click()
        said(page, "signed by 1 of 2 that are needed; second may sign")
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("heading", name="Waiting for signatures")).to_be_visible()


def test_a_server_that_is_no_member_is_said_to_be_none(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path, members=False) as live, page_of(browser, live) as page:
        for part in ("members", "quarantine"):
            operating(page, live, part)
            expect(page.get_by_text("This server is no member of the ledger")).to_be_visible()
            expect(page.get_by_role("button", name="…")).to_have_count(0)


def test_a_tokens_secret_is_shown_once_and_revoked_it_is_refused(browser: Browser, tmp_path: Path) -> None:
    with (
        ledger(tmp_path, auth={"required_for": ("reads",)}) as live,
        page_of(browser, live) as page,
        client_of(live.url) as client,
    ):
        operating(page, live, "tokens")
        page.get_by_label("For whom").fill("site-2")
        page.get_by_role("button", name="Make it …").click()
        said(page, "shown once", "for 90 days", "publish as anybody")
        page.get_by_role("button", name="Make it", exact=True).click()
        secret = page.locator("code.secret").inner_text()
        fields = {"authorization": f"Bearer {secret}"}
        assert client.get(v1.TIPS, headers=fields).status_code == 200
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("row").filter(has_text="site-2")).to_be_visible()
        assert secret not in page.content()
        page.get_by_role("button", name="Revoke site-2").click()
        said(page, "is refused from the next request on")
        page.get_by_role("button", name="Revoke it").click()
        said(page, "is revoked")
        assert client.get(v1.TIPS, headers=fields).status_code == 401
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("row").filter(has_text="site-2")).to_have_count(0)


def test_pruning_is_counted_first_then_done(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path)
        operating(page, live, "pruning")
        page.get_by_label("Keep what was received").fill("0")
        page.get_by_role("button", name="See what would go").click()
        said(page, "models, ", "stay", "gone for good", "backup")
        with client_of(live.url) as client:
            assert client.get(v1.COSTS).json()["pruned_models"] == 0
            page.get_by_role("button", name="Prune", exact=True).click()
            said(page, "are gone")
            assert client.get(v1.COSTS).json()["pruned_models"] > 0
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="See what would go").click()
        expect(page.get_by_text("Nothing would go")).to_be_visible()


def test_what_others_wrote_is_text(browser: Browser, tmp_path: Path) -> None:
    markup = "<img src=x onerror=document.title='owned'>"
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        (update,) = taught(live, tmp_path, clients=1, steps=1)
        secret = token_digest(new_token())
        record = TokenRecord(name=markup, scope=Scope.METRICS, sha256=secret, created_at_ms=0)
        TokenFile(tmp_path / "server" / FILE, now_ms=lambda: 0).add(record)
        opened(page, live, f"updates/{update}", update[:8])
        page.get_by_role("link", name="Quarantine it").click()
        page.evaluate(f"sessionStorage.setItem('dag-acfl-token', '{OPERATOR}')")
        page.reload()
        expect(page.get_by_label("Client or update")).to_have_value(f"update:{update}")
        page.get_by_label("Why").fill(markup)
        page.get_by_role("button", name="See what it withholds").click()
        said(page, markup)
        page.get_by_role("button", name="Quarantine", exact=True).click()
        said(page, "in effect.")
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("row").filter(has_text=markup).first).to_be_visible()
        for part in ("members", "tokens"):
            page.get_by_role("link", name=part.capitalize(), exact=True).click()
            expect(page.get_by_role("row").filter(has_text=markup).first).to_be_visible()
        assert page.locator("img").count() == 0
        assert page.title() != "owned"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_it_can_be_read_by_all_and_fits_a_telephone(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    with ledger(tmp_path) as live, page_of(browser, live, scheme=scheme, width=width) as page:
        taught(live, tmp_path, clients=2, steps=1)
        found = []
        for part in ("members", "quarantine", "tokens", "pruning"):
            operating(page, live, part)
            if part == "tokens":
                page.get_by_role("button", name="Revoke site-1").click()
                said(page, "site-1")
            found += [(part, each) for each in faults(page)]
            assert page.evaluate("document.documentElement.scrollWidth") <= width, part
        assert found == []
