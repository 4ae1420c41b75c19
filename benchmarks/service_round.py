"""A round of ten clients that do not train: this project's server, durable, against Flower's, in one run.

Both sides are a server and ten client processes on this machine, started once and idle between rounds; rounds
alternate, so that a disturbance meets both. A round of ours is: every device asks for tips, fetches the average and
publishes a new model, which is durable before it is acknowledged (SQLite, WAL, synchronous=FULL). A round of
Flower's is: parameters down, ``fit`` that returns them, parameters up, weighted average; nothing is kept on disk.
Flower's clock stands in its server and leaves the signal to begin out; ours holds it, which is to our disadvantage.
Beside them run the same raw devices against ``bare_ledger.py``: what HTTP in Python alone takes, and what it takes when
a publication is also hashed and inserted into SQLite durably, as in the limit that ``publish.py`` is held against.
The first run makes ``.venv-peers``. Writes ``benchmarks/results/service_round.json``.

    python benchmarks/service_round.py
"""

import json
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import harness
from bare_ledger import running_bare_ledger
from our_server import Running, running_server

PEERS = harness.HERE / "peers"
PEERS_PYTHON = harness.ROOT / ".venv-peers" / "bin" / "python"
DEVICES = 10
TARGET = 1.0
BARE_TARGET = 0.5
"""What ``publish.py`` asks of one publication against its hash and its insert, asked of a whole round."""
ANSWER_TIMEOUT_S = 120.0
MODELS = {"0.4 MB": (harness.SMALL_MODEL_VALUES, 20, 3), "13 MB": (harness.LARGE_MODEL_VALUES, 10, 3)}
"""Name -> float32 values, rounds that count, rounds that warm up."""


class Worker:
    """A process that answers lines with JSON lines."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **environment},
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next answer.

        Raises:
            RuntimeError: the process ended, or said nothing for two minutes.
        """
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(ANSWER_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise RuntimeError(f"{self.process.args!r} gave no answer (exit status {self.process.poll()})")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Contender(Protocol):
    """A server and ten clients that can run a round on demand."""

    def round(self) -> float:
        """Run one round; returns its seconds."""

    def facts(self) -> dict[str, Any]:
        """What else is worth knowing, after the last round."""


class FlowerRound:
    """Flower's server; it starts its own clients."""

    def __init__(self, values: int, *, client: str) -> None:
        command = [str(PEERS_PYTHON), str(PEERS / "flower_round.py"), "--values", str(values)]
        self.worker = Worker([*command, "--clients", str(DEVICES), "--client", client])
        self.transfer_s: list[float] = []

    def __enter__(self) -> Self:
        self.worker.hear()
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.end()

    def round(self) -> float:
        self.worker.say("round")
        answer = self.worker.hear()
        self.transfer_s.append(answer["transfer_seconds"])
        return float(answer["seconds"])

    def facts(self) -> dict[str, Any]:
        self.worker.say("stop")
        return {
            "server_peak_rss_bytes": self.worker.hear()["server_peak_rss_bytes"],
            "transfer_median_s": statistics.median(self.transfer_s),
        }


class OurRound:
    """A server that speaks this project's API and ten devices, each a process with one connection."""

    def __init__(self, server: AbstractContextManager[Running], *, client: str, clusters: int = 0) -> None:
        self.server, self.program, self.clusters = server, f"{client}_client.py", clusters
        self.devices: list[Worker] = []
        self.spent_s: list[dict[str, float]] = []

    def __enter__(self) -> Self:
        self.running = self.server.__enter__()
        command = [sys.executable, str(harness.HERE / self.program), "--port", str(self.running.port)]
        for seed in range(1, DEVICES + 1):
            cluster = ["--cluster", str(seed % self.clusters)] if self.clusters else []
            self.devices.append(Worker([*command, "--seed", str(seed), *cluster]))
        for device in self.devices:
            device.hear()
        return self

    def __exit__(self, *_: object) -> None:
        for device in self.devices:
            device.end()
        self.server.__exit__(None, None, None)

    def round(self) -> float:
        start = time.perf_counter()
        for device in self.devices:
            device.say("round")
        answers = [device.hear() for device in self.devices]
        taken = time.perf_counter() - start
        self.spent_s += answers
        return taken

    def facts(self) -> dict[str, Any]:
        steps = ("select", "fetch", "publish")
        return {
            "server_peak_rss_bytes": self.running.peak_rss_bytes(),
            **{f"{step}_median_s": statistics.median(each[step] for each in self.spent_s) for step in steps},
        }


def make_peers() -> None:
    """An environment for the peers alone, made once: their pins must not touch the product's."""
    if PEERS_PYTHON.exists():
        return
    print("making .venv-peers (once)", file=sys.stderr)
    venv.create(PEERS_PYTHON.parent.parent, with_pip=True)
    install = [str(PEERS_PYTHON), "-m", "pip", "install", "--quiet", "--requirement"]
    subprocess.run([*install, str(PEERS / "requirements.txt")], check=True)


OURS_SDK, OURS_RAW, OURS_CLUSTERED = "DAG-ACFL, SDK", "DAG-ACFL, raw client", "DAG-ACFL, raw client, 2 clusters"
FLOWER_NUMPY, FLOWER_RAW = "Flower, NumPyClient", "Flower, raw Client"
BARE, BARE_DURABLE = "bare uvicorn, raw client", "bare uvicorn and SQLite, raw client"
PAIRS = ((OURS_SDK, FLOWER_NUMPY, TARGET), (OURS_RAW, FLOWER_RAW, TARGET), (OURS_RAW, BARE_DURABLE, BARE_TARGET))
"""Of each role ours, theirs and the target: clients that handle arrays, and clients that only pass bytes on."""


@contextmanager
def contenders(values: int, *, folder: Path) -> Iterator[dict[str, Contender]]:
    with (
        OurRound(running_server(values, folder=folder), client="sdk") as sdk,
        FlowerRound(values, client="numpy") as numpy_client,
        OurRound(running_server(values, folder=folder), client="device") as raw,
        FlowerRound(values, client="raw") as raw_client,
        OurRound(running_server(values, folder=folder), client="device", clusters=2) as clustered,
        OurRound(running_bare_ledger(values, folder=folder, stores=False), client="device") as bare,
        OurRound(running_bare_ledger(values, folder=folder, stores=True), client="device") as bare_durable,
    ):
        yield {
            OURS_SDK: sdk,
            FLOWER_NUMPY: numpy_client,
            OURS_RAW: raw,
            FLOWER_RAW: raw_client,
            OURS_CLUSTERED: clustered,
            BARE: bare,
            BARE_DURABLE: bare_durable,
        }


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the database goes")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    options = parser.parse_args()
    make_peers()
    result = harness.Result("service_round", f"A round of {DEVICES} clients that do not train", options.date)
    for name in options.models:
        values, rounds, warmup = MODELS[name]
        with contenders(values, folder=options.folder) as racers:
            times: dict[str, list[float]] = {each: [] for each in racers}
            for _ in range(warmup + rounds):
                for each, racer in racers.items():
                    times[each].append(racer.round())
            for each, racer in racers.items():
                result.timings[f"{each}, {name}"] = harness.Timing(tuple(times[each][warmup:]))
                result.facts[f"{each}, {name}"] = racer.facts()
        for ours, theirs, target in PAIRS:
            medians = [result.timings[f"{each}, {name}"].median_s for each in (ours, theirs)]
            basis = f"median round of {theirs} / of {ours}, durable"
            result.ratios.append(
                harness.Ratio(f"{name}: {ours} / {theirs}", medians[1] / medians[0], target, "at least", basis)
            )
    print(result.write())


if __name__ == "__main__":
    main()
