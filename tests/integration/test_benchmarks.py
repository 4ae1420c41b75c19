"""The benchmarks' own clients and servers still work together; nothing is timed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ROUNDS = """
import sys; from pathlib import Path
import harness; from device_client import Device; from our_server import running_server
with running_server(harness.SMALL_MODEL_VALUES, folder=Path(sys.argv[1])) as running:
    device = Device(running.port, 1)
    device.round(); device.round()
    print("rounds:", device.rounds)
"""
GOSSIP = """
import sys; from pathlib import Path
import gossip
with gossip.servers(100, count=2, folder=Path(sys.argv[1])) as (running, _, _):
    gossip.Publisher(running[0].port).publish()
    gossip.wait_until_equal(running)
    print("equal:", gossip._insert_all(running[1], Path(sys.argv[1])) > 0)
"""
TIPS = """
import sys; from pathlib import Path
import tip_pile
file = tip_pile.new_ledger(Path(sys.argv[1]) / "pile", tip_pile.Models.of(1, clusters=1), selector="top-k")
tip_pile.pile_up(file, 120)
print("tips:", tip_pile.measure(file, repeats=1)["tips"])
"""
TASKS = """
import selection_keep_own
_, load = selection_keep_own.tasks()["rotated digits, 60 samples, 32 hidden"]
print("clients:", len(load(1)))
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [(ROUNDS, "rounds: 2\n"), (GOSSIP, "equal: True\n"), (TIPS, "tips: 120\n"), (TASKS, "clients: 16\n")],
    ids=["round", "gossip", "tips", "tasks"],
)
def test_a_benchmark_plays(program: str, said: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=BENCHMARKS,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, said), done.stderr
