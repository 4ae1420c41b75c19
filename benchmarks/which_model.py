"""Which model a client of the demo should use: what it was given last, what it made of that, or the best so far.

Each client chooses by its own 50 test samples; what that is worth is judged by the digits that no client of the run has
seen, turned as the client's own. Averages are recomputed from the ledger and must be those that training began from.
Writes ``benchmarks/results/which_model.json``.

    python benchmarks/which_model.py
"""

import csv
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from harness import Result, arguments

from fl_client.training import Arrays, TorchTrainer
from fl_core.aggregation import FedAvg
from fl_core.aggregation.model import aggregate_model
from fl_core.dag.genesis import parse_genesis
from fl_core.dag.transaction import Kind
from fl_core.models import decode_model
from fl_core.stored_models import StoredModel
from fl_core.types import digest_of
from fl_simulator.data.digits import load_digits
from fl_simulator.data.rotated import ClientData, rotated_digits
from fl_simulator.models.catalogue import MODELS
from fl_simulator.models.classifiers import classifier
from ledger_server.admin.bundle import Bundle

SEEDS = (0, 1, 2)
CHOICES = ("given last", "trained last", "the better of these two", "best of all")


def main() -> None:
    options = arguments("Which model to use, given, trained or best.").parse_args()
    torch.set_num_threads(1)
    measured: dict[str, list[float]] = {choice: [] for choice in CHOICES}
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as name:
            command = ["-m", "dag_acfl", "demo", "--seed", str(seed), "--port", "0", "--out", name]
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
            sites = rotated_digits(train_per_client=25, seed=seed)
            for number, models in enumerate(models_of(Path(name), len(sites))):
                for choice, accuracy in judged(sites[number], unseen(sites, number), models).items():
                    measured[choice].append(accuracy)
    result = Result("which_model", "accuracy on unseen digits of the demo's 48 clients, by choice", options.date)
    clients = len(measured[CHOICES[0]]) // len(SEEDS)
    result.facts = {
        choice: {
            "mean": statistics.mean(values),
            "each_seed": [statistics.mean(values[at : at + clients]) for at in range(0, len(values), clients)],
            "worst_client": min(values),
        }
        for choice, values in measured.items()
    }
    result.write()


def models_of(folder: Path, clients: int) -> Iterator[list[tuple[Arrays, Arrays]]]:
    """Of each client the models that it was given, and what it made of each, oldest first."""
    with Bundle(folder / "ledger.dagacfl") as bundle:
        headers = {each.id: each.header for _, each in bundle.transactions()}
        (first,) = (each for each in headers.values() if each.kind is Kind.GENESIS)
        genesis = parse_genesis(bundle.attachment(first.attachment_digest) or b"")
        with (folder / "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        for number in range(clients):
            mine = [headers[row["transaction"]] for row in rows if int(row["client"]) == number + 1]  # type: ignore[index]
            models: list[tuple[Arrays, Arrays]] = []
            for header in mine[1:]:  # a joiner's first start is a model of its own, which is in no ledger
                parents = [headers[parent] for parent in sorted(header.parents)]
                sources = [StoredModel(bundle, each.model_digest, genesis.layout) for each in parents]
                counts = [each.num_examples for each in parents]
                given = aggregate_model(genesis, FedAvg(), sources, num_examples=counts)
                assert digest_of(given) == header.start
                trained = bundle.read_model(header.model_digest, 0, header.model_size)
                models.append((decode_model(genesis.layout, given), decode_model(genesis.layout, trained)))
            yield models


def judged(own: ClientData, judge: ClientData, models: list[tuple[Arrays, Arrays]]) -> dict[str, float]:
    """Accuracy, on what nobody has seen, of what each choice would use."""

    def measure(data: ClientData, arrays: Arrays) -> tuple[float, float]:
        test = data.test_x, data.test_y
        metrics = TorchTrainer(classifier(MODELS["digits-mlp"], (8, 8)), test, test_data=test).evaluate(arrays)
        return metrics["accuracy"], -metrics["loss"]

    given, trained = models[-1]
    offered = [given], [trained], [given, trained], [each for pair in models for each in pair]
    return {
        choice: measure(judge, max(several, key=lambda arrays: measure(own, arrays)))[0]
        for choice, several in zip(CHOICES, offered, strict=True)
    }


def unseen(sites: list[ClientData], number: int) -> ClientData:
    """The digits that no site has, turned as those of one site."""
    images, labels = load_digits()
    seen = {np.rot90(image, -each.cluster).tobytes() for each in sites for image in (*each.train_x, *each.test_x)}
    left = np.array([image.tobytes() not in seen for image in images])
    turned = np.ascontiguousarray(np.rot90(images[left], sites[number].cluster, axes=(1, 2)))
    return ClientData(turned[:0], labels[:0], turned, labels[left], sites[number].cluster)


if __name__ == "__main__":
    main()
