"""A bad network between namespaces, in user space: it delays, loses, doubles and reorders what they send one another.

Each namespace gets a TUN device and a route over it to each other's address. One process relays what comes from the
devices through a heap of (due, packet). It draws for each direction from a generator of its own, so that the n-th
packet of a direction meets the same fate in every run with the same seed.

with LossyLink({"n1": "10.0.0.1", "n2": "10.0.0.2"}, Weather(delay_s=0.1, loss=0.05), seed=1):
    …

The machine's own network stays as it is, and the devices go away with the process.
"""

import argparse
import fcntl
import heapq
import ipaddress
import json
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.harness.namespaces import NAMESPACES, enter
from tests.faults.report import ROOT

DEVICE = "lossy"
MTU = 1500
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_TARGET = slice(16, 20)
"""Of an IPv4 header."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What a packet may meet, in one direction.

    Attributes:
        delay_s: Half a round trip.
        jitter_s: Up to so much more or less, without changing the order.
        loss: Share of packets that vanish.
        doubles: Share that comes twice.
        late: Share that is overtaken by what was sent up to ``late_s`` after it.
        late_s: See there.
    """

    delay_s: float = 0.1
    jitter_s: float = 0.02
    loss: float = 0.05
    doubles: float = 0.02
    late: float = 0.02
    late_s: float = 0.05


@dataclass(slots=True)
class Counts:
    """What a link did."""

    packets: int = 0
    nbytes: int = 0
    lost: int = 0
    doubled: int = 0
    late: int = 0


@dataclass(slots=True)
class Direction:
    """From one namespace to another."""

    rng: random.Random
    due_s: float = 0.0
    """Of the last packet that kept its place."""


@dataclass
class Relay:
    """Decides when, and how often, each packet is handed on.

    Args:
        weather: What they meet.
        seed: Decides it.
    """

    weather: Weather
    seed: int
    counts: Counts = field(default_factory=Counts)
    _directions: dict[tuple[bytes, bytes], Direction] = field(default_factory=dict)

    def due(self, source: bytes, target: bytes, size: int, now_s: float) -> list[float]:
        """When a packet of ``size`` bytes that was sent now arrives: never, once or twice."""
        direction = self._directions.get((source, target))
        if direction is None:
            direction = Direction(random.Random(f"{self.seed} {source.hex()} {target.hex()}"))
            self._directions[source, target] = direction
        # As many draws for each packet, so that one packet's fate does not shift the next ones'.
        lost, doubled, late, jitter, lateness = (direction.rng.random() for _ in range(5))
        weather, counts = self.weather, self.counts
        counts.packets += 1
        counts.nbytes += size
        if lost < weather.loss:
            counts.lost += 1
            return []
        due_s = max(direction.due_s, now_s + weather.delay_s + weather.jitter_s * (2 * jitter - 1))
        if late < weather.late:
            counts.late += 1
            due_s += weather.late_s * lateness
        else:
            direction.due_s = due_s
        if doubled < weather.doubles:
            counts.doubled += 1
            return [due_s, due_s]
        return [due_s]


def relay(places: Mapping[str, str], weather: Weather, *, seed: int) -> Counts:
    """Relay between namespaces (name: address) until standard input ends; it says ``ready`` once it does."""
    devices = {address: _device(namespace) for namespace, address in places.items()}
    for namespace, address in places.items():
        _ip(namespace, "link", "set", "dev", DEVICE, "mtu", str(MTU), "txqueuelen", "5000", "up")
        for other in set(places.values()) - {address}:
            _ip(namespace, "route", "replace", f"{other}/32", "dev", DEVICE, "src", address)
    targets = {ipaddress.IPv4Address(address).packed: device for address, device in devices.items()}
    sources = {device: address for address, device in targets.items()}
    decide = Relay(weather, seed)
    waiting: list[tuple[float, int, int, bytes]] = []
    poll = select.poll()
    for descriptor in (0, *sources):
        poll.register(descriptor, select.POLLIN)
    print("ready", flush=True)  # noqa: T201 -- to the process that started this one
    number = 0
    while True:
        pause_s = max(waiting[0][0] - time.monotonic(), 0) if waiting else 1.0
        ready = poll.poll(pause_s * 1000)
        now_s = time.monotonic()
        for descriptor, _ in ready:
            if descriptor == 0:
                return decide.counts
            packet = os.read(descriptor, 65_536)
            device = targets.get(packet[_TARGET]) if packet[0] >> 4 == 4 else None
            if device is None:  # IPv6's neighbour discovery, multicast
                continue
            for due_s in decide.due(sources[descriptor], packet[_TARGET], len(packet), now_s):
                number += 1
                heapq.heappush(waiting, (due_s, number, device, packet))
        while waiting and waiting[0][0] <= now_s:
            _, _, device, packet = heapq.heappop(waiting)
            os.write(device, packet)


def _device(namespace: str) -> int:
    """A TUN device in a namespace; this process is back in its own afterwards."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    enter(NAMESPACES / namespace)
    try:
        device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        return device
    finally:
        enter(Path(f"/proc/self/fd/{own}"))
        os.close(own)


def _ip(namespace: str, *words: str) -> None:
    subprocess.run(["ip", "-n", namespace, *words], check=True)


@dataclass
class LossyLink:
    """The relay as a process of its own; a context manager.

    Args:
        places: Namespaces, each with the address by which the others reach it.
        weather: Between any two of them.
        seed: Decides every packet's fate.
    """

    places: Mapping[str, str]
    weather: Weather
    seed: int
    counts: Counts | None = None
    """What it did, once it has ended."""
    _process: "subprocess.Popen[str] | None" = None

    def __enter__(self) -> Self:
        words = [f"{namespace}={address}" for namespace, address in self.places.items()]
        said = json.dumps(asdict(self.weather))
        command = [sys.executable, "-m", "tests.faults.harness.lossy_link", "--seed", str(self.seed), said, *words]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None, "piped"
        assert self._process.stdout.readline() == "ready\n", "the relay did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None, "entered"
        said, _ = self._process.communicate(timeout=10)
        if self._process.returncode == 0:
            self.counts = Counts(**json.loads(said))


def main() -> None:
    """Relay, then say what was done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weather", type=lambda text: Weather(**json.loads(text)), help="as JSON")
    parser.add_argument("places", nargs="+", metavar="NAMESPACE=ADDRESS")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    places = dict(place.split("=") for place in options.places)
    print(json.dumps(asdict(relay(places, options.weather, seed=options.seed))))  # noqa: T201 -- as above


if __name__ == "__main__":
    main()
