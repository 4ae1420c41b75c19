"""What ``dag-acfl capacity`` says of bytes is what three servers move and keep, at a size that it was not measured at."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from fl_core.dag.genesis import compare_all
from fl_core.models import ModelLayout, TensorSpec, encode_flat
from fl_core.types import Vector32
from ledger_server.admin.sizing import DAY_S, Costs, Demand, needs
from tests.builders import make_genesis, new_secret
from tests.network import Node, network, settle

PERCEPTRON = ModelLayout.of([TensorSpec("fc1.weight", "F32", (128, 784)), TensorSpec("fc2.weight", "F32", (11, 128))])
"""0.4 MB."""
SERVERS, DEVICES, ROUNDS = 3, 12, 3


@dataclass
class Device:
    """Publishes on one server, and counts what goes up and comes down."""

    server: Node
    number: int
    start: Vector32
    secret: str = field(default_factory=new_secret)
    newest: str = ""
    up: int = 0
    down: int = 0

    def publish(self, turn: int, **on: object) -> None:
        trained = self.start.copy()
        trained[-8:] += np.float32(0.5 + 1e-3 * self.number + 1e-5 * turn)  # alike, and no two the same
        fields = {"num_examples": 10, "secret": self.secret, **on}
        answer = self.server.post(fields, encode_flat(PERCEPTRON, trained))
        assert answer.status_code == 201, answer.text
        self.up, self.down = self.up + int(answer.request.headers["content-length"]), self.down + len(answer.content)
        self.newest = answer.json()["id"]

    def round(self, turn: int) -> None:
        selection = self.server.select(self.newest)
        average = self.server.get(selection.json()["aggregate"]["href"])
        self.up += int(selection.request.headers["content-length"])
        self.down += len(selection.content) + len(average.content)
        self.publish(turn, selection=selection.json()["id"])


def exchanged(servers: list[Node]) -> int:
    lines = [line for server in servers for line in server.get("/metrics").text.splitlines()]
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("dag_acfl_gossip_bytes_total"))


def on_disk(servers: list[Node]) -> int:
    """Bytes of the databases' pages in use."""
    total = 0
    for server in servers:
        with closing(sqlite3.connect(server.folder / "ledger.sqlite3")) as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {what}").fetchone()[0]
                for what in ("page_count", "freelist_count", "page_size")
            )
        total += (pages - free) * size
    return total


def test_bytes_of_three_servers_are_those_predicted(tmp_path: Path) -> None:
    start = np.random.default_rng(0).standard_normal(PERCEPTRON.num_parameters, dtype=np.float32)
    rules = make_genesis(layout=PERCEPTRON, selector="least-squares", candidates="newest")
    rules = replace(rules, comparison=compare_all(PERCEPTRON))
    with network(tmp_path, SERVERS, genesis=rules, first=encode_flat(PERCEPTRON, start)) as servers:
        devices = [Device(servers[number % SERVERS], number, start) for number in range(DEVICES)]
        for device in devices:
            device.publish(0, parents=[device.server.ledger_id])
            device.up = device.down = 0
        settle(servers)
        moved, kept = exchanged(servers), on_disk(servers)
        for turn in range(1, 1 + ROUNDS):
            for device in devices:
                device.round(turn)
        settle(servers)
        moved, kept = exchanged(servers) - moved, on_disk(servers) - kept
    measured = resources.files("ledger_server.admin").joinpath("measured_costs.json").read_text("utf-8")
    demand = Demand(devices=DEVICES, every_s=60, model_bytes=PERCEPTRON.nbytes, servers=SERVERS)
    said, updates = needs(demand, Costs.parse(measured)), DEVICES * ROUNDS
    assert said.averaged == DEVICES
    assert said.client_up_bytes == pytest.approx(sum(device.up for device in devices) / updates, rel=0.1)
    assert said.client_down_bytes == pytest.approx(sum(device.down for device in devices) / updates, rel=0.1)
    between = said.from_peers_bytes_s * SERVERS / said.updates_per_s
    assert between == pytest.approx(moved / updates, rel=0.1)
    assert said.disk_bytes_day / DAY_S / said.updates_per_s == pytest.approx(kept / updates / SERVERS, rel=0.1)
