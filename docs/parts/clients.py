"""The generated parts of docs/clients.md: its tables, made of kept results."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from docs.parts.experiments import kept_table
from docs.parts.kept import BENCHMARKS, EXPERIMENTS
from docs.parts.markdown import table


def which_model_table() -> str:
    """What each choice of a model is worth on digits that no client has seen."""
    facts = json.loads((BENCHMARKS / "which_model.json").read_text("utf-8"))["facts"]
    rows = (
        (
            choice,
            f"{figures['mean']:.3f}",
            ", ".join(f"{each:.3f}" for each in figures["each_seed"]),
            f"{figures['worst_client']:.3f}",
        )
        for choice, figures in facts.items()
    )
    return table(("choice", "accuracy, mean", "each seed", "worst client"), rows)


def contribution_table() -> str:
    """How clients are ranked by measurements of contribution, beside exact Shapley values."""
    found = json.loads((EXPERIMENTS / "contribution" / "figures.json").read_text("utf-8"))["spearman"]
    rows = ((every, f"{figures['mean']:.3f}", f"{figures['least']:.3f}") for every, figures in found.items())
    return table(("every n-th update is measured: n", "rank correlation (Spearman), mean of 5 seeds", "least"), rows)


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "which-model": which_model_table,
    "contribution": contribution_table,
    "results-independent-initialisation": partial(kept_table, "independent_initialisation"),
}
