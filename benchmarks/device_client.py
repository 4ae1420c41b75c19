"""One device of the service benchmark: the three calls of the API, by the standard library alone.

A device asks with its newest transaction (or, before it has one, with its model), fetches the average unless it is
its own model, "trains" without changing anything but eight values (so that every model is different bytes and is
stored, as a trained one would be), and publishes by its secret. One kept connection, no project code: this is the
least that a client must do, as Flower's idle client is. Speaks lines with ``service_round.py``: prints ``{"event":
"ready"}``, runs one round per line ``round`` and prints ``{"event": "round", ...}``; ends at ``stop`` or end of
input.

    python benchmarks/device_client.py --port 8900 --seed 3
"""

import argparse
import http.client
import json
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    cluster: int | None = None
    model: bytearray = field(default_factory=bytearray)
    newest: str | None = None
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    rounds: int = 0
    spent_s: dict[str, float] = field(default_factory=dict)
    used_s: float = 0.0
    connection: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = connected(self.port)
        genesis = self.ask("GET", "/v1/genesis")
        self.model = bytearray(genesis["model"]["size"])
        self.fetch(genesis["model"]["href"])

    def connect(self) -> None:
        self.connection.close()
        self.connection = connected(self.port)

    def round(self) -> None:
        """Select, fetch, change, publish."""
        self.rounds += 1
        start = time.perf_counter()
        if start - self.used_s > IDLE_S:
            self.connect()
        selection = self.select()
        selected = time.perf_counter()
        if selection["source"] != "own":
            self.fetch(selection["aggregate"]["href"])
        fetched = time.perf_counter()
        self.change()
        self.publish(selection["id"])
        published = self.used_s = time.perf_counter()
        self.spent_s = {"select": selected - start, "fetch": fetched - selected, "publish": published - fetched}

    def select(self) -> dict[str, Any]:
        """Ask for tips, by the newest transaction or, before there is one, with the model."""
        if self.newest is not None:
            return self.ask("POST", "/v1/selections", json.dumps({"transaction": self.newest}).encode())
        self.change()
        return self.ask("POST", "/v1/selections", slices(self.model), kind=MODEL, size=len(self.model))

    def change(self) -> None:
        """Other last eight values than any device ever had: far enough from genesis's to have a direction."""
        self.model[-PERTURBED_BYTES:] = perturbation(self.seed, self.rounds, cluster=self.cluster)

    def publish(self, selection: str) -> None:
        body, headers = multipart(
            {"selection": selection, "num_examples": NUM_EXAMPLES, "secret": self.secret}, self.model
        )
        size = int(headers["content-length"])
        self.newest = self.ask("POST", "/v1/transactions", body, kind=headers["content-type"], size=size)["id"]

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


def perturbation(seed: int, rounds: int, *, cluster: int | None = None) -> bytes:
    """Eight float32 values between 0.5 and 1 in magnitude, alike but never twice the same, signed by cluster.

    Clusters 0, 1 and 2 are at right angles to one another; without one all values are positive and all devices alike.
    """
    bits = 0x3F00_0000 | (seed << 19 | rounds) & 0x7F_FFFF
    negative = [cluster is not None and bool(place >> cluster & 1) for place in range(PERTURBED_BYTES // 4)]
    return b"".join((bits | each << 31).to_bytes(4, "little") for each in negative)


def connected(port: int) -> http.client.HTTPConnection:
    """A connection that stands, without the wait for more that would join small pieces."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def slices(model: bytearray) -> list[bytes | memoryview]:
    """The model without a copy, in pieces that a socket takes gladly."""
    view = memoryview(model)
    return [view[low : low + SLICE_BYTES] for low in range(0, len(view), SLICE_BYTES)]


def multipart(about: dict[str, Any], model: bytearray) -> tuple[list[bytes | memoryview], dict[str, str]]:
    """A publication's body in pieces, and its headers."""
    head = HEAD.replace("{}", json.dumps(about)).encode()
    size = len(head) + len(model) + len(TAIL)
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}", "content-length": str(size)}
    return [head, *slices(model), TAIL], headers


def main() -> None:
    parser = argparse.ArgumentParser(description="One device of the service benchmark.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True, help="0 to 15: tells this device's models from the others'")
    parser.add_argument("--cluster", type=int, choices=(0, 1, 2), help="the devices of one cluster learn alike")
    options = parser.parse_args()
    speak(Device(options.port, options.seed, options.cluster))


class Speaker(Protocol):
    """What a device must offer to be driven."""

    spent_s: dict[str, float]

    def round(self) -> None:
        """Select, fetch, change, publish; leaves the seconds of each in ``spent_s``."""


def speak(device: Speaker) -> None:
    """Rounds on request, over stdin and stdout."""
    print(json.dumps({"event": "ready"}), flush=True)
    for line in sys.stdin:
        if line.strip() != "round":
            return
        device.round()
        print(json.dumps({"event": "round", **device.spent_s}), flush=True)


if __name__ == "__main__":
    main()
