"""The same views on a ledger of 10,000 updates: ``make console-slow``."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.states import SCHEMES, all_views


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_view_of_a_ledger_of_ten_thousand_updates(browser: Browser, tmp_path: Path, scheme: str) -> None:
    all_views(browser, tmp_path, 10_000, scheme)
