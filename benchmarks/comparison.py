"""What of a model is compared: the last layer, or all that is trained; and the filters and the floor for it.

Training is that of ``selection_keep_own.py``: virtual time, few at once, members of a cluster that leave.

*Calibration* is on Fashion-MNIST, which no table with a selector in it uses: clients are given the average of their own
cluster, so that every rule is asked the same questions, of every comparison. Of each rule: *foreign*, the share of
questions where it took a foreign model; *alone*, the share of those with an own tip on offer where it took none.

*Report* is on other data (digits, MNIST), each comparison in runs of its own, with the rule ``robust`` as it is by
default: accuracy, share of foreign selections, runs whose clusters are the true ones.

Writes ``benchmarks/results/comparison.json``. Minutes on one core.

    OMP_NUM_THREADS=1 python benchmarks/comparison.py
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import selection_keep_own as training
import torch
from numpy.typing import NDArray
from selection_keep_own import Compared, Perceptron
from torch import nn

from fl_client.training import TorchTrainer
from fl_core.dag.genesis import MAX_EXACT, SKETCH
from fl_core.models import ModelLayout, similarity_vector
from fl_core.selection import SelectionRequest
from fl_core.similarity import CandidateVectors
from fl_core.sketch import Sketch
from fl_core.types import Vector32
from fl_simulator.data.rotated import ClientData, rotated_digits

OUT = training.OUT.with_name("comparison.json")
SHORT = {"samples": 800, "chains": 2, "thin": 1}
"""BEAST's chains, which choose as its long ones do (docs/selection.md)."""
RULES: dict[str, dict[str, float]] = {
    **{f"floor {floor}": {"min_update_similarity": floor} for floor in (0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)},
    **{f"drop {drop}": {"min_drop": drop} for drop in (0.02, 0.1, 0.2)},
    **{f"gap {gap}": {"gap_filter": gap} for gap in (0.1, 0.5)},
}
LAST, ALL, SKETCHED, STATISTICS = "last layer", "all that is trained", "sketch", "with statistics"

Load = Callable[[int], Sequence[ClientData]]
Question = tuple[SelectionRequest, NDArray[np.bool_]]
"""What a selector is asked, and which candidates are of the asker's cluster."""


class Normalised:
    """A perceptron with a batch normalisation behind its hidden layer, trained as a client trains it."""

    def __init__(self, inputs: int, hidden: int) -> None:
        self.module = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )
        some = TorchTrainer(self.module, (torch.zeros(2, inputs), torch.zeros(2, dtype=torch.int64)))
        self.layout, self.buffers = some.layout(), some.buffers()

    def initial(self, rng: np.random.Generator) -> Vector32:
        torch.manual_seed(int(rng.integers(2**31)))
        for layer in self.module:
            if isinstance(layer, nn.Linear | nn.BatchNorm1d):
                layer.reset_parameters()
        return self._flat({name: each.numpy() for name, each in self.module.state_dict().items()})

    def train(self, weights: Vector32, data: ClientData, epochs: int, _: np.random.Generator) -> Vector32:
        return self._flat(self._trainer(data).train(self._arrays(weights), epochs=epochs).arrays)

    def accuracy(self, weights: Vector32, data: ClientData) -> float:
        return self._trainer(data).evaluate(self._arrays(weights))["accuracy"]

    def _trainer(self, data: ClientData) -> TorchTrainer:
        return TorchTrainer(
            self.module,
            (data.train_x, data.train_y),
            test_data=(data.test_x, data.test_y),
            learning_rate=training.LEARNING_RATE,
            batch_size=training.BATCH,
        )

    def _flat(self, arrays: Mapping[str, Any]) -> Vector32:
        return np.concatenate([arrays[spec.name].ravel() for spec in self.layout.tensors])

    def _arrays(self, weights: Vector32) -> dict[str, Any]:
        pieces = zip(self.layout.tensors, self.layout.tensor_slices, strict=True)
        return {spec.name: weights[piece].reshape(spec.shape) for spec, piece in pieces}


Model = Perceptron | Normalised


def comparisons(model: Model) -> dict[str, Compared]:
    """What of a model can be compared."""
    if isinstance(model, Perceptron):
        first, size = (model.inputs + 1) * model.hidden, len(model.initial(np.random.default_rng(0)))
        views: dict[str, Compared] = {LAST: lambda weights: weights[first:], ALL: lambda weights: weights}
        if size > MAX_EXACT:
            dimensions, seed = (int(SKETCH.params[name]) for name in ("dimensions", "seed"))
            views[SKETCHED] = Sketch(size, dimensions=dimensions, seed=seed).of
        return views
    layout: ModelLayout = model.layout
    names = [spec.name for spec in layout.tensors]
    trained = [name for name in names if name not in model.buffers]
    parts = {LAST: ["4.bias", "4.weight"], ALL: trained, STATISTICS: names}
    return {view: partial(similarity_vector, layout, names=those) for view, those in parts.items()}


# -- calibration ---------------------------------------------------------------------------------------------------


class Questions(training.Run):
    """A run by the true clusters that keeps every question, as each comparison would put it."""

    def __init__(self, data: Sequence[ClientData], model: Model, seed: int, views: Mapping[str, Compared]) -> None:
        super().__init__(data, model, training.RULES["truth"], seed)
        self.views = views
        self.asked: dict[str, list[Question]] = {name: [] for name in views}

    def ask(self, client: int, mine: Vector32, offered: Sequence[training.Site]) -> SelectionRequest:
        request = super().ask(client, mine, offered)
        same = np.array([self.data[site.author].cluster == self.data[client].cluster for site in offered], dtype=bool)
        for name, compared in self.views.items():
            tips = CandidateVectors(compared(self.genesis))
            for site in offered:
                tips.add(site.id, compared(site.model))
            (found,) = tips.compare(compared(mine)[None], [[site.id for site in offered]])
            put = replace(request, similarities=found.models, update_similarities=found.updates)
            self.asked[name].append((put, same))
        return request


def calibrate(model: Model, load: Load) -> dict[str, dict[str, Any]]:
    """Of each comparison: levels of similarity, and what each rule does."""
    views = comparisons(model)
    asked: dict[str, list[Question]] = {name: [] for name in views}
    for seed in training.SEEDS:
        run = Questions(load(seed), model, seed, views)
        run.go()
        for name, questions in run.asked.items():
            asked[name] += questions
    return {name: judged(questions) for name, questions in asked.items()}


def judged(questions: Sequence[Question]) -> dict[str, Any]:
    """Levels of update similarity, and of each rule the shares foreign and alone."""
    own = np.concatenate([put.update_similarities[same] for put, same in questions])
    foreign = np.concatenate([put.update_similarities[~same] for put, same in questions])
    levels = {"own, lowest 5 %": np.quantile(own, 0.05), "foreign, highest 5 %": np.quantile(foreign, 0.95)}
    found: dict[str, Any] = {**levels}
    for rule, params in RULES.items():
        choose = by_selector(**params)
        taken = [same[choose(put, same)] for put, same in questions]
        lonely = [not those.any() for those, (_, same) in zip(taken, questions, strict=True) if same.any()]
        found[rule] = {"foreign": np.mean([not those.all() for those in taken]), "alone": np.mean(lonely)}
    return rounded(found)


def rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: rounded(each) if isinstance(each, Mapping) else round(float(each), 3) for name, each in figures.items()
    }


def by_selector(**params: Any) -> training.Chooser:
    return training.by_selector(**SHORT, **params)


# -- data ----------------------------------------------------------------------------------------------------------


def standardised(load: Load, seed: int) -> list[ClientData]:
    """Mean 0 and standard deviation 1 over all clients' training samples."""
    clients = load(seed)
    pixels = np.concatenate([client.train_x for client in clients])
    mean, deviation = pixels.mean(), pixels.std()

    def scaled(images: NDArray[np.float32]) -> NDArray[np.float32]:
        done: NDArray[np.float32] = (images - mean) / deviation
        return done

    return [replace(each, train_x=scaled(each.train_x), test_x=scaled(each.test_x)) for each in clients]


def small(load: Load, seed: int) -> list[ClientData]:
    """Images of 7 x 7 pixels, each the mean of 16, and 60 training samples."""

    def shrunk(images: NDArray[np.float32]) -> NDArray[np.float32]:
        means: NDArray[np.float32] = images.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4))
        return means

    return [
        replace(each, train_x=shrunk(each.train_x[:60]), train_y=each.train_y[:60], test_x=shrunk(each.test_x))
        for each in load(seed)
    ]


def calibration_tasks() -> dict[str, tuple[Model, Load]]:
    turned: Load = partial(training.rotated_images, name="fashion-mnist")
    labels: Load = partial(training.label_clusters, alike=False, name="fashion-mnist")
    return {
        "turned": (Perceptron(784, 32), turned),
        "turned, standardised": (Perceptron(784, 32), partial(standardised, turned)),
        "turned, 128 hidden": (Perceptron(784, 128), turned),
        "turned, batch norm": (Normalised(784, 32), turned),
        "turned, small": (Perceptron(49, 32), partial(small, turned)),
        "turned, small, 16 hidden": (Perceptron(49, 16), partial(small, turned)),
        "label shares": (Perceptron(784, 32), labels),
        "label shares, standardised": (Perceptron(784, 32), partial(standardised, labels)),
        "label shares, batch norm": (Normalised(784, 32), labels),
    }


def report_tasks() -> dict[str, tuple[Model, Load]]:

    def digits(seed: int, train: int = 60) -> list[ClientData]:
        return rotated_digits(train_per_client=train, seed=seed)

    labels: Load = partial(training.label_clusters, alike=False)
    return {
        "digits, turned": (Perceptron(64, 32), digits),
        "digits, turned, 20 images": (Perceptron(64, 32), partial(digits, train=20)),
        "digits, turned, standardised": (Perceptron(64, 32), partial(standardised, digits)),
        "digits, turned, batch norm": (Normalised(64, 32), digits),
        "MNIST, label shares, 128 hidden": (Perceptron(784, 128), labels),
        "MNIST, label shares, 128 hidden, standardised": (Perceptron(784, 128), partial(standardised, labels)),
        "MNIST, turned, 128 hidden": (Perceptron(784, 128), training.rotated_images),
        "MNIST, label shares, batch norm": (Normalised(784, 32), labels),
    }


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "what": "comparisons of models in asynchronous training with churn",
        "seeds": training.SEEDS,
        "calibration on Fashion-MNIST": {},
        "report": {},
    }
    for task, (model, load) in calibration_tasks().items():
        found["calibration on Fashion-MNIST"][task] = calibrate(model, load)
        print(task, json.dumps(found["calibration on Fashion-MNIST"][task]), flush=True)
    for task, (model, load) in report_tasks().items():
        found["report"][task] = {
            view: training.measure(model, load, by_selector(), compared)
            for view, compared in comparisons(model).items()
        }
        print(task, json.dumps(found["report"][task]), flush=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
