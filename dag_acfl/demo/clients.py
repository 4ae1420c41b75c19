"""The demo's clients: ``dag-acfl client run`` with ``client.py``, each a process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dag_acfl.demo import client
from dag_acfl.demo.processes import Command, stop
from fl_client.state import ParticipantState

_MOVES_EVERY: Final = 5
"""Every fifth client moves; coprime to four clusters: of sixteen clients four, one of each cluster."""
_NICENESS: Final = 5
"""Who trains steps back a little behind the servers, which sixteen clients would leave a tenth of a core each."""


class Clients:
    """The clients of one ledger: each knows all servers; some change theirs in the middle.

    Args:
        folder: For their states and logs.
        urls: The servers.
        count: How many clients.
        updates: That each publishes.
        seed: Decides who has which digits.
    """

    def __init__(self, folder: Path, urls: Sequence[str], *, count: int, updates: int, seed: int) -> None:
        self._urls, self._count, self._seed = urls, count, seed
        self._folders = [folder / f"{number + 1:02}" for number in range(count)]
        self.authors: dict[str, int] = {}
        """Each author's client."""
        for number, each in enumerate(self._folders):
            with ParticipantState(each) as state:  # makes the key
                self.authors[state.author] = number
        moving = range(0, count, _MOVES_EVERY) if len(urls) > 1 and updates > 1 else ()
        self._moves = dict.fromkeys(moving, updates - updates // 2)
        """Clients that are to move yet, and how many updates are left to them then."""
        self._commands = [self._command(number, updates - self._moves.get(number, 0)) for number in range(count)]

    def _command(self, number: int, updates: int, *, onward: int = 0) -> Command:
        # Clients of one cluster, every fourth, begin with different servers, whatever the number of servers.
        first = (number + number // len(client.ANGLES) + onward) % len(self._urls)
        settings = {"site": number, "count": self._count, "seed": self._seed}
        return Command(
            f"client {number + 1}",
            *("client", "run", str(Path(client.__file__)), "--state", str(self._folders[number])),
            *("--transactions", str(updates)),
            *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
            *(word for url in (*self._urls[first:], *self._urls[:first]) for word in ("--server", url)),
            log=self._folders[number].with_suffix(".log"),
            niceness=_NICENESS,
        )

    def check(self) -> None:
        """Start those anew that move to another server now.

        Raises:
            DemoError: A client has failed.
        """
        for number, command in enumerate(self._commands):
            if command.poll():
                raise command.failure()
            if command.returncode == 0 and number in self._moves:
                self._commands[number] = self._command(number, self._moves.pop(number), onward=1)

    @property
    def have_ended(self) -> bool:
        """Whether all have published everything."""
        return not self._moves and all(command.returncode == 0 for command in self._commands)

    def close(self) -> None:
        """End all."""
        stop(self._commands)
