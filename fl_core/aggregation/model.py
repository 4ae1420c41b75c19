"""The average of transactions' models as a model file: what a server hands out and a verifier recomputes."""

from collections.abc import Sequence

from fl_core.aggregation.fedavg import example_weights
from fl_core.aggregation.protocol import Aggregator, VectorSource
from fl_core.dag.genesis import Genesis
from fl_core.weights import encode_flat


def aggregate_model(
    genesis: Genesis, aggregator: Aggregator, sources: Sequence[VectorSource], *, num_examples: Sequence[int]
) -> bytes:
    """Canonical bytes of the aggregate.

    Args:
        genesis: Layout, and the cap on what a model's examples may weigh.
        aggregator: Built from genesis.
        sources: The parents' models, in ascending transaction id.
        num_examples: What each parent's header claims, in the same order.

    Raises:
        ShapeMismatchError, ValueError: As ``Aggregator.aggregate``.
    """
    weights = example_weights(num_examples, genesis.policy.num_examples_cap)
    return encode_flat(genesis.layout, aggregator.aggregate(sources, weights))
