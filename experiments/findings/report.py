"""Questions of our own: when clusters are found without their number, what asynchrony wins by, which candidates.

    python -m experiments.findings.report                 # all
    python -m experiments.findings.report freshness       # one of them

Where ``build/simulations`` has finished runs, the CSV files of ``experiments/results/findings/<experiment>/`` are
written anew, and pictures; then ``report.md`` is made of the CSV files that are there. Each question has a module;
``candidates`` is the earlier and smaller comparison of tips and newest updates that docs/selection.md shows.
"""

from pathlib import Path
from typing import Final

from experiments.findings import candidates, freshness, phase, tips_or_newest
from experiments.reporting import Played, update_reports

MODULES: Final = {
    "phase": phase,
    "phase_anew": phase,
    "freshness": freshness,
    "tips_or_newest": tips_or_newest,
    "candidates": candidates,
}
EXPERIMENTS: Final = tuple(MODULES)


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    MODULES[played.kept.name].refresh(played)


def tables(folder: Path) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    return MODULES[folder.name].tables(folder)


if __name__ == "__main__":
    update_reports("findings", EXPERIMENTS, refresh=refresh, tables=tables)
