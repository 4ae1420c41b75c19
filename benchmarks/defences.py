"""What the defences of the profile ``open`` cost: a round of ten clients with 0.4 MB models; memory at 10,000 authors.

Two servers run beside each other, both durable: the product's own with a ledger of the profile ``open``, and
``undefended.py`` with one that averages plainly, bounds nothing and has no quotas. Candidates (``newest``), selector
and what is compared (a sketch of the whole model) are the same. Not in it: what a client does itself (it shortens its
step, and tries the average on its own data), and BEAST, which devices that are all alike do not need.

Rounds are those of ``service_round.py``, in turn; the clients share the machine with the server. The server's CPU
seconds stand beside the round's, since other work on the machine moves them less. For memory 10,000 authors publish
upon genesis, and 1,000 of them, as many as are offered at once, upon a selection, with the figures that a client
reports of an average; the models are tiny, as nothing that the defences keep grows with a model but by its tensors.

    python benchmarks/defences.py
"""

import json
import secrets
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import harness
import numpy as np
from device_client import NUM_EXAMPLES, Device, multipart
from our_server import COMMAND, TINY_MODEL_VALUES, Running, cpu_s, memory_of, running_server
from service_round import OurRound

AUTHORS, SELECTING, CHANGED, WARMUP = 10_000, 1_000, 40, 5
ROUND_TARGET, MEMORY_TARGET_MB = 1.10, 50
NO_BOUND = 1e300
PLAIN = f"""
aggregator.name = "fedavg"
weights = {{ name = "examples", factor = 1_000_000 }}
bounds.max_norm = {NO_BOUND}
bounds.max_first_step = {NO_BOUND}
bounds.max_step_growth = {NO_BOUND}
bounds.max_layer_growth = {NO_BOUND}
bounds.max_taint = 1.0
"""
UNDEFENDED = [COMMAND[0], str(harness.HERE / "undefended.py")]
WITH, WITHOUT = "with all defences", "without"
CLIENTS = {"raw client": "device", "SDK": "sdk"}
REPORTED = {"_own_accuracy": 0.80, "accuracy": 0.81}


def server(kind: str, values: int, folder: Path) -> AbstractContextManager[Running]:
    """A server of one of the two kinds."""
    if kind == WITH:
        return running_server(values, folder=folder, compare=None)
    environment = {"DAG_ACFL_QUOTA__AUTHOR_UPDATES": "0", "DAG_ACFL_QUOTA__TOKEN_UPDATES": "0"}
    return running_server(values, folder=folder, compare=None, rules=PLAIN, program=UNDEFENDED, environment=environment)


def measure_rounds(result: harness.Result, role: str, *, repeats: int, folder: Path) -> None:
    """Rounds with and without in turn, each first every other time."""
    with ExitStack() as stack:
        racers = {
            kind: stack.enter_context(OurRound(server(kind, harness.SMALL_MODEL_VALUES, folder), client=CLIENTS[role]))
            for kind in (WITH, WITHOUT)
        }
        times: dict[str, list[float]] = {kind: [] for kind in racers}
        used: dict[str, list[float]] = {kind: [] for kind in racers}
        for repeat in range(WARMUP + repeats):
            for kind in (WITH, WITHOUT)[:: 1 if repeat % 2 else -1]:
                before_s = cpu_s(racers[kind].running.process.pid)
                times[kind].append(racers[kind].round())
                used[kind].append(cpu_s(racers[kind].running.process.pid) - before_s)
        for kind, racer in racers.items():
            result.timings[f"{role}, {kind}"] = harness.Timing(tuple(times[kind][WARMUP:]))
            result.facts[f"{role}, {kind}"] = {
                "server's CPU, ms a round": round(1e3 * statistics.fmean(used[kind][WARMUP:]), 1),
                **racer.facts(),
            }
    pairs = [one / other for one, other in zip(times[WITH][WARMUP:], times[WITHOUT][WARMUP:], strict=True)]
    result.facts[f"{role}, with / without, quartiles of pairs"] = [round(q, 3) for q in statistics.quantiles(pairs)]
    medians = [result.timings[f"{role}, {kind}"].median_s for kind in (WITH, WITHOUT)]
    basis = f"median of {repeats} rounds of 10 clients, 0.4 MB / the same without"
    spent = [statistics.fmean(used[kind][WARMUP:]) for kind in (WITH, WITHOUT)]
    result.ratios += [
        harness.Ratio(f"{role}: with / without", medians[0] / medians[1], ROUND_TARGET, "at most", basis),
        harness.Ratio(f"{role}: server's CPU, with / without", spent[0] / spent[1], ROUND_TARGET, "at most", "means"),
    ]


def publish(device: Device, rng: np.random.Generator, about: dict[str, object]) -> str:
    """A model that nobody else has, nor nearly; returns the update's id."""
    device.model[-4 * CHANGED :] = rng.uniform(0.05, 0.1, CHANGED).astype(np.float32).tobytes()
    body, headers = multipart({"num_examples": NUM_EXAMPLES, **about}, device.model)
    size = int(headers["content-length"])
    answer = device.ask("POST", "/v1/transactions", body, kind=headers["content-type"], size=size)
    return str(answer["id"])


def fill(running: Running, names: Sequence[str], seed: int) -> dict[str, float]:
    """Have every author publish, and some once more upon a selection; returns the server's resident MB in between."""
    device, rng = Device(running.port, seed=1), np.random.default_rng(seed)
    ledger = device.ask("GET", "/v1/genesis")["ledger"]
    before = memory_of(running.process.pid, "VmRSS") / 1e6
    newest = [publish(device, rng, {"parents": [ledger], "secret": name}) for name in names]
    once = memory_of(running.process.pid, "VmRSS") / 1e6
    for name, own in list(zip(names, newest, strict=True))[:SELECTING]:
        selected = device.ask("POST", "/v1/selections", json.dumps({"transaction": own}).encode())
        publish(device, rng, {"selection": selected["id"], "secret": name, "metrics": REPORTED})
    at_last = memory_of(running.process.pid, "VmRSS") / 1e6
    return {"at the start": before, "one update each": once, "at last": at_last}


def measure_memory(result: harness.Result, *, authors: int, folder: Path) -> None:
    """Both servers at once, each with as many authors."""
    names = [secrets.token_hex(32) for _ in range(authors)]
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        servers = {kind: stack.enter_context(server(kind, TINY_MODEL_VALUES, folder)) for kind in (WITH, WITHOUT)}
        filled = {kind: pool.submit(fill, each, names, seed=7) for kind, each in servers.items()}
        found = {kind: each.result() for kind, each in filled.items()}
    result.facts[f"memory with {authors:,} authors, MB"] = {
        kind: {when: round(mb, 1) for when, mb in each.items()} for kind, each in found.items()
    }
    basis = "VmRSS of the server's process, with less without"
    more_mb = found[WITH]["at last"] - found[WITHOUT]["at last"]
    result.ratios.append(harness.Ratio(f"{authors:,} authors, MB more", more_mb, MEMORY_TARGET_MB, "at most", basis))


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--authors", type=int, default=AUTHORS)
    options = parser.parse_args()
    result = harness.Result("defences", "What the defences of the profile open cost", options.date)
    for role in CLIENTS:
        measure_rounds(result, role, repeats=options.rounds, folder=options.folder)
    measure_memory(result, authors=options.authors, folder=options.folder)
    print(result.write())


if __name__ == "__main__":
    main()
