"""Stochastic block model: communities whose members know one another more often than they know others."""

from dataclasses import dataclass

import networkx as nx
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology.random_graphs import connected


@dataclass(frozen=True, slots=True)
class StochasticBlockParams:
    """Parameters of the stochastic block model."""

    blocks: int = parameter(2, at_least=1, doc="Communities, runs of consecutive nodes as equal as they can be made.")
    p_in: float = parameter(0.5, at_least=0, at_most=1, doc="Probability of an edge within a community.")
    p_out: float = parameter(0.05, at_least=0, at_most=1, doc="Probability of an edge between two communities.")


def stochastic_block(params: StochasticBlockParams, count: int, *, rng: Generator) -> Graph:
    """The stochastic block model, drawn again until connected."""
    blocks, p_in, p_out = params.blocks, params.p_in, params.p_out
    if count < blocks:
        raise ParameterError(f"{count} nodes cannot fill {blocks} blocks; lower blocks")
    sizes = [count // blocks + (block < count % blocks) for block in range(blocks)]
    chances = [[p_in if row == column else p_out for column in range(blocks)] for row in range(blocks)]
    return connected(
        lambda seed: nx.stochastic_block_model(sizes, chances, seed=seed),
        count,
        rng=rng,
        fix=f"raise p_in = {p_in:g} or p_out = {p_out:g}",
    )
