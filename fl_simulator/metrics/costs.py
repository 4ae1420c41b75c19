"""What a round moves and what is stored by DAG-ACFL's Tables III and IV, to stand beside what a run measured.

The tables are transcribed as reported. Two things must be known to compare them with a measured ``Traffic``:

* Table III counts every transaction twice among servers (SDAGFL: among clients), once where it is sent and once where
  it is received; a ``Traffic`` counts a transfer once.
* The table assumes that all clients take part. Here |C| is the round's participants, but SDAGFL's transactions go to
  all other clients, taking part or not.

Formulas are for the methods that DAG-ACFL compares; another method has none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final

from fl_simulator.run.record import RoundRecord
from fl_simulator.strategies.protocol import HASH_BYTES, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The letters of both tables.

    Attributes:
        clients: |C|, all there are.
        participants: Those that take part in a round; Table III has |C| here.
        model_bytes: |ω|.
        data_bytes: |D̄|, the mean size of a client's samples.
        servers: |S|, at least 1.
        groups: g, how many models IFCA sends to each client.
        extra_bytes: |σ|, what a transaction holds beside its model.
        transactions: d·m, the ledger's depth times the mean width of its layers: how many transactions it has.
    """

    clients: int
    participants: int
    model_bytes: int
    data_bytes: int
    servers: int = 1
    groups: int = 1
    extra_bytes: int = 0
    transactions: int = 0

    @property
    def transaction_bytes(self) -> int:
        """|ω| + |σ|."""
        return self.model_bytes + self.extra_bytes

    @property
    def ledger_bytes(self) -> int:
        """L of Eq. 10: d·m·(|ω| + |σ|)."""
        return self.transactions * self.transaction_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFormulas:
    """A method's rows.

    Attributes:
        communication: Table III, as reported.
        round_traffic: Of one round, each transfer once.
        among_clients: Whether what goes up is received by other clients, which Table III counts, too.
        client_storage: Table IV, as reported.
        client_bytes: Its value for one client.
        server_storage: Table IV, as reported; None where there is no server.
        server_bytes: Its value for one server; None as above.
    """

    communication: str
    round_traffic: Callable[[Sizes], Traffic]
    among_clients: bool = False
    client_storage: str
    client_bytes: Callable[[Sizes], int]
    server_storage: str | None = None
    server_bytes: Callable[[Sizes], int] | None = None

    def reported_round_bytes(self, sizes: Sizes) -> int:
        """Table III's value, with what the module's docstring says of it."""
        once = self.round_traffic(sizes)
        return once.up * (2 if self.among_clients else 1) + once.down + 2 * once.between_servers


def _model_each_way(sizes: Sizes) -> Traffic:
    models = sizes.participants * sizes.model_bytes
    return Traffic(up=models, down=models)


def _all_group_models_down(sizes: Sizes) -> Traffic:
    models = sizes.participants * sizes.model_bytes
    return Traffic(up=models, down=models * sizes.groups)


def _broadcast(sizes: Sizes) -> Traffic:
    return Traffic(up=sizes.participants * (sizes.clients - 1) * sizes.transaction_bytes)


def _through_ledger(sizes: Sizes) -> Traffic:
    model_and_hash = sizes.participants * (HASH_BYTES + sizes.model_bytes)
    gossip = sizes.participants * (sizes.servers - 1) * sizes.transaction_bytes
    return Traffic(up=model_and_hash, down=model_and_hash, between_servers=gossip)


def _model_and_data(sizes: Sizes) -> int:
    return sizes.model_bytes + sizes.data_bytes


_ONE_SERVER: Final = CostFormulas(
    communication="2·|C|·|ω|",
    round_traffic=_model_each_way,
    client_storage="|ω| + |D̄|",
    client_bytes=_model_and_data,
    server_storage="|C|·|ω|",
    server_bytes=lambda sizes: sizes.clients * sizes.model_bytes,
)

COST_FORMULAS: Final[Mapping[str, CostFormulas]] = MappingProxyType(
    {
        "fedavg": _ONE_SERVER,
        "flexcfl": _ONE_SERVER,
        "ifca": replace(_ONE_SERVER, communication="(1 + g)·|C|·|ω|", round_traffic=_all_group_models_down),
        "fesem": _ONE_SERVER,
        "sdagfl": CostFormulas(
            communication="2·|C|·(|C| - 1)·(|ω| + |σ|)",
            round_traffic=_broadcast,
            among_clients=True,
            client_storage="L + |ω| + |D̄|",
            client_bytes=lambda sizes: sizes.ledger_bytes + _model_and_data(sizes),
        ),
        "dag-acfl": CostFormulas(
            communication="2·|C|·{|hash| + |ω| + (|S| - 1)·(|ω| + |σ|)}",
            round_traffic=_through_ledger,
            client_storage="|ω| + |D̄|",
            client_bytes=_model_and_data,
            server_storage="L",
            server_bytes=lambda sizes: sizes.ledger_bytes,
        ),
    }
)
"""By strategy."""


def summarise_costs(strategy: str, records: Sequence[RoundRecord], sizes: Sizes) -> dict[str, Any] | None:
    """A run's mean round beside Table III and its end beside Table IV; None for a strategy that they have not.

    Returns:
        ``formula_round_bytes`` is what the table's formula ``communication`` comes to, ``expected_round_bytes`` the
        same with each transfer once, as ``measured_round_bytes``, the mean over rounds, counts it. ``client_storage``
        and ``formula_client_bytes`` are a client's formula and its value, ``server_storage`` and
        ``formula_server_bytes`` a server's, ``measured_ledger_bytes`` the ledger's size; left out where there is none.
    """
    formulas = COST_FORMULAS.get(strategy)
    if formulas is None:
        return None
    expected = formulas.round_traffic(sizes)
    costs = {
        "communication": formulas.communication,
        "formula_round_bytes": formulas.reported_round_bytes(sizes),
        "expected_round_bytes": expected.up + expected.down + expected.between_servers,
        "measured_round_bytes": fmean(each.up_bytes + each.down_bytes + each.between_servers_bytes for each in records),
        "client_storage": formulas.client_storage,
        "server_storage": formulas.server_storage,
        "formula_client_bytes": formulas.client_bytes(sizes),
        "formula_server_bytes": None if formulas.server_bytes is None else formulas.server_bytes(sizes),
        "measured_ledger_bytes": records[-1].storage_bytes,
    }
    return {name: value for name, value in costs.items() if value is not None}
