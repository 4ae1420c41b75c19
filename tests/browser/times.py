"""Clients and servers may say any time; a page that shows it says the last one that can be written."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from fl_core.dag.building import build_update
from fl_core.dag.figures import Figures, Step
from fl_core.types import TxId
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from ledger_server.store.appending import Entry
from ledger_server.store.stored import StoredTransaction
from tests.browser.pages import opened, page_of
from tests.builders import CREATED_AT_MS, ISSUER, author_of, key_from_seed, make_genesis
from tests.live import run_app
from tests.serving import prepare

AUTHOR = author_of(key_from_seed(50))
FARTHEST_MS = 2**63 - 1


def updated(url: str, data_dir: Path, *, created_at_ms: int, received_at_ms: int) -> TxId:
    """Write an update with these times into the journal of a ledger that nobody serves yet."""
    with open_store(url, data_dir=data_dir) as store:
        held = store.genesis()
        assert held is not None
        genesis = held[0]
        unsigned = build_update(
            ledger=genesis.id,
            author=AUTHOR,
            sequence=0,
            created_at_ms=created_at_ms,
            num_examples=1,
            start=genesis.header.model_digest,
            model_digest=genesis.header.model_digest,
            model_size=genesis.header.model_size,
            parents=(genesis.id,),
            metrics={"accuracy": 0.5},
        )
        signature = unsigned.sign_as_author(key_from_seed(50))
        sealed = unsigned.issue(ISSUER, author_signature=signature, received_at_ms=received_at_ms)
        figures = Figures(1.0, Step(1.0, (1.0,)), (1.0,)).encode()
        assert store.append_all([Entry(StoredTransaction(1, sealed, figures, CREATED_AT_MS), None, None)])
    return sealed.id


@pytest.mark.parametrize("far", ["created_at_ms", "received_at_ms"])
def test_a_time_that_no_calendar_has_is_shown_as_the_last_one(browser: Browser, tmp_path: Path, far: str) -> None:
    times = {"created_at_ms": CREATED_AT_MS, "received_at_ms": CREATED_AT_MS, far: FARTHEST_MS}
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    settings = load_settings(data_dir=tmp_path / "server", database_url=url)
    prepare(url, settings.data_dir, genesis=make_genesis())
    update = updated(url, settings.data_dir, **times)
    with run_app(create_app(settings, key=ISSUER), settings) as live, page_of(browser, live) as page:
        for address, heading in [
            ("", "Overview"),
            ("updates", "Updates"),
            ("training?across=time", "Training"),
            ("clients", "Clients"),
            (f"clients/{AUTHOR}", "Client"),
            ("clusters", "Clusters"),
            (f"updates/{update}", "Update"),
        ]:
            opened(page, live, address, heading)
        expect(page.get_by_role("main")).to_contain_text("9999-12-31 23:59:59 UTC")
