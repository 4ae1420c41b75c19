"""One round of Flower's gRPC server and ten clients that do not train: the peer's side of ``service_round.py``.

Runs in ``.venv-peers`` (``peers/requirements.txt``), as a process of its own, and speaks lines on stdin and
stdout with the program that compares: it prints ``{"event": "ready"}`` when all clients are connected, runs one
round per line ``round`` and answers ``{"event": "round", "seconds": ..., "transfer_seconds": ...}``, and ends at
``stop`` (or end of input) with ``{"event": "done", "server_peak_rss_bytes": ...}``. With ``--rounds`` it needs no
other program: it runs warm-up and rounds itself and prints one JSON document.

``seconds`` runs from before the server chooses the clients to after it has averaged what they sent;
``transfer_seconds`` ends when the last answer is in, so leaves the average out. The server is ``start_server`` with
its defaults (legacy ``grpc-bidi``, plain text, weighted average in place, no evaluation); nothing is written to disk.
Each client is a process with ``start_client``. ``--client numpy`` is the documented ``NumPyClient``, whose ``fit``
gets arrays and returns them; ``--client raw`` returns the serialised tensors that came, which spares Flower its
(de)serialisation and is the harder peer.

    .venv-peers/bin/python benchmarks/peers/flower_round.py --values 101770 --rounds 10
"""

import argparse
import json
import logging
import os
import socket
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
warnings.filterwarnings("ignore", category=DeprecationWarning)  # start_server and start_client are the point here

# ruff: noqa: E402 - the libraries below read the environment when they load
import numpy as np
from flwr.client import Client, NumPyClient, start_client
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters
from flwr.server import ServerConfig, start_server
from flwr.server.strategy import FedAvg

MESSAGE_LIMIT_BYTES = 512 * 1024 * 1024
UNBOUNDED_ROUNDS = 1_000_000
NUM_EXAMPLES = 533
"""Examples per MNIST client in the paper; only a weight of the average here."""


class Finished(Exception):  # noqa: N818  # the way out of Flower's loop of rounds, not an error
    """No further round was asked for."""


class TimedFedAvg(FedAvg):
    """FedAvg that starts a round when told and notes how long each took."""

    def __init__(
        self, *, next_round: Callable[[], bool], report: Callable[[float, float], None], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.next_round, self.report = next_round, report
        self.started_s = 0.0

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        client_manager.wait_for(self.min_available_clients, timeout=120)
        if not self.next_round():
            raise Finished
        self.started_s = time.perf_counter()
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        received_s = time.perf_counter()
        if failures or len(results) != self.min_fit_clients:
            raise RuntimeError(f"{len(results)} clients answered, {len(failures)} failed: {failures[:1]}")
        averaged = super().aggregate_fit(server_round, results, failures)
        self.report(time.perf_counter() - self.started_s, received_s - self.started_s)
        return averaged


class IdleNumPyClient(NumPyClient):
    """A client whose training changes nothing."""

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        del config
        return parameters, NUM_EXAMPLES, {}


class IdleRawClient(Client):
    """The same, without looking inside the message."""

    def fit(self, ins: FitIns) -> FitRes:
        return FitRes(Status(Code.OK, ""), ins.parameters, NUM_EXAMPLES, {})


def serve(options: argparse.Namespace, next_round: Callable[[], bool], report: Callable[[float, float], None]) -> None:
    """Run the server in this process and the clients in theirs until no round is asked for."""
    port = free_port()
    model = np.random.default_rng(5).standard_normal(options.values, dtype=np.float32)
    command = [sys.executable, __file__, "--connect", str(port), "--client", options.client, "--values", "0"]
    clients = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(options.clients)
    ]
    strategy = TimedFedAvg(
        next_round=next_round,
        report=report,
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=options.clients,
        min_available_clients=options.clients,
        accept_failures=False,
        initial_parameters=ndarrays_to_parameters([model]),
    )
    try:
        start_server(
            server_address=f"127.0.0.1:{port}",
            config=ServerConfig(num_rounds=UNBOUNDED_ROUNDS),
            strategy=strategy,
            grpc_max_message_length=MESSAGE_LIMIT_BYTES,
        )
    except Finished:
        pass
    finally:
        for client in clients:
            client.terminate()
        for client in clients:
            client.wait(timeout=30)


def connect(port: int, kind: str) -> None:
    """Be one client until the server is gone."""
    start_client(
        server_address=f"127.0.0.1:{port}",
        client=IdleRawClient() if kind == "raw" else IdleNumPyClient().to_client(),
        insecure=True,
        grpc_max_message_length=MESSAGE_LIMIT_BYTES,
        max_wait_time=60,
    )


def on_request(output: Any) -> tuple[Callable[[], bool], Callable[[float, float], None]]:
    """Rounds when a line asks for one; each reported at once."""
    lines: Iterator[str] = iter(sys.stdin)
    greeted = False

    def say(**fields: object) -> None:
        print(json.dumps(fields), file=output, flush=True)

    def next_round() -> bool:
        nonlocal greeted
        if not greeted:
            say(event="ready")
            greeted = True
        return next(lines, "stop").strip() == "round"

    def report(seconds: float, transfer_seconds: float) -> None:
        say(event="round", seconds=seconds, transfer_seconds=transfer_seconds)

    return next_round, report


def by_count(total: int) -> tuple[Callable[[], bool], Callable[[float, float], None], list[tuple[float, float]]]:
    """``total`` rounds one after the other; their times in the list."""
    times: list[tuple[float, float]] = []
    return (lambda: len(times) < total), (lambda *each: times.append(each)), times


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def peak_rss_bytes() -> int:
    """High-water mark of this process's resident memory: the server's, for clients are other processes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Rounds of Flower's gRPC server with clients that do not train.")
    parser.add_argument("--values", type=int, required=True, help="float32 values in the model")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--client", choices=("numpy", "raw"), default="numpy")
    parser.add_argument("--rounds", type=int, help="run so many rounds and print a summary; else rounds on request")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--connect", type=int, metavar="PORT", help="be a client of the server at this port")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if options.connect:
        connect(options.connect, options.client)
        return
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")  # Flower prints its summary to stdout: send that elsewhere
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if options.rounds is None:
        next_round, report = on_request(output)
        serve(options, next_round, report)
        print(json.dumps({"event": "done", "server_peak_rss_bytes": peak_rss_bytes()}), file=output, flush=True)
        return
    next_round, report, times = by_count(options.warmup + options.rounds)
    serve(options, next_round, report)
    kept, transfers = zip(*times[options.warmup :], strict=True)
    summary = {
        "peer": "flwr 1.41.0, start_server and start_client",
        "client": options.client,
        "clients": options.clients,
        "model_bytes": options.values * 4,
        "min_s": min(kept),
        "median_s": statistics.median(kept),
        "all_s": kept,
        "transfer_min_s": min(transfers),
        "transfer_median_s": statistics.median(transfers),
        "server_peak_rss_bytes": peak_rss_bytes(),
    }
    print(json.dumps(summary), file=output, flush=True)


if __name__ == "__main__":
    main()
