"""The average of transactions' models as a model file: what a server hands out and a verifier recomputes."""

from collections.abc import Sequence

from fl_core.aggregation.clipping import clipped
from fl_core.aggregation.fedavg import example_weights
from fl_core.aggregation.protocol import Aggregator, VectorSource
from fl_core.dag.genesis import Genesis
from fl_core.models import encode_flat
from fl_core.registry import installed_part
from fl_core.types import Vector32


def aggregate_model(
    genesis: Genesis,
    aggregator: Aggregator,
    sources: Sequence[VectorSource],
    *,
    num_examples: Sequence[int],
    genesis_model: VectorSource | None,
) -> bytes:
    """Canonical bytes of the aggregate; see ``aggregate_values``.

    Raises:
        PartFailedError: The aggregator is another package's, and raised something, or gave no values.
        ShapeMismatchError, ValueError: As ``aggregate_values``.
    """
    with installed_part("aggregator", aggregator):
        values = aggregate_values(genesis, aggregator, sources, num_examples=num_examples, genesis_model=genesis_model)
        return encode_flat(genesis.layout, values)


def aggregate_values(
    genesis: Genesis,
    aggregator: Aggregator,
    sources: Sequence[VectorSource],
    *,
    num_examples: Sequence[int],
    genesis_model: VectorSource | None,
) -> Vector32:
    """The aggregate's values, shape ``(P,)``.

    Args:
        genesis: Layout, the cap on what a model's examples may weigh, and whether norms are clipped.
        aggregator: Built from genesis.
        sources: The parents' models, in ascending transaction id.
        num_examples: What each parent's header claims, in the same order.
        genesis_model: The ledger's initial model; read only where ``growth_rule`` is ``clip``.

    Raises:
        ShapeMismatchError, ValueError: As ``Aggregator.aggregate``; or the ledger clips, and there is no genesis model.
    """
    if genesis.bounds.growth_rule == "clip":
        if genesis_model is None:
            raise ValueError("this ledger clips updates; give the genesis model that they start from")
        sources = clipped(sources, genesis_model=genesis_model, growth=genesis.bounds.max_step_growth)
    weights = example_weights(num_examples, genesis.num_examples_cap)
    return aggregator.aggregate(sources, weights)
