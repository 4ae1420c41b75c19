"""What Flower's strategies make of the same models: writes ``flower_oracle.json``, which the unit tests read.

Flower is no dependency of the product; run this by the environment of ``make bench-peers``, after its pin there
has changed or a case was added:

    .venv-peers/bin/python tests/reference/flower_oracle.py

Models are drawn from fixed seeds and stand in the file, so that the comparison needs neither Flower nor the same
generator. Where definitions differ the cases keep to what both say the same of:

* Multi-Krum: Flower weighs the chosen by their examples, we do not (they are claims): all have as many here.
* Krum with n < 2f + 3: Flower keeps f, we lower it to (n - 3) // 2: no such case here. With one neighbour
  (n = f + 3) the two models nearest to each other tie, and Flower's rounding breaks the tie: no such case either.
* Distances: Flower makes them from a Gram matrix by BLAS in float32, we by differences: no near-ties here.
* Median and trimmed mean: the same up to the last bit (Flower sums in whatever order ``partition`` leaves).
"""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedMedian, FedTrimmedAvg, Krum, MultiKrum
from flwr.supercore.task_identity import TaskIdentity

GOLDEN = Path(__file__).with_suffix(".json")
VALUES = 12


def drawn(seed: int, count: int, attackers: int) -> np.ndarray:
    """Models around one point; the first ``attackers`` of them are scaled, in float32."""
    rng = np.random.default_rng(seed)
    models = rng.standard_normal(VALUES) + 0.3 * rng.standard_normal((count, VALUES))
    models[:attackers] *= -20
    return models.astype(np.float32)


def replies(models: np.ndarray) -> list[Message]:
    """What clients would have answered: two tensors each, ten examples."""
    return [
        Message(
            content=RecordDict(
                {
                    "arrays": ArrayRecord({"a": Array(model[:8].reshape(2, 4)), "b": Array(model[8:])}),
                    "metrics": MetricRecord({"num-examples": 10}),
                }
            ),
            dst_node_id=node,
            message_type="train",
        )
        for node, model in enumerate(models)
    ]


def written(values: np.ndarray) -> list[float]:
    """Float32 values as the shortest numbers that read back the same."""
    return [float(str(value)) for value in values.astype(np.float32)]


def answer(strategy: Any, models: np.ndarray) -> list[float]:
    """The strategy's aggregate as one vector."""
    arrays, _ = strategy.aggregate_train(1, replies(models))
    assert arrays is not None
    return written(np.concatenate([arrays[tensor].numpy().ravel() for tensor in ("a", "b")]))


def main() -> None:
    """Write the golden file."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # a message asks whose it is
    cases = []
    for seed, count, attackers in ((1, 5, 1), (2, 6, 1), (3, 9, 3), (4, 12, 2), (5, 1, 0), (6, 2, 0), (7, 3, 1)):
        models = drawn(seed, count, attackers)
        rules: list[tuple[str, dict[str, float], Any]] = [("median", {}, FedMedian())]
        rules += [
            ("trimmed-mean", {"trim_share": share}, FedTrimmedAvg(beta=share)) for share in (0.0, 0.1, 0.2, 0.35, 0.49)
        ]
        for byzantine in (0, 1, 2, 3):
            if count < max(2 * byzantine + 3, byzantine + 4):
                continue
            rules.append(("krum", {"byzantine": byzantine}, Krum(num_malicious_nodes=byzantine)))
            rules += [
                (
                    "multi-krum",
                    {"byzantine": byzantine, "keep": keep},
                    MultiKrum(num_malicious_nodes=byzantine, num_nodes_to_select=keep),
                )
                for keep in range(1, count - byzantine + 1)
            ]
        answers = [
            {"aggregator": name, "params": params, "aggregate": answer(strategy, models)}
            for name, params, strategy in rules
        ]
        cases.append({"seed": seed, "models": [written(model) for model in models], "answers": answers})
    document = {"flwr": importlib.metadata.version("flwr"), "cases": cases}
    GOLDEN.write_text(json.dumps(document, separators=(",", ":")).replace('{"aggregator"', '\n{"aggregator"') + "\n")
    print(  # noqa: T201 (a program for people)
        f"written: {GOLDEN.name}, {sum(len(case['answers']) for case in cases)} answers"
    )


if __name__ == "__main__":
    main()
