"""What a run's updates were chosen from, as the console shows it: ``evidence.jsonl`` beside the run's ledger."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from fl_core.dag.transaction import Kind, Transaction
from fl_core.types import AuthorId, TxId
from fl_core.wire import v1
from fl_simulator.errors import ResultsError
from fl_simulator.ledgers.network import author_of
from fl_simulator.run.folder import EVIDENCE, read_label
from fl_simulator.seeds import Seeds


class Offers:
    """The selections of a run, by the update that came of each: a client's first of its first, and so on.

    Args:
        folder: The run's.
        transactions: Of its ledger.

    Raises:
        ResultsError: A line of the file says no selection.
    """

    def __init__(self, folder: Path, transactions: Iterable[Transaction]) -> None:
        self._lines = _lines(folder)
        seeds = Seeds(read_label(folder).seed)
        clients = {
            each for client, lines in self._lines.items() for line in lines for each in (client, *line["offered"])
        }
        self._authors: Final = {client: author_of(seeds, client) for client in clients}
        self._client_of: Final = {author: client for client, author in self._authors.items()}
        self._updates: dict[TxId, tuple[AuthorId, int, tuple[TxId, ...]]] = {}
        for each in transactions:
            header = each.header
            if header.kind is Kind.UPDATE:
                self._updates[each.id] = (header.author, header.sequence, header.parents)

    def of(self, transaction: TxId) -> list[v1.OfferedOut] | None:
        """Whose models were compared for this update, as they ranked.

        None: no selection is known, it compared none, or it took others than the update's parents, as where the
        ledger's rules have refused an update in between.
        """
        author, sequence, parents = self._updates.get(transaction, (None, 0, ()))
        client = None if author is None else self._client_of.get(author)
        lines = [] if client is None else self._lines[client]
        if sequence >= len(lines):
            return None
        line, taken = lines[sequence], {self._updates[each][0]: each for each in parents if each in self._updates}
        if author is not None:
            taken.pop(author, None)
        if not line["offered"] or len(line["similarities"]) != len(line["offered"]):
            return None
        if {self._authors[each] for each in line["taken"]} != set(taken):
            return None
        return [
            v1.OfferedOut(author=who, update=taken.get(who), similarity=similarity)
            for who, similarity in zip(
                (self._authors[each] for each in line["offered"]), line["similarities"], strict=True
            )
        ]


def _lines(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """Each client's selections in order."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    file = folder / EVIDENCE
    if not file.is_file():
        return found
    for number, text in enumerate(file.read_text("utf-8", errors="replace").splitlines(), start=1):
        try:
            line = json.loads(text)
            for name in ("offered", "taken"):
                line[name] = [int(each) for each in line[name]]
            if min([int(line["client"]), *line["offered"]]) < 0 or not set(line["taken"]) <= set(line["offered"]):
                raise ValueError("no such client")
            line["similarities"] = [float(each) for each in line["similarities"]]
            found[int(line["client"])].append(line)
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{file}, line {number}: no selection") from error
    return found
