"""An experiment's measured values beside a paper's printed ones."""

from fl_simulator.report.decentralised import GraphFigures, NodeFigures, PlateauFigures
from fl_simulator.report.figures import Clustering, Machine, Timing
from fl_simulator.report.printed import PrintedTable, read_printed_files, read_printed_table
from fl_simulator.report.rendering import markdown, terminal_table
from fl_simulator.report.table import (
    PAPER,
    UPPER_BOUNDS,
    Cell,
    Expected,
    Missing,
    Report,
    Row,
    build_report,
    report_on,
)

__all__ = [
    "PAPER",
    "UPPER_BOUNDS",
    "Cell",
    "Clustering",
    "Expected",
    "GraphFigures",
    "Machine",
    "Missing",
    "NodeFigures",
    "PlateauFigures",
    "PrintedTable",
    "Report",
    "Row",
    "Timing",
    "build_report",
    "markdown",
    "read_printed_files",
    "read_printed_table",
    "report_on",
    "terminal_table",
]
