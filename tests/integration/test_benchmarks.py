"""The benchmarks' own clients and servers still work together; nothing is timed."""

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAM = """
import sys; from pathlib import Path
import harness, load, selection_keep_own, tip_pile, uvloop
from device_client import Device; from our_server import running_server
folder = Path(sys.argv[1])

with running_server(harness.SMALL_MODEL_VALUES, folder=folder / "round") as running:
    device = Device(running.port, 1)
    device.round(); device.round()
    print("rounds:", device.rounds)
    crowd = uvloop.run(load.against(running, [2], clusters=1, warm_s=0.1, seconds=0.5))
    print("given up:", crowd[0]["given_up"], "rounds:", crowd[0]["rounds_per_s"] > 0)

file = tip_pile.new_ledger(folder / "pile", tip_pile.Models.of(1, clusters=1), selector="top-k")
tip_pile.pile_up(file, 120)
print("tips:", tip_pile.measure(file, repeats=1)["tips"])

_, load = selection_keep_own.tasks()["rotated digits, 60 samples, 32 hidden"]
print("clients:", len(load(1)))
"""


def test_the_benchmarks_play(tmp_path: Path) -> None:
    (tmp_path / "round").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=BENCHMARKS,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = "rounds: 2\ngiven up: {} rounds: True\ntips: 120\nclients: 16\n"
    printed = [line for line in done.stdout.splitlines(keepends=True) if not line.startswith("  ")]
    assert (done.returncode, "".join(printed)) == (0, said), done.stderr
