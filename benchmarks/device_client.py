"""One device of the service benchmark: the three calls of the API, by the standard library alone.

A device asks with its newest transaction (or, before it has one, with its model), fetches the average unless it is
its own model, "trains" without changing anything but eight values (so that every model is different bytes and is
stored, as a trained one would be), and publishes. One kept connection, no project code: this is the least that a
client must do, as Flower's idle client is. Speaks lines with ``service_round.py``: prints ``{"event": "ready"}``,
runs one round per line ``round`` and prints ``{"event": "round", ...}``; ends at ``stop`` or end of input.

    python benchmarks/device_client.py --port 8900 --seed 3
"""

import argparse
import http.client
import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PERTURBED_BYTES = 32
"""Eight float32 values at the end of the model."""
NUM_EXAMPLES = 533
BOUNDARY = "dag-acfl-benchmark-3f2b9c17d05e4a68"
SLICE_BYTES = 1 << 20
IDLE_S = 2.0
"""Idle seconds after which a device connects anew: servers drop idle connections (uvicorn's own limit is 5)."""
MODEL = "application/vnd.safetensors"

HEAD = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="transaction"\r\nContent-Type: application/json\r\n\r\n'
    "{}"
    f'\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"; filename="model.safetensors"\r\n'
    f"Content-Type: {MODEL}\r\n\r\n"
)
TAIL = f"\r\n--{BOUNDARY}--\r\n".encode()


@dataclass(slots=True)
class Device:
    """A client of the ledger and what it must remember: its connection, its model, its newest transaction."""

    port: int
    seed: int
    model: bytearray = field(default_factory=bytearray)
    newest: str | None = None
    rounds: int = 0
    spent_s: dict[str, float] = field(default_factory=dict)
    used_s: float = 0.0
    connection: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.connect()
        genesis = self.ask("GET", "/v1/genesis")
        self.model = bytearray(genesis["model"]["size"])
        self.fetch(genesis["model"]["href"])

    def connect(self) -> None:
        self.connection.close()
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def round(self) -> None:
        """Select, fetch, change, publish."""
        self.rounds += 1
        start = time.perf_counter()
        if start - self.used_s > IDLE_S:
            self.connect()
        if self.newest is None:
            self.change()
            selection = self.ask("POST", "/v1/selections", self.slices(), kind=MODEL, size=len(self.model))
        else:
            selection = self.ask("POST", "/v1/selections", json.dumps({"transaction": self.newest}).encode())
        selected = time.perf_counter()
        if selection["source"] != "own":
            self.fetch(selection["aggregate"]["href"])
        fetched = time.perf_counter()
        self.change()
        self.publish(selection["id"])
        published = self.used_s = time.perf_counter()
        self.spent_s = {"select": selected - start, "fetch": fetched - selected, "publish": published - fetched}

    def change(self) -> None:
        """Other last eight values than any device ever had: small, finite, and not a training."""
        number = (self.seed << 20 | self.rounds).to_bytes(4, "little")
        unit = bytes.fromhex("3c")  # the high byte of a float32 near 0.01: finite whatever the other three are
        self.model[-PERTURBED_BYTES:] = b"".join(number[:3] + unit for _ in range(PERTURBED_BYTES // 4))

    def publish(self, selection: str) -> None:
        about = json.dumps({"selection": selection, "num_examples": NUM_EXAMPLES})
        head = HEAD.replace("{}", about).encode()
        size = len(head) + len(self.model) + len(TAIL)
        body = [head, *self.slices(), TAIL]
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        self.newest = self.ask("POST", "/v1/transactions", body, kind=kind, size=size)["id"]

    def slices(self) -> list[bytes | memoryview]:
        """The model without a copy, in pieces that a socket takes gladly."""
        view = memoryview(self.model)
        return [view[low : low + SLICE_BYTES] for low in range(0, len(view), SLICE_BYTES)]

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Sequence[bytes | memoryview] | None = None,
        *,
        kind: str = "application/json",
        size: int | None = None,
    ) -> dict[str, Any]:
        """One JSON answer.

        Raises:
            RuntimeError: the status is neither 200 nor 201; the text is the server's problem.
        """
        headers = {} if body is None else {"content-type": kind}
        if size is not None:
            headers["content-length"] = str(size)
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status not in (http.client.OK, http.client.CREATED):
            raise RuntimeError(f"{method} {path}: {response.status} {text[:500]!r}")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def fetch(self, path: str) -> None:
        """A model's bytes into this device's own."""
        self.connection.request("GET", path)
        response = self.connection.getresponse()
        view, got = memoryview(self.model), 0
        while got < len(view) and (count := response.readinto(view[got:])):
            got += count
        if response.status != http.client.OK or got != len(view) or response.read(1):
            raise RuntimeError(f"GET {path}: {response.status}, {got} of {len(view)} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description="One device of the service benchmark.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True, help="tells this device's models from the others'")
    options = parser.parse_args()
    device = Device(options.port, options.seed)
    print(json.dumps({"event": "ready"}), flush=True)
    for line in sys.stdin:
        if line.strip() != "round":
            return
        device.round()
        print(json.dumps({"event": "round", **device.spent_s}), flush=True)


if __name__ == "__main__":
    main()
