"""Stochastic block model: communities whose members know one another more often than they know others."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.topology.protocol import Edge
from fl_simulator.graphs.topology.random_graphs import connected

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "stochastic-block"


@dataclass(frozen=True, slots=True)
class StochasticBlockParams:
    """Parameters of the stochastic block model."""

    blocks: int = parameter(2, at_least=1, doc="Communities, runs of consecutive nodes as equal as they can be made.")
    p_in: float = parameter(0.5, at_least=0, at_most=1, doc="Probability of an edge within a community.")
    p_out: float = parameter(0.05, at_least=0, at_most=1, doc="Probability of an edge between two communities.")


@dataclass(frozen=True, slots=True)
class StochasticBlock:
    """The stochastic block model, drawn again until connected."""

    params: StochasticBlockParams = field(default_factory=StochasticBlockParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:
        """See ``Topology.edges``."""
        import networkx as nx  # noqa: PLC0415 -- see drawing

        blocks, p_in, p_out = self.params.blocks, self.params.p_in, self.params.p_out
        if count < blocks:
            raise ParameterError(f"topology {NAME!r}: {count} nodes cannot fill {blocks} blocks; lower blocks")
        sizes = [count // blocks + (block < count % blocks) for block in range(blocks)]
        chances = [[p_in if row == column else p_out for column in range(blocks)] for row in range(blocks)]
        return connected(
            lambda seed: nx.stochastic_block_model(sizes, chances, seed=seed),
            count,
            rng=rng,
            owner=f"topology {NAME!r}",
            fix=f"raise p_in = {p_in:g} or p_out = {p_out:g}",
        )
