"""A report for a reader: Markdown for a page, a table for a terminal."""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final

from fl_simulator.report.decentralised import SHARES, PlateauFigures
from fl_simulator.report.figures import REACHED, WORKS, known
from fl_simulator.report.table import Cell, Report, Row

if TYPE_CHECKING:
    from rich.table import Table

_WIDE_ROW: Final = 36
_WIDE_CELL: Final = 22
"""Columns of a terminal: what a row and a cell of the wide table take."""


def markdown(report: Report) -> str:
    """The table, what the experiment's file asks for, virtual time, how clusters were found, what it cost and took, and
    what is missing.
    """
    parts = [f"### {report.title}", report.legend, _accuracy_table(report)]
    parts += _details(report, "Nodes", _NODES_LEGEND, _NODES_HEAD, _nodes_texts)
    parts += _details(report, "Gains", _gains_legend(report), _GAINS_HEAD, _gains_texts)
    parts += _details(report, "Characteristic times", _times_legend(report), _TIMES_HEAD, _times_texts)
    parts += _plateau(report)
    parts += _details(report, "Graphs", _GRAPH_LEGEND, _GRAPH_HEAD, _graph_texts)
    parts += _details(report, "Virtual time", _timing_legend(), _TIMING_HEAD, _timing_texts)
    parts += _details(report, "Clusters", _clustering_legend(report), _CLUSTERING_HEAD, _clustering_texts)
    parts += _details(report, "Costs", _COST_LEGEND, _COST_HEAD, _cost_texts)
    parts += _details(report, "This machine", _machine_legend(report), _MACHINE_HEAD, _machine_texts)
    if report.missing:
        parts += ["Missing:", "\n".join(f"* {line}" for line in report.missing_lines())]
    return "\n\n".join(parts) + "\n"


def _details(
    report: Report, heading: str, legend: str, head: Sequence[str], texts: Callable[[Row, Cell], Sequence[str]]
) -> list[str]:
    """A legend and a line for each cell that has such figures; nothing when none has."""
    lines = [
        [report.row_name(row), f"{row.participation:g}", cell.method, *said]
        for row in report.rows
        for cell in row.cells
        if (said := texts(row, cell))
    ]
    names = ["setting", "participation", "method"]
    return [f"**{heading}.** {legend}", _markdown_table([*names, *head], lines)] if lines else []


def terminal_table(report: Report, *, width: int) -> "Table":
    """The table of accuracies for a terminal of so many columns; methods that do not fit side by side stand below one
    another.
    """
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def measured(cell: Cell) -> Text:
        return Text(cell.measured_text, style="bold" if cell.is_best else "")

    def printed(cell: Cell) -> Text:
        return Text(cell.printed_text, style="dim")

    with_printed = report.printed_source is not None
    table = Table(title=report.title, caption=report.legend)
    table.add_column("setting")
    table.add_column("γ", justify="right")
    if _WIDE_ROW + _WIDE_CELL * len(report.methods) <= width:
        table.show_lines = True
        for method in report.methods:
            table.add_column(method, justify="right")
        for row in report.rows:
            cells = [Text("\n").join([measured(cell), printed(cell)][: 1 + with_printed]) for cell in row.cells]
            table.add_row(report.row_name(row), f"{row.participation:g}", *cells)
        return table
    table.add_column("method")
    for head in ("measured", "printed")[: 1 + with_printed]:
        table.add_column(head, justify="right")
    for row in report.rows:
        names = [report.row_name(row), f"{row.participation:g}"]
        for cell in row.cells:
            table.add_row(*names, cell.method, *[measured(cell), printed(cell)][: 1 + with_printed])
            names = ["", ""]
        table.add_section()
    return table


def _accuracy_table(report: Report) -> str:
    def shown(cell: Cell) -> str:
        text = f"**{cell.measured_text}**" if cell.is_best else cell.measured_text
        return text if cell.printed is None else f"{text}<br>{cell.printed_text}"

    head = ["setting", "participation", *report.methods]
    rows = [[report.row_name(row), f"{row.participation:g}", *map(shown, row.cells)] for row in report.rows]
    return _markdown_table(head, rows)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


_NODES_LEGEND: Final = (
    "Accuracy at the last evaluated round: mean over nodes of all seeds ± standard deviation over the nodes of a seed "
    "(0 where all have one model), the least and the most accurate node of any seed; mean ± standard deviation over "
    "seeds; and what the paper prints, which does not say over what its ± is."
)
_NODES_HEAD: Final = ("over nodes", "least", "greatest", "over seeds", "printed")


def _nodes_texts(_row: Row, cell: Cell) -> list[str]:
    if (found := cell.nodes) is None:
        return []
    return [
        f"{found.mean:.4f} ± {found.std:.4f}",
        f"{found.least:.4f}",
        f"{found.greatest:.4f}",
        cell.measured_text,
        cell.printed_text,
    ]


def _gains_legend(report: Report) -> str:
    baseline = "" if report.plan.gains is None else report.plan.gains.baseline
    return f"Points of accuracy, in hundredths, above {baseline}'s: means over seeds."


_GAINS_HEAD: Final = ("measured", "printed")


def _gains_texts(_row: Row, cell: Cell) -> list[str]:
    if cell.gain is None:
        return []
    printed = cell.printed_more.get("gain")
    return [f"{100 * cell.gain:+.2f}", "-" if printed is None else f"{printed:+.2f}"]


def _times_legend(report: Report) -> str:
    reference = "" if report.plan.times is None else report.plan.times.reference
    return (
        f"Rounds until accuracy, mean over nodes, first was so large a part of {reference}'s final one: mean ± "
        "standard deviation over the seeds that came there, and how many did where not all; looked at only in "
        "evaluated rounds. Below it, what the paper prints."
    )


_TIMES_HEAD: Final = tuple(f"{share:.0%}".replace("%", " %") for share in SHARES)


def _times_texts(_row: Row, cell: Cell) -> list[str]:
    printed = [cell.printed_more.get(f"{share:g}") for share in SHARES]
    with_printed = any(each is not None for each in printed)
    if not cell.times:
        return []
    return [
        _rounds(seeds) + (f"<br>{_number(number, digits=2)}" if with_printed else "")
        for seeds, number in zip(cell.times, printed, strict=True)
    ]


def _rounds(seeds: Sequence[int | None]) -> str:
    """A dash where no seed came there."""
    reached = known(seeds)
    some = f" ({len(reached)} of {len(seeds)})" if 0 < len(reached) < len(seeds) else ""
    return _over_seeds(reached, digits=1) + some


def _plateau(report: Report) -> list[str]:
    """A line for each method, a column for each setting; nothing where no method has such figures."""
    if report.plan.plateau is None or not report.plateaus:
        return []
    plan = report.plan.plateau
    legend = (
        f"**Plateau.** Rounds until test loss, mean over nodes, was below {plan.share:g} · ln {plan.classes} = "
        f"{plan.threshold:.4f} and stayed there: mean ± standard deviation over the seeds that came there, and how "
        "many did where not all; looked at only in evaluated rounds. µ of rounds ~ n^µ, of each seed the slope of "
        "logarithms: mean ± standard deviation over seeds."
    )
    settings = {name: nodes for each in report.plateaus for name, nodes in zip(each.settings, each.nodes, strict=True)}
    heads = [f"{name} (n = {nodes})" if str(nodes) not in name else name for name, nodes in settings.items()]
    lines = [_plateau_texts(each, list(settings)) for each in report.plateaus]
    return [legend, _markdown_table(["participation", "method", *heads, "µ"], lines)]


def _plateau_texts(found: PlateauFigures, settings: Sequence[str]) -> list[str]:
    rounds = dict(zip(found.settings, found.rounds, strict=True))
    return [
        f"{found.participation:g}",
        found.method,
        *(_rounds(rounds.get(setting, ())) for setting in settings),
        _over_seeds(found.exponents, digits=3),
    ]


_GRAPH_LEGEND: Final = (
    "Edges of a node and messages that it sends in a round, means over nodes, and the Gini index of nodes' label "
    "counts: mean ± standard deviation over seeds; and what the paper prints of edges and messages."
)
_GRAPH_HEAD: Final = ("edges", "printed", "messages", "printed", "Gini index")


def _graph_texts(_row: Row, cell: Cell) -> list[str]:
    if (found := cell.graph) is None:
        return []
    return [
        _over_seeds(found.edges_per_node, digits=2),
        _number(cell.printed_more.get("edges_per_node"), digits=1),
        _over_seeds(found.messages_per_node, digits=2),
        _number(cell.printed_more.get("messages_per_node"), digits=1),
        _over_seeds(found.gini, digits=3),
    ]


def _timing_legend() -> str:
    part = f"{REACHED:.0%}".replace("%", " %")
    return (
        f"The virtual clock when accuracy first was {part} of the method's own final accuracy, and {part} of that of "
        "the best method in the row (upper bounds aside): mean ± standard deviation over seeds, and of how many seeds "
        "where not all came there. Clocks compare where `evaluated` is `all`: else only clients that were seen are "
        "judged, and the fast ones are seen first. Results taken and trainings lost in the whole run. The least "
        "accurate client's accuracy, at the end and at its lowest in the second half; and the greatest share of "
        "selections that took a foreign cluster's model at any evaluation of the second half."
    )


_TIMING_HEAD: Final = ("own", "the best's", "results", "lost", "worst client", "its lowest", "foreign")


def _timing_texts(_row: Row, cell: Cell) -> list[str]:
    if (found := cell.timing) is None:
        return []
    return [
        _clock(found.own_s),
        _clock(found.rival_s),
        _over_seeds(found.results, digits=0),
        _over_seeds(found.lost, digits=0),
        _over_seeds(known(found.worst), digits=4),
        _over_seeds(known(found.worst_min), digits=4),
        _over_seeds(known(found.foreign), digits=3),
    ]


def _clock(times: Sequence[float | None]) -> str:
    reached = known(times)
    if not reached:
        return "never"
    return f"{_over_seeds(reached, digits=0)} s" + (
        "" if len(reached) == len(times) else f" ({len(reached)} of {len(times)})"
    )


def _clustering_legend(report: Report) -> str:
    interval = report.interval
    return (
        f"How they were found: modularity, communities (of each seed) and purity in the last {report.evaluated}; "
        f"mean mr, the least mr of any selection, the greatest share of a {interval}'s selections that took a foreign "
        "cluster's model and the most misclassified clients, all of these in the second half; and the first "
        f"{interval} from which on nobody is misclassified, the latest of the seeds'."
    )


_CLUSTERING_HEAD: Final = (
    "modularity",
    "communities",
    "purity",
    "mr",
    "least mr",
    "foreign",
    "misclassified",
    "clean from",
)


def _clustering_texts(row: Row, cell: Cell) -> list[str]:
    if (found := cell.clustering) is None:
        return []
    timed = row.duration_s is not None
    clean = found.clean_from_s if timed else found.clean_from
    return [
        _number(found.modularity, digits=3),
        ", ".join(map(str, found.communities)) or "-",
        _number(found.purity, digits=3),
        _number(found.satisfaction, digits=3),
        _number(found.satisfaction_min, digits=3),
        _number(found.foreign, digits=3),
        _number(found.misclassified, digits=0),
        _number(clean, digits=0) + (" s" if timed and clean is not None else ""),
    ]


_COST_LEGEND: Final = (
    "In MB, of the first seed: a round by the formula of DAG-ACFL's Table III, the same with each "
    "transfer counted once (the table has those among servers, and SDAGFL's, twice), and as measured, the mean of the "
    "rounds; at the end, a client's and a server's storage by the formulas of Table IV, and the ledger as measured."
)
_COST_HEAD: Final = (
    "Table III",
    "printed",
    "counted once",
    "measured",
    "client, Table IV",
    "server, Table IV",
    "ledger, measured",
)


def _cost_texts(_row: Row, cell: Cell) -> list[str]:
    if (costs := cell.costs) is None:
        return []
    client, server = _megabytes(costs.printed_client_bytes), _megabytes(costs.printed_server_bytes)
    return [
        costs.communication,
        _megabytes(costs.printed_round_bytes),
        _megabytes(costs.expected_round_bytes),
        _megabytes(costs.measured_round_bytes),
        f"{client} = {costs.client_storage}",
        f"{server} = {costs.server_storage}" if costs.server_storage else "-",
        _megabytes(costs.measured_ledger_bytes),
    ]


def _machine_legend(report: Report) -> str:
    return (
        f"What methods on a ledger took of this machine: seconds of a {report.interval}, evaluation too, the median of "
        "all, and the parts that are told apart, each with its own median; tips and transactions at the end, mean over "
        f"seeds; MB of a {report.interval} from clients, to clients and among servers, the mean of all; and the most "
        "memory, in MB, that the process of any seed's run held (those that it starts, Ray's say, are not counted; "
        "after a larger run in the same process it is more than alone)."
    )


_MACHINE_HEAD: Final = ("seconds", *WORKS, "tips", "transactions", "up", "down", "among servers", "memory")


def _machine_texts(_row: Row, cell: Cell) -> list[str]:
    if (took := cell.machine) is None:
        return []
    return [
        f"{took.seconds:.3f}",
        *(_number(took.by_work.get(work), digits=3) for work in WORKS),
        f"{took.tips:,.0f}",
        f"{took.transactions:,.0f}",
        _megabytes(took.up_bytes),
        _megabytes(took.down_bytes),
        _megabytes(took.between_servers_bytes),
        _number(None if took.peak_memory_bytes is None else took.peak_memory_bytes / 1e6, digits=0),
    ]


def _over_seeds(values: Sequence[float], *, digits: int) -> str:
    if not values:
        return "-"
    spread = f" ± {stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):z,.{digits}f}{spread}"


def _megabytes(value: float | None) -> str:
    return _number(None if value is None else value / 1e6, digits=3)


def _number(value: float | None, *, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
