"""Publish a 0.4 MB and a 13 MB model over HTTP, durably, against hashing and inserting the same bytes.

The server is the product's own command with its defaults. One client process with one kept connection publishes models
of distinct bytes, one after another, each signed by the author's key; signing and hashing on the client's side are done
before the clock starts, so the clock holds the request: sending, the parser, the checks, SHA-256, the header, the
server's signature, the commit with fsync, and the answer. The limit is SHA-256 of the same bytes and one SQLite INSERT
with synchronous=FULL, in this process, in turn with it: at SQLite's default page size, which is the target's limit, and
with the page size that the product chose.

SQLite copies its log into the database every so often (a checkpoint), which one commit of many pays: medians leave that
out, means do not. Models of 13 MB pay it nearly each time. Both are stated; the target is held against the means, which
are what n models cost.

    python benchmarks/publish.py
"""

import hashlib
import http.client
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from device_client import connected, multipart
from limits import sqlite_insert
from our_server import running_server

from fl_core.dag.author import AuthorKind
from fl_core.dag.building import build_update
from fl_core.dag.signature import public_key_of
from fl_core.types import ZERO_ID, Digest, TxId
from fl_core.wire import v1
from ledger_server.store.engine import PAGE_BYTES

MODELS = {"0.4 MB": (harness.SMALL_MODEL_VALUES, 200), "13 MB": (harness.LARGE_MODEL_VALUES, 40)}
"""Name -> float32 values, repeats."""
TARGET = 0.5


class Publisher:
    """One author with a key and one kept connection; ``prepare`` is not timed, ``publish`` is."""

    def __init__(self, port: int) -> None:
        self.connection = connected(port)
        self.key = Ed25519PrivateKey.generate()
        self.ledger = TxId(self.ask("GET", v1.GENESIS)["ledger"])
        self.newest, self.sequence = self.ledger, 0
        self.model = bytearray()
        self.body: list[bytes | memoryview] = []
        self.headers: dict[str, str] = {}
        self.expected = TxId(ZERO_ID)

    def ask(self, method: str, path: str) -> dict[str, Any]:
        self.connection.request(method, path)
        answer: dict[str, Any] = json.loads(self.connection.getresponse().read())
        return answer

    def load(self) -> int:
        """Take the genesis model; returns its size."""
        digest = self.ask("GET", v1.GENESIS)["model"]["digest"]
        self.connection.request("GET", v1.path(v1.MODEL, digest=digest))
        self.model = bytearray(self.connection.getresponse().read())
        return len(self.model)

    def prepare(self) -> None:
        """The next model, other bytes than ever before, with its signed header and the request's body."""
        self.model[-4:] = np.float32((self.sequence + 1) * 1e-6).tobytes()
        unsigned = build_update(
            ledger=self.ledger,
            author=AuthorKind.ED25519.author(public_key_of(self.key)),
            sequence=self.sequence,
            created_at_ms=time.time_ns() // 1_000_000,
            num_examples=100,
            start=Digest(hashlib.sha256(self.model).hexdigest()),
            model_digest=Digest(hashlib.sha256(self.model).hexdigest()),
            model_size=len(self.model),
            parents=(self.newest,),
        )
        header, self.expected = unsigned.header, unsigned.id
        about = {
            "parents": [self.newest],
            "num_examples": header.num_examples,
            "start": header.start,
            "author": header.author,
            "sequence": header.sequence,
            "created_at_ms": header.created_at_ms,
            "signature": unsigned.sign_as_author(self.key).hex(),
        }
        self.body, self.headers = multipart(about, self.model)

    def publish(self) -> None:
        """Send and wait for the acknowledgement."""
        self.connection.request("POST", v1.TRANSACTIONS, self.body, self.headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status != http.client.CREATED:
            raise RuntimeError(f"publish: {response.status} {text[:300]!r}")
        self.newest, self.sequence = TxId(json.loads(text)["id"]), self.sequence + 1
        assert self.newest == self.expected, "the server stored what was signed"


def hash_and_insert(model: bytearray, insert: Callable[[], object]) -> None:
    """The limit: what a durable, content-addressed store cannot do without."""
    hashlib.sha256(model).digest()
    insert()


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    options = parser.parse_args()
    result = harness.Result("publish", "Publish one model over HTTP, durably", options.date)
    for name in options.models:
        values, repeats = MODELS[name]
        with ExitStack() as stack:
            running = stack.enter_context(running_server(values, folder=options.folder))
            publisher = Publisher(running.port)
            stack.enter_context(closing(publisher.connection))
            size = publisher.load()
            inserts = {
                "SHA-256 + INSERT": stack.enter_context(sqlite_insert(options.folder, size)),
                f"SHA-256 + INSERT, {PAGE_BYTES // 1024} KiB pages": stack.enter_context(
                    sqlite_insert(options.folder, size, page_size=PAGE_BYTES)
                ),
            }
            times: dict[str, list[float]] = {each: [] for each in ("publish", *inserts)}
            for repeat in range(-5, repeats):
                publisher.prepare()
                taken = {"publish": timed(publisher.publish)}
                for each, insert in inserts.items():
                    taken[each] = timed(partial(hash_and_insert, publisher.model, insert))
                if repeat >= 0:
                    for each, seconds in taken.items():
                        times[each].append(seconds)
            for each, all_s in times.items():
                result.timings[f"{each}, {name}"] = harness.Timing(tuple(all_s))
            result.facts[name] = {
                "bytes": size,
                "mean_ms": {each: round(statistics.fmean(all_s) * 1e3, 3) for each, all_s in times.items()},
                "p99_ms": {each: round(harness.p99(all_s) * 1e3, 3) for each, all_s in times.items()},
            }
        for each in inserts:
            for how, of, target in (("means", statistics.fmean, TARGET), ("medians", statistics.median, None)):
                is_target = target is not None and each == "SHA-256 + INSERT"
                ratio = of(times[each]) / of(times["publish"])
                if is_target:
                    basis = f"{how} of {each} at the default page size / of publish"
                    result.ratios.append(harness.Ratio(f"{name}: share of the limit", ratio, TARGET, "at least", basis))
                else:
                    result.facts[name][f"share of {each}, {how}"] = round(ratio, 3)
    print(result.write())


if __name__ == "__main__":
    main()
