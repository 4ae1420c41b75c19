"""The committed table of what differential privacy costs."""

import json

from experiments.privacy import RESULTS, Figures, table


def test_the_committed_table_is_made_of_the_committed_runs() -> None:
    runs = [Figures(**each) for each in json.loads((RESULTS / "figures.json").read_text("utf-8"))]
    assert "\n".join(table(runs)) + "\n" == (RESULTS / "table.md").read_text("utf-8")
