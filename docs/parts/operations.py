"""The table of metrics of docs/operations.md."""

from collections.abc import Callable, Mapping
from typing import Final

from docs.parts.markdown import table
from ledger_server.metrics import PREFIX, Metrics


def _metrics() -> str:
    """Every metric of a server, by name: its type, its labels, what it says."""
    labels = {
        name: ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
        for collector, names in Metrics().registry._collector_to_names.items()  # noqa: SLF001 -- it has no other way
        for name in names
    }
    rows = [
        (f"`{name}`", family.type, labels[family.name], family.documentation)
        for family in Metrics().registry.collect()
        if (name := family.name + "_total" * (family.type == "counter")).startswith(PREFIX)
    ]
    return table(("metric", "type", "labels", "what it says"), sorted(rows))


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {"metrics": _metrics}
