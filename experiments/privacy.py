"""What differential privacy costs and what it hides: ε against accuracy, clusters found and membership attacks.

Clients see digits upright or on their side, one cluster each. They train by ``TorchTrainer`` and share through a
ledger in this process, one after another, as through a server; averages are plain means, weighted by examples. Each
method has the same model and the same first one. DP clients spend the ε of their row over all their updates. Writes a
table into ``results/privacy``.

    pip install opacus; dag-acfl data fetch mnist
    python -m experiments.privacy

Settings were chosen with seed 100, which no table has.
"""

import json
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import nn

from dag_acfl.commands.ledger.init import FirstModel
from dag_acfl.flower.ledger import LocalLedger
from dag_acfl.membership_inference import Update, scores_of
from fl_client.privacy import DifferentialPrivacy, Spending
from fl_client.training import Arrays, TorchTrainer
from fl_core.models import decode_model, encode_model
from fl_core.trust.membership_inference import auc, found_at
from fl_core.types import Vector64
from fl_simulator.data.fetch import load
from fl_simulator.data.rotated import ClientData, rotated_digits
from fl_simulator.report import interval

RESULTS: Final = Path(__file__).resolve().parent / "results" / "privacy"
TURNS: Final = (0, 90)
DELTA: Final = 1e-5
SEEDS: Final = tuple(range(10))


@dataclass(frozen=True, slots=True)
class Setting:
    """A data set, its clients, and how each kind of training is done on it."""

    data: str
    clients: int
    pixels: int
    train: int
    test: int
    updates: int
    epochs: int
    batch: int
    learning_rate: float
    dp_learning_rate: float


_MNIST: Final = Setting(
    "mnist", 8, 784, 600, 200, updates=10, epochs=1, batch=10, learning_rate=0.1, dp_learning_rate=2.0
)
SETTINGS: Final = {
    "digits": Setting(
        "digits", 8, 64, 160, 60, updates=10, epochs=2, batch=10, learning_rate=0.2, dp_learning_rate=2.0
    ),
    "mnist": _MNIST,
    "mnist, 40 clients": replace(_MNIST, clients=40),
}
CLIP: Final = 1.0
RATE: Final = 0.5
"""Of each example to be in a step of DP-SGD, so that an epoch has two."""
DP_EPOCHS: Final = 2
DP_FIRST_EPOCHS: Final = 8
"""Of the first update, from which clusters are told."""


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table: with whom models are averaged, and at which ε they are trained (None: without)."""

    shares: bool
    epsilon: float | None = None
    is_aware: bool = False

    @property
    def name(self) -> str:
        """As the table calls it."""
        noise = " noise-aware" if self.is_aware else ""
        return f"{'DAG-ACFL' if self.shares else 'local-only'}{'' if self.epsilon is None else ' DP'}{noise}"


METHODS: Final = (
    Method(shares=False),
    Method(shares=True),
    *(
        Method(shares=shares, epsilon=epsilon, is_aware=is_aware)
        for epsilon in (8.0, 2.0)
        for shares, is_aware in ((True, False), (True, True))
    ),
    Method(shares=False, epsilon=8.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run.

    Attributes:
        epsilon: What the accountant says each client spent; None without privacy.
        given: Mean accuracy of what each client was last given (alone: of its newest model), on its own test data.
        trained: Of what it trained from that.
        shared: Share of updates after the first that began from an average with others.
        own_cluster: Of the others averaged with, the share that were in the client's own cluster; None without any.
        auc: Of the likelihood ratio attack on each client's training data, all clients' examples together.
        found: Training examples found at 1 % false alarms.
        loss_auc: AUC of the loss threshold.
    """

    data: str
    seed: int
    method: str
    target: float | None
    epsilon: float | None
    given: float
    trained: float
    shared: float
    own_cluster: float | None
    auc: float
    found: float
    loss_auc: float


def main() -> None:
    """Play all, and write the table."""
    runs = [(setting, seed, method) for setting in SETTINGS for method in METHODS for seed in SEEDS]
    with ProcessPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        figures = []
        for found in pool.map(played, *zip(*runs, strict=True)):
            print(found, flush=True)
            figures.append(found)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "figures.json").write_text(json.dumps([asdict(each) for each in figures], indent=1) + "\n")
    (RESULTS / "table.md").write_text("\n".join(table(figures)) + "\n")


def clients_of(setting: Setting, seed: int) -> list[ClientData]:
    """Each client's samples, turned as its cluster's camera hangs."""
    if setting.data == "digits":
        return rotated_digits(
            num_clients=setting.clients, train_per_client=setting.train, test_per_client=setting.test, seed=seed
        )
    images = load(setting.data)
    order = np.random.default_rng(seed).permutation(len(images.train_y))
    sites = []
    for client in range(setting.clients):
        start = client * (setting.train + setting.test)
        places = order[start : start + setting.train + setting.test]
        turned = np.rot90(images.train_x[places].astype(np.float32) / 255, client % len(TURNS), axes=(1, 2)).copy()
        labels = images.train_y[places]
        parts = turned[: setting.train], labels[: setting.train], turned[setting.train :], labels[setting.train :]
        sites.append(ClientData(*parts, cluster=client % len(TURNS)))
    return sites


def noise_for(setting: Setting, epsilon: float, trainer: TorchTrainer) -> float:
    """The noise multiplier at which all updates together spend so much: halved between 0.3 and 100."""
    steps = round((DP_FIRST_EPOCHS + (setting.updates - 1) * DP_EPOCHS) / RATE)
    low, high = 0.3, 100.0
    for _ in range(20):
        middle = (low * high) ** 0.5
        spent = [Spending(noise_multiplier=middle, sample_rate=RATE, steps=steps)]
        low, high = (middle, high) if trainer.epsilon(spent, DELTA) > epsilon else (low, middle)
    return high


def trainers_of(setting: Setting, sites: Sequence[ClientData], method: Method, seed: int) -> list[TorchTrainer]:
    """A trainer for each client, all with the same first model."""
    made: list[TorchTrainer] = []
    noise = 0.0
    for client, site in enumerate(sites):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Flatten(), nn.Linear(setting.pixels, 10))
        trainer = TorchTrainer(
            model,
            (site.train_x, site.train_y),
            test_data=(site.test_x, site.test_y),
            learning_rate=setting.learning_rate if method.epsilon is None else setting.dp_learning_rate,
            batch_size=setting.batch,
            seed=client,
        )
        if method.epsilon is not None:
            noise = noise or noise_for(setting, method.epsilon, trainer)
            trainer.privacy = DifferentialPrivacy(noise, CLIP, RATE)
        made.append(trainer)
    return made


def played(name: str, seed: int, method: Method) -> Figures:
    """All clients' updates, in an order of chance in each round."""
    setting = SETTINGS[name]
    sites = clients_of(setting, seed)
    trainers = trainers_of(setting, sites, method, seed)
    layout = trainers[0].layout()
    table = {
        "name": setting.data,
        "bounds": {"max_noise_std": 100.0 if method.is_aware else 0.0},
    }
    ledger = LocalLedger(table, FirstModel(trainers[0].initial_arrays(), layout, ()))
    rng = np.random.default_rng(seed)
    newest: list[Arrays] = [each.initial_arrays() for each in trainers]
    given: list[float] = [0.0] * setting.clients
    noise = [0.0] * setting.clients
    history: list[list[Update]] = [[] for _ in sites]
    spent: list[Spending] = []
    clusters: list[bool] = []
    shared = []
    for update in range(setting.updates):
        for client in rng.permutation(setting.clients).tolist():
            trainer = trainers[client]
            start = ledger.start_of(client)
            node_of = ledger.node.graph.get
            others = [
                ledger.client_of[node.author]
                for each in start.parents
                if (node := node_of(each)) is not None and node.parents
            ]
            others = [each for each in others if each != client] if method.shares else []
            arrays = decode_model(layout, start.model) if others else newest[client]
            given[client] = trainer.evaluate(arrays)["accuracy"]
            if update:
                shared.append(bool(others))
                clusters += [sites[each].cluster == sites[client].cluster for each in others]
            epochs = setting.epochs
            if method.epsilon is not None:
                epochs = DP_EPOCHS if update else DP_FIRST_EPOCHS
            result = trainer.train(arrays, epochs=epochs)
            if client == 0 and trainer.privacy is not None:
                spent.append(trainer.spending(epochs, {}))
            noise[client] = float(np.hypot(result.noise_std, 0.0 if others else noise[client]))
            beside = [newest[each] for each in others] or [newest[(client + len(TURNS)) % setting.clients]]
            history[client].append(Update(result.arrays, beside[:4], {}))
            newest[client] = result.arrays
            ledger.publish(
                client,
                start,
                encode_model(layout, result.arrays),
                num_examples=result.num_examples,
                metrics={},
                noise_std=noise[client] if method.is_aware else 0.0,
            )
    newest_scores, scores = zip(*map(attacked, trainers, history), strict=True)
    ratio = tuple(map(np.concatenate, zip(*scores, strict=True)))
    threshold = tuple(map(np.concatenate, zip(*newest_scores, strict=True)))
    trained = [trainer.evaluate(arrays)["accuracy"] for trainer, arrays in zip(trainers, newest, strict=True)]
    return Figures(
        data=name,
        seed=seed,
        method=method.name,
        target=method.epsilon,
        epsilon=trainers[0].epsilon(spent, DELTA) if spent else None,
        given=statistics.fmean(given if method.shares else trained),
        trained=statistics.fmean(trained),
        shared=statistics.fmean(shared),
        own_cluster=statistics.fmean(clusters) if clusters else None,
        auc=auc(*ratio),
        found=found_at(*ratio),
        loss_auc=auc(*threshold),
    )


def attacked(
    trainer: TorchTrainer, updates: list[Update]
) -> tuple[tuple[Vector64, Vector64], tuple[Vector64, Vector64]]:
    """Scores of the training and of the test examples by both attacks, from the ten newest updates."""
    threshold, ratio, training = scores_of(trainer, updates[-10:])
    return (threshold[:training], threshold[training:]), (ratio[:training], ratio[training:])


def table(figures: Sequence[Figures]) -> Iterator[str]:
    """The means over seeds, and the 95 % interval of what was given."""
    yield (
        "| data | method | ε | accuracy given | trained | began with others | of these own cluster "
        "| likelihood ratio: AUC | found at 1 % false alarms | loss threshold: AUC |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for data, name, target in dict.fromkeys((each.data, each.method, each.target) for each in figures):
        those = [each for each in figures if (each.data, each.method, each.target) == (data, name, target)]
        mean = {
            what: statistics.fmean(getattr(each, what) for each in those)
            for what in ("given", "trained", "shared", "auc", "found", "loss_auc")
        }
        pure = [each.own_cluster for each in those if each.own_cluster is not None]
        cells = (
            *(data, name, "∞" if target is None else f"{target:g}"),
            f"{mean['given']:.3f} {interval([each.given for each in those], 3)}",
            *(f"{mean['trained']:.3f}", f"{mean['shared']:.0%}", f"{statistics.fmean(pure):.0%}" if pure else "-"),
            *(f"{mean['auc']:.3f}", f"{mean['found']:.1%}", f"{mean['loss_auc']:.3f}"),
        )
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
