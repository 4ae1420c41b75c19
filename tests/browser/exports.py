"""What is saved from the console is safe to open, whatever a client or a member has called things."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.pages import ledger, page_of


@pytest.mark.parametrize("values", [[1e17, 1e17 + 16], [1, 1 + 2**-52], [-1.7e308, 1.7e308], [0, 5e-324], [7, 7]])
def test_a_chart_of_any_figures_is_saved_as_svg(browser: Browser, tmp_path: Path, values: list[float]) -> None:
    with ledger(tmp_path) as server, page_of(browser, server) as page:
        page.goto(f"{server.url}/ui/")
        chart = {"x": "updates", "series": [{"name": "<b>", "colour": "red"}], "data": [[1, 2], values]}
        svg = page.evaluate("async (chart) => (await import('/ui/figure.js')).svgOf(chart)", chart)
    assert "<polyline" in svg
    assert "&#60;b&#62;" in svg
    assert svg.count("<text") <= 24, "at most eleven marks to an axis"


def test_a_spreadsheet_runs_nothing_of_a_saved_table(browser: Browser, tmp_path: Path) -> None:
    rows = [["=cmd()", -1.5], ["@a", 2], ['-1+"x"', 3], ["a\rb", 4]]
    with ledger(tmp_path) as server, page_of(browser, server) as page:
        page.goto(f"{server.url}/ui/")
        saved = page.evaluate(
            "async (rows) => (await import('/ui/parts.js')).csv([{name: '+name'}, {name: 'n'}], rows)", rows
        )
    assert saved == '\'+name,n\r\n\'=cmd(),-1.5\r\n\'@a,2\r\n"\'-1+""x""",3\r\n"a\rb",4\r\n'
