"""The state of a running demo, moved by events alone; what is shown is made from it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dag_acfl.demo.events import BaselineDone, BaselineStep, Event, Failed, Finished, Joined, Observed, Published


@dataclass(slots=True)
class ClientRow:
    """One client's line of the table."""

    cluster: int
    joined: bool = False
    published: int = 0
    approved: Counter[str] = field(default_factory=Counter)
    """Approved transactions, genesis and its own included."""
    rule: str = ""
    accuracies: list[float] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)
    """The servers that it has published on, from 0, one entry for each stay."""
    has_just_moved: bool = False
    """Whether the newest transaction went to another server than the one before."""
    finished: Finished | None = None


@dataclass(slots=True)
class Board:
    """Everything that has been heard.

    Args:
        clusters: Each client's true cluster.
        transactions: That each client is to publish.
        servers: Number of ledger servers; several are observed.
    """

    clusters: Sequence[int]
    transactions: int
    servers: int = 1
    rows: list[ClientRow] = field(init=False)
    authors: dict[str, int] = field(default_factory=dict)
    """Client of each author id."""
    client_of: dict[str, int] = field(default_factory=dict)
    """Client of each transaction."""
    published: list[Published] = field(default_factory=list)
    baselines: dict[str, tuple[float, ...]] = field(default_factory=dict)
    baseline_step: BaselineStep | None = None
    observed: Observed | None = None
    failures: list[Failed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = [ClientRow(cluster) for cluster in self.clusters]

    @property
    def total(self) -> int:
        """Transactions of all clients together."""
        return self.transactions * len(self.rows)

    @property
    def has_all_transactions(self) -> bool:
        """Whether everybody has published everything."""
        return len(self.published) == self.total

    @property
    def finished(self) -> list[Finished]:
        """The clients' last words, by client."""
        return [row.finished for row in self.rows if row.finished is not None]

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is awaited."""
        is_observed = self.servers == 1 or self.observed is not None
        return len(self.finished) == len(self.rows) and len(self.baselines) == 2 and is_observed

    @property
    def switches(self) -> int:
        """How often a client has published on another server than the time before."""
        return sum(max(0, len(row.servers) - 1) for row in self.rows)

    def hear(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case Joined():
                self.rows[event.client].joined = True
                self.authors[event.author] = event.client
            case Published():
                self._hear_published(event)
            case Finished():
                self.rows[event.client].finished = event
            case BaselineStep():
                self.baseline_step = event
            case BaselineDone():
                self.baselines[event.name] = event.accuracies
            case Observed():
                self.observed = event
            case Failed():
                self.failures.append(event)

    def _hear_published(self, event: Published) -> None:
        row = self.rows[event.client]
        row.published, row.rule = event.number, event.rule
        row.accuracies.append(event.accuracy)
        row.has_just_moved = bool(row.servers) and row.servers[-1] != event.server
        if not row.servers or row.has_just_moved:
            row.servers.append(event.server)
        row.approved.update(event.approved)
        self.client_of[event.transaction] = event.client
        self.published.append(event)

    def approvals(self, row: ClientRow) -> tuple[int, int]:
        """How many approvals of others' transactions went to the row's own cluster, and to foreign ones.

        Counted when asked, because a transaction may be approved before it is heard of here: every client
        speaks through a pipe of its own.
        """
        same = foreign = 0
        for transaction, times in row.approved.items():
            client = self.client_of.get(transaction)
            if client is None or self.rows[client] is row:
                continue
            if self.clusters[client] == row.cluster:
                same += times
            else:
                foreign += times
        return same, foreign
