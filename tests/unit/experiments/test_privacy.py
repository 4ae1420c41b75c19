"""The committed table of what differential privacy costs."""

import json

from experiments.privacy import HERE, Figures, table


def test_the_committed_table_is_made_of_the_committed_runs() -> None:
    results = HERE / "results" / "privacy"
    runs = [Figures(**each) for each in json.loads((results / "figures.json").read_text("utf-8"))]
    assert "\n".join(table(runs)) + "\n" == (results / "table.md").read_text("utf-8")
