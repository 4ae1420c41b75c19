"""Servers that lose sight of each other become equal again: the short version of ``make faults PART=partitions``."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import partitions
from tests.faults.harness.namespaces import Network, apart
from tests.postgres import Databases

RECEIVE = """
import socket
with socket.socket(type=socket.SOCK_DGRAM) as receiver:
    receiver.bind(("", 9000))
    receiver.settimeout(20)
    print("bound", flush=True)
    while (data := receiver.recv(100)) != b"end":
        print(data.decode(), flush=True)
"""
SEND = """
import socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    sender.sendto(sys.argv[2].encode(), (sys.argv[1], 9000))
"""


def send(network: Network, source: int, target: int, data: str) -> None:
    command = [*network.prefix(source), sys.executable, "-c", SEND, network.address(target), data]
    subprocess.run(command, check=True, timeout=20)


@pytest.mark.faults
def test_a_link_is_cut_in_one_direction_and_healed() -> None:
    with apart(3) as network:
        receivers = [
            subprocess.Popen([*network.prefix(each), sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, text=True)
            for each in (0, 1)
        ]
        for receiver in receivers:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "bound\n"
        network.cut(0, 1)
        send(network, 0, 1, "cut")
        send(network, 1, 0, "the other way")
        send(network, 2, 1, "a third")
        network.heal()
        send(network, 0, 1, "healed")
        for target in (0, 1):
            send(network, 2, target, "end")
        assert [receiver.communicate(timeout=20)[0] for receiver in receivers] == [
            "the other way\n",
            "a third\nhealed\n",
        ]


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_servers_that_were_cut_off_in_eight_ways_become_equal_and_never_show_a_child_before_its_parents(
    tmp_path: Path, postgresql: Databases
) -> None:
    report = partitions.run(tmp_path, len(partitions.KINDS), 2026, lasts_s=(0.5, 1.5))
    assert report.broken == []
    happened = {
        kind for cluster in partitions.CLUSTERS for kind in report.figures[cluster.name]["equal_after_s_by_kind"]
    }
    assert happened == set(partitions.KINDS)
