"""A run's trace: who was averaged into whom, and what clients were offered and took, round by round.

``edges.csv`` has a line ``round,from,to,weight`` for each model that went into an average; a group's or a global model
is ``group 0`` and so on. ``evidence.jsonl``, of a method with a ledger, has a line for each selection: who asked, the
clients whose tips were candidates with their similarities, and those that were taken. So a run can be looked at and,
with the ledger's bundle, recomputed. Rounds are written whole; a resumed run's trace goes on where its rounds do. The
first round that finds no room ends the trace; ``trace_end.txt`` has its number.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fl_simulator.run.folder import EDGES, EVIDENCE, TRACE_END
from fl_simulator.strategies.protocol import Choice, Edge

_HEAD: Final = "round,from,to,weight"
_DIGITS: Final = 6


class TraceWriter:
    """A run's trace in its folder, open for writing.

    Args:
        folder: The run's.
        most: Edges and candidates that are kept at most; the first round beyond ends the trace. 0: there is none.
        rounds: Rounds before this one that the run goes on from; what the trace has of later ones is dropped.
        has_ledger: Whether there are selections.
    """

    def __init__(self, folder: Path, *, most: int, rounds: int, has_ledger: bool) -> None:
        self._left, self._edges, self._evidence = most, folder / EDGES, folder / EVIDENCE
        self._has_ledger, self._end = has_ledger, folder / TRACE_END
        if not most:
            return
        self._ended = self._end.exists() and int(self._end.read_text("utf-8")) < rounds
        if not self._ended:
            self._end.unlink(missing_ok=True)
        lines = _lines(self._edges)[1:] if rounds else []
        kept = [line for line in lines if int(line.partition(",")[0]) < rounds]
        self._edges.write_text("\n".join([_HEAD, *kept, ""]), "utf-8")
        self._left -= len(kept)
        if has_ledger:
            read = [(line, json.loads(line)) for line in _lines(self._evidence)] if rounds else []
            those = [(line, each) for line, each in read if each["round"] < rounds]
            self._evidence.write_text("".join(f"{line}\n" for line, _ in those), "utf-8")
            self._left -= sum(len(each["offered"]) for _, each in those)

    def append(self, number: int, edges: Sequence[Edge], choices: Sequence[Choice]) -> None:
        """Write a round, if it fits."""
        if self._ended or (not edges and not choices):
            return
        self._left -= len(edges) + sum(len(choice.offered) for choice in choices)
        if self._left < 0:
            self._ended = True
            self._end.write_text(f"{number}\n", "utf-8")
            return
        with self._edges.open("a", encoding="utf-8") as file:
            file.writelines(f"{number},{source},{target},{weight:.{_DIGITS}g}\n" for source, target, weight in edges)
        if self._has_ledger:
            with self._evidence.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(_as_json(number, choice)) + "\n" for choice in choices)


def _as_json(number: int, choice: Choice) -> dict[str, object]:
    return {
        "round": number,
        "client": choice.client,
        "offered": choice.offered.tolist(),
        "similarities": [round(each, _DIGITS) for each in choice.ranked_by.tolist()],
        "taken": choice.taken.tolist(),
    }


def _lines(file: Path) -> list[str]:
    """The whole lines of a file; a killed process may have left half of one."""
    return file.read_text("utf-8").rpartition("\n")[0].splitlines() if file.exists() else []
