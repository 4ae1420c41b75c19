"""The same over HTTP: a ledger server and sixteen participants, each a process of its own, who start differently.

The clients are the product's: ``Participant`` with ``TorchTrainer``, keys and state folders, against a process that is
``dag-acfl serve``. All have digits of one kind (60 to train on, 50 to be tested on), and top-k gives them everybody.
After each run the ledger is fetched and verified like any other: what a client makes of an average is its own affair.
Keys are new in every run, and with them the own initialisations; a seed decides the data and the genesis model.
Writes ``results/independent_http/figures.json`` and ``table.md``.

    python -m experiments.independent_http                some twenty minutes on two cores that others use, too
    python -m experiments.independent_http --seeds 0      one seed
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final, TypeAlias

from dag_acfl.commands.options import quiet_retries
from dag_acfl.demo.servers import LedgerServers
from dag_acfl.sources import open_source
from experiments.independent_initialisation import GOAL, HERE, Figures, bars, say, table, write
from fl_client.client import LedgerClient
from fl_client.participant import Participant, Start
from fl_client.state import ParticipantState
from fl_core.dag.genesis import Component, Genesis
from fl_core.models import encode_model
from fl_core.types import JsonScalar
from fl_core.verify import verify
from fl_simulator.data import rotated_digits
from ledger_server.admin.bundle import Bundle, write_bundle

RESULTS: Final = HERE / "results" / "independent_http"
CLIENTS: Final = 16
STEPS: Final = 20
"""Publications of each client."""
INITIAL_EPOCHS: Final = 10
EPOCHS: Final = 2
LEARNING_RATE: Final = 0.2
WAIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Method:
    """What a participant chooses, and what the founder expects."""

    name: str
    start: Start = "independent"
    merge: str = "replace"
    gain: bool = False
    loss: str = "cross-entropy"
    expected: int = 0


METHODS: Final = (
    Method("genesis (reference)", start="genesis"),
    Method("replace"),
    Method("DecDiff", merge="decdiff"),
    Method("gain, as the ledger knows", gain=True),
    Method(f"gain, {CLIENTS} expected", gain=True, expected=CLIENTS),
    Method("DecDiff + VT", merge="decdiff", loss="virtual-teacher"),
)
SETTING: Final = "all at once"


@dataclass(frozen=True, slots=True)
class Place:
    """One client of one run."""

    method: Method
    client: int
    seed: int
    url: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a client: accuracies of the model that it asked with and of the one that it trained then, how many
    models were averaged, and seconds since the run began.
    """

    asked_with: float
    trained_from: float
    averaged: int
    elapsed_s: float


Steps: TypeAlias = list[Step]

_barrier: Barrier


def _begin(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - a worker process has one barrier for its life
    _barrier = barrier
    quiet_retries()


def take_part(place: Place) -> Steps:
    """Be one client, in a process of its own: when all are there, publish ``STEPS`` times."""
    import torch  # noqa: PLC0415 (the parent process plans without it)

    from fl_client.training import Arrays, Hints, TorchTrainer, TrainingResult, use_one_thread  # noqa: PLC0415
    from fl_simulator.models import digits_mlp  # noqa: PLC0415

    class Remembering(TorchTrainer):
        """Keeps where each training led."""

        def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
            result = super().train(arrays, epochs=epochs, hints=hints)
            self.led_to = [*getattr(self, "led_to", []), result.arrays]
            return result

    use_one_thread()
    mine = rotated_digits(num_clients=CLIENTS, rotations=[0], seed=place.seed)[place.client]
    trainer = Remembering(
        digits_mlp(),
        (mine.train_x, mine.train_y),
        test_data=(mine.test_x, mine.test_y),
        loss=place.method.loss,
        seed=place.seed * CLIENTS + place.client,
    )
    # The folder's new key decides the own initialisation; torch's state, nothing.
    torch.manual_seed(0)
    steps: Steps = []
    with (
        ParticipantState(place.folder / f"client-{place.client}") as state,
        LedgerClient(place.url, key=state.key) as sdk,
    ):
        participant = Participant(
            sdk, trainer, state, merge=place.method.merge, start=place.method.start, gain=place.method.gain
        )
        sdk.genesis()
        _barrier.wait(WAIT_S)
        began = time.monotonic()
        for number in range(STEPS):
            report = participant.step()
            # The first step trains twice: the model to ask with, then the answer.
            asked_with = trainer.evaluate(trainer.led_to[number])["accuracy"]
            averaged = len(report.parents) if report.source == "parents" else 1
            elapsed_s = time.monotonic() - began
            steps.append(Step(asked_with, report.metrics_before["accuracy"], averaged, elapsed_s))
    return steps


def genesis_of(method: Method, seed: int) -> tuple[Genesis, bytes]:
    """The ledger's rules and its first model, for those who start from that."""
    import torch  # noqa: PLC0415

    from fl_client.training import TorchTrainer  # noqa: PLC0415
    from fl_simulator.models import digits_mlp  # noqa: PLC0415

    mine = rotated_digits(num_clients=CLIENTS, rotations=[0], seed=seed)[0]
    torch.manual_seed(seed)
    trainer = TorchTrainer(digits_mlp(), (mine.train_x, mine.train_y))
    layout = trainer.layout()
    hints: dict[str, JsonScalar] = {
        "epochs": EPOCHS,
        "initial_epochs": INITIAL_EPOCHS,
        "learning_rate": LEARNING_RATE,
        "batch_size": 10,
    }
    genesis = Genesis(
        name="independent starts",
        layout=layout,
        similarity_layers=tuple(sorted(tensor.name for tensor in layout.tensors)),
        selector=Component("top-k", {"k": CLIENTS}),
        aggregator=Component("fedavg"),
        training={**hints, **({"participants": method.expected} if method.expected else {})},
    )
    return genesis, encode_model(layout, trainer.initial_arrays())


def play(method: Method, seed: int, *, pool: ProcessPoolExecutor, folder: Path) -> Figures:
    """One run: a new ledger, all clients, and the proof of what they published.

    Raises:
        RuntimeError: The ledger has a fault.
    """
    servers = LedgerServers(folder, count=1, port=0)
    servers.create(*genesis_of(method, seed))
    (url,) = servers.start()
    try:
        places = [Place(method, client, seed, url, folder) for client in range(CLIENTS)]
        clients = list(pool.map(take_part, places))
        with open_source(url) as live:
            write_bundle(live, folder / "ledger.dagacfl")
    finally:
        servers.stop()
    with Bundle(folder / "ledger.dagacfl") as bundle:
        faults = [finding.kind for finding in verify(bundle) if not finding.kind.is_warning]
    if faults:
        raise RuntimeError(f"{method.name}, seed {seed}: the ledger has faults: {faults}")
    return figures_of(method, seed, clients)


def figures_of(method: Method, seed: int, clients: Sequence[Steps]) -> Figures:
    """What the clients' steps come to; time is counted in a client's publications."""
    firsts = [next((step for step in steps if step.averaged > 1), None) for steps in clients]
    found = [step for step in firsts if step is not None]
    curve = [
        (float(number), round(statistics.fmean(steps[number].trained_from for steps in clients), 6))
        for number in range(STEPS)
    ]
    reached = next((int(number) for number, accuracy in curve if accuracy >= GOAL), None)
    return Figures(
        setting=SETTING,
        method=method.name,
        seed=seed,
        before=statistics.fmean(step.asked_with for step in found),
        first=statistics.fmean(step.trained_from for step in found),
        averaged=statistics.fmean(step.averaged for step in found),
        time_to_goal=reached,
        seconds_to_goal=None
        if reached is None
        else round(statistics.fmean(steps[reached].elapsed_s for steps in clients), 3),
        final=curve[-1][1],
        curve=curve,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    runs = [(method, seed) for method in METHODS for seed in options.seeds]
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch", "fl_client.training.trainer", "fl_client.participant"])
    figures: list[Figures] = []
    with (
        ProcessPoolExecutor(CLIENTS, context, initializer=_begin, initargs=(context.Barrier(CLIENTS),)) as pool,
        tempfile.TemporaryDirectory() as temporary,
        bars() as shown,
    ):
        task = shown.add_task("", total=len(runs))
        for number, (method, seed) in enumerate(runs):
            shown.update(task, description=f"{method.name}, seed {seed}")
            folder = Path(temporary) / str(number)
            folder.mkdir()
            figures.append(play(method, seed, pool=pool, folder=folder))
            say(shown, figures[-1])
            shown.advance(task)
    write(
        figures,
        RESULTS,
        unit="publications",
        command="python -m experiments.independent_http",
        facts={
            "clients": CLIENTS,
            "publications_of_each": STEPS,
            "expected_gain": round(math.sqrt(CLIENTS), 3),
            "ledgers_verified": len(figures),
        },
    )
    print(table(figures, unit="publications"))


if __name__ == "__main__":
    main()
