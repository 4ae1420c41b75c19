"""A trial's clients: ``dag-acfl client run`` with a client's file, a process for each site."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from dag_acfl.commands.options import set_options
from dag_acfl.trial.processes import ForkedCommand, stop
from fl_client.state import ParticipantState
from fl_core.types import JsonScalar
from fl_simulator.run.processes import usable_cores
from fl_simulator.training.sites import SITE

_MOVES_EVERY: Final = 5
"""Every fifth client moves, where there are several servers: of the demo's sixteen four, one of each cluster."""
_NICENESS: Final = 5
"""Who trains steps back a little behind the servers, which sixteen clients would leave a tenth of a core each."""

_UPDATES_PER_S: Final = 8
"""Of all sites together, at most: faster, an average is out of date before it has been trained on, as the servers and
all sites share one machine."""


def update_every_s(sites: int) -> float:
    """How often a site begins an update, at most."""
    return sites / _UPDATES_PER_S


class Clients:
    """The clients of one ledger: each knows all servers; some change theirs in the middle."""

    def __init__(
        self,
        folder: Path,
        urls: Sequence[str],
        *,
        file: Path,
        count: int,
        settings: Mapping[str, JsonScalar],
        updates: int,
    ) -> None:
        self._urls, self._settings = urls, settings
        self.file: Path = file
        self._threads = max(1, usable_cores() // count)
        self._folders = [folder / f"site-{number}" for number in range(count)]
        self.authors: dict[str, int] = {}
        """Each author's client."""
        for number, each in enumerate(self._folders):
            with ParticipantState(each) as state:  # makes the key
                self.authors[state.author] = number
        moving = range(0, count, _MOVES_EVERY) if len(urls) > 1 and updates > 1 else ()
        self._moves = dict.fromkeys(moving, updates - updates // 2)
        """Clients that are to move yet, and how many updates are left to them then."""
        self._commands = [self._command(number, updates - self._moves.get(number, 0)) for number in range(count)]

    def _command(self, number: int, updates: int, *, onward: int = 0) -> ForkedCommand:
        # Of the demo, clients of one cluster, every fourth, begin with different servers, however many there are.
        first = (number + number // 4 + onward) % len(self._urls)
        settings = {**self._settings, SITE: number}
        return ForkedCommand(
            f"site {number}",
            *("client", "run", str(self.file), "--state", str(self._folders[number])),
            *("--transactions", str(updates)),
            *("--every", f"{update_every_s(len(self._folders))}s"),
            *set_options(settings),
            *(word for url in (*self._urls[first:], *self._urls[:first]) for word in ("--server", url)),
            log=self._folders[number].with_suffix(".log"),
            niceness=_NICENESS,
            threads=self._threads,
        )

    def check(self) -> None:
        """Start those anew that move to another server now."""
        for number, command in enumerate(self._commands):
            if command.poll():
                raise command.failure()
            if command.returncode == 0 and number in self._moves:
                self._commands[number] = self._command(number, self._moves.pop(number), onward=1)

    @property
    def have_ended(self) -> bool:
        """Whether all have published everything."""
        return not self._moves and all(command.returncode == 0 for command in self._commands)

    def rests(self) -> list[dict[str, NDArray[Any]]]:
        """What of each client's newest model has stayed with it; all have ended."""
        rests = []
        for folder in self._folders:
            with ParticipantState(folder) as state:
                rests.append(state.newest_rest())
        return rests

    def close(self) -> None:
        """End all."""
        stop(self._commands)
