"""What a round moves and what is stored by DAG-ACFL's Tables III and IV, to stand beside what a run measured.

The tables are transcribed as reported. Two things must be known to compare them with a measured ``Traffic``:

* Table III counts every transaction twice among servers (SDAGFL: among clients), once where it is sent and once where
  it is received; a ``Traffic`` counts a transfer once. ``expected`` is the formula in a ``Traffic``'s terms.
* The table assumes that all clients take part. Here |C| is the round's participants, but SDAGFL's transactions go to
  all other clients, taking part or not.

Formulas are for the methods that DAG-ACFL compares; another method has none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import Final

from fl_simulator.run.record import CostSummary, RoundRecord
from fl_simulator.strategies.protocol import HASH_BYTES, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSizes:
    """The letters of Table III.

    Attributes:
        clients: |C|, all there are.
        participants: Those that take part in the round; the table has |C| here.
        model_bytes: |ω|.
        servers: |S|, at least 1.
        groups: g, how many models IFCA sends to each client.
        extra_bytes: |σ|, what a transaction holds beside its model.
        hash_bytes: |hash|.
    """

    clients: int
    participants: int
    model_bytes: int
    servers: int = 1
    groups: int = 1
    extra_bytes: int = 0
    hash_bytes: int = HASH_BYTES

    @property
    def transaction_bytes(self) -> int:
        """|ω| + |σ|."""
        return self.model_bytes + self.extra_bytes


@dataclass(frozen=True, slots=True)
class CommunicationFormula:
    """A row of Table III.

    Attributes:
        text: As reported.
        up: From clients; for SDAGFL, to other clients.
        down: To clients.
        between_servers: Each transfer once; the reported formula has it twice.
    """

    text: str
    up: Callable[[RoundSizes], int]
    down: Callable[[RoundSizes], int]
    between_servers: Callable[[RoundSizes], int] = lambda _: 0

    def printed_bytes(self, sizes: RoundSizes) -> int:
        """The formula's value, in bytes a round."""
        return self.up(sizes) + self.down(sizes) + 2 * self.between_servers(sizes)

    def expected(self, sizes: RoundSizes) -> Traffic:
        """The same as a run counts it, each transfer once."""
        return Traffic(up=self.up(sizes), down=self.down(sizes), between_servers=self.between_servers(sizes))


@dataclass(frozen=True, slots=True)
class PeerFormula(CommunicationFormula):
    """A row of Table III without servers: what one client sends is what others receive."""

    def expected(self, sizes: RoundSizes) -> Traffic:
        """See ``CommunicationFormula.expected``."""
        return Traffic(up=self.up(sizes))


def _one_model_each(sizes: RoundSizes) -> int:
    return sizes.participants * sizes.model_bytes


def _all_group_models_each(sizes: RoundSizes) -> int:
    return sizes.participants * sizes.groups * sizes.model_bytes


def _broadcast(sizes: RoundSizes) -> int:
    return sizes.participants * (sizes.clients - 1) * sizes.transaction_bytes


def _model_and_hash_each(sizes: RoundSizes) -> int:
    return sizes.participants * (sizes.hash_bytes + sizes.model_bytes)


def _gossip(sizes: RoundSizes) -> int:
    return sizes.participants * (sizes.servers - 1) * sizes.transaction_bytes


_THROUGH_ONE_SERVER: Final = CommunicationFormula("2·|C|·|ω|", _one_model_each, _one_model_each)

TABLE_III: Final[Mapping[str, CommunicationFormula]] = MappingProxyType(
    {
        "fedavg": _THROUGH_ONE_SERVER,
        "flexcfl": _THROUGH_ONE_SERVER,
        "ifca": CommunicationFormula("(1 + g)·|C|·|ω|", _one_model_each, _all_group_models_each),
        "fesem": _THROUGH_ONE_SERVER,
        "sdagfl": PeerFormula("2·|C|·(|C| - 1)·(|ω| + |σ|)", _broadcast, _broadcast),
        "dag-acfl": CommunicationFormula(
            "2·|C|·{|hash| + |ω| + (|S| - 1)·(|ω| + |σ|)}", _model_and_hash_each, _model_and_hash_each, _gossip
        ),
    }
)
"""Bytes of one round, by strategy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSizes:
    """The letters of Table IV.

    Attributes:
        clients: |C|.
        model_bytes: |ω|.
        data_bytes: |D̄|, the mean size of a client's samples.
        extra_bytes: |σ|.
        transactions: d·m, the ledger's depth times the mean width of its layers: how many transactions it has.
    """

    clients: int
    model_bytes: int
    data_bytes: int
    extra_bytes: int = 0
    transactions: int = 0

    @property
    def ledger_bytes(self) -> int:
        """L of Eq. 10: d·m·(|ω| + |σ|)."""
        return self.transactions * (self.model_bytes + self.extra_bytes)


@dataclass(frozen=True, slots=True)
class StorageFormula:
    """A row of Table IV.

    Attributes:
        client_text: As reported.
        server_text: As reported; None where there is no server.
        client_bytes: Of one client.
        server_bytes: Of one server, None as above.
    """

    client_text: str
    server_text: str | None
    client_bytes: Callable[[StorageSizes], int]
    server_bytes: Callable[[StorageSizes], int] | None


def _model_and_data(sizes: StorageSizes) -> int:
    return sizes.model_bytes + sizes.data_bytes


_CENTRAL: Final = StorageFormula(
    "|ω| + |D̄|", "|C|·|ω|", _model_and_data, lambda sizes: sizes.clients * sizes.model_bytes
)

TABLE_IV: Final[Mapping[str, StorageFormula]] = MappingProxyType(
    {
        "fedavg": _CENTRAL,
        "flexcfl": _CENTRAL,
        "ifca": _CENTRAL,
        "fesem": _CENTRAL,
        "sdagfl": StorageFormula(
            "L + |ω| + |D̄|", None, lambda sizes: sizes.ledger_bytes + _model_and_data(sizes), None
        ),
        "dag-acfl": StorageFormula("|ω| + |D̄|", "L", _model_and_data, lambda sizes: sizes.ledger_bytes),
    }
)
"""Bytes kept, by strategy."""


@dataclass(frozen=True, slots=True)
class CommunicationComparison:
    """A round's traffic beside Table III.

    Attributes:
        text: The table's formula.
        printed_bytes: Its value.
        expected: Its value as a run counts.
        measured: What the run counted.
    """

    text: str
    printed_bytes: int
    expected: Traffic
    measured: Traffic

    @property
    def ratio(self) -> float:
        """Measured to expected, all directions together; 1 is the formula to the byte."""
        expected = self.expected.up + self.expected.down + self.expected.between_servers
        return (self.measured.up + self.measured.down + self.measured.between_servers) / expected


def compare_communication(strategy: str, measured: Traffic, sizes: RoundSizes) -> CommunicationComparison | None:
    """A round's ``measured`` traffic beside DAG-ACFL's formula; None for a strategy that Table III has not."""
    formula = TABLE_III.get(strategy)
    if formula is None:
        return None
    return CommunicationComparison(formula.text, formula.printed_bytes(sizes), formula.expected(sizes), measured)


def summarise_costs(
    strategy: str, records: Sequence[RoundRecord], *, moved: RoundSizes, stored: StorageSizes
) -> CostSummary | None:
    """A run's mean round beside Table III and its end beside Table IV; None for a strategy that they have not.

    Args:
        strategy: The registry's name.
        records: All rounds, at least one.
        moved: The letters of Table III.
        stored: The letters of Table IV at the run's end.
    """
    communication, storage = TABLE_III.get(strategy), TABLE_IV.get(strategy)
    if communication is None or storage is None:
        return None
    expected = communication.expected(moved)
    return CostSummary(
        communication=communication.text,
        formula_round_bytes=communication.printed_bytes(moved),
        expected_round_bytes=expected.up + expected.down + expected.between_servers,
        measured_round_bytes=fmean(each.up_bytes + each.down_bytes + each.between_servers_bytes for each in records),
        client_storage=storage.client_text,
        server_storage=storage.server_text,
        formula_client_bytes=storage.client_bytes(stored),
        formula_server_bytes=None if storage.server_bytes is None else storage.server_bytes(stored),
        measured_ledger_bytes=records[-1].storage_bytes,
    )
