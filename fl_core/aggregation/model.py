"""The average of transactions' models as a model file: what a server hands out and a verifier recomputes."""

from collections.abc import Sequence

import numpy as np

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
) -> bytes:
    """Canonical bytes of the aggregate; see ``aggregate_values``.

    Raises:
        PartFailedError: The aggregator is another package's, and raised something, or gave no values.
        ShapeMismatchError, ValueError: As ``aggregate_values``.
    """
    with installed_part("aggregator", aggregator):
        values = aggregate_values(genesis, aggregator, sources, num_examples=num_examples)
        return encode_flat(genesis.layout, values)


def shares_of(genesis: Genesis, aggregator: Aggregator, num_examples: Sequence[int]) -> tuple[float, ...]:
    """The largest part that each model can have of a value of their aggregate, float32 (``Aggregator.shares``).

    Args:
        genesis: What models weigh.
        aggregator: Built from genesis.
        num_examples: What each parent's header claims.

    Raises:
        PartFailedError: As ``aggregate_model``.
    """
    with installed_part("aggregator", aggregator):
        shares = aggregator.shares(model_weights(genesis, num_examples))
        return tuple(np.array(shares, np.float32).tolist())


def aggregate_values(
    genesis: Genesis,
    aggregator: Aggregator,
    sources: Sequence[VectorSource],
    *,
    num_examples: Sequence[int],
) -> Vector32:
    """The aggregate's values, shape ``(P,)``.

    Args:
        genesis: Layout, and what models weigh.
        aggregator: Built from genesis.
        sources: The parents' models, in ascending transaction id.
        num_examples: What each parent's header claims, in the same order.

    Raises:
        ShapeMismatchError, ValueError: As ``Aggregator.aggregate``.
    """
    return aggregator.aggregate(sources, model_weights(genesis, num_examples))


def model_weights(genesis: Genesis, num_examples: Sequence[int]) -> list[float]:
    """What models weigh in an average: all alike, or by examples; see ``example_weights``."""
    if genesis.weights.name == "equal":
        return example_weights([min(count, 1) for count in num_examples], factor=1)
    return example_weights(num_examples, factor=genesis.examples_factor)
