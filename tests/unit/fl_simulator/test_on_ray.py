"""A run's folder on its way to a node of a Ray cluster and back."""

from pathlib import Path

from fl_simulator.run.folder import CHECKPOINT, ROUNDS, SCENARIO, SUMMARY
from fl_simulator.run.on_ray import read_folder, write_folder


def test_a_run_that_finished_elsewhere_leaves_no_checkpoint(tmp_path: Path) -> None:
    for name in (SCENARIO, ROUNDS, CHECKPOINT, ".lock", "notes.txt"):
        (tmp_path / name).write_bytes(b"old")
    sent = read_folder(tmp_path)
    assert set(sent) == {SCENARIO, ROUNDS, CHECKPOINT}
    back = {SCENARIO: b"old", ROUNDS: b"new", SUMMARY: b"{}"}
    write_folder(tmp_path, back)
    assert read_folder(tmp_path) == back
    assert {each.name for each in tmp_path.iterdir()} == {SCENARIO, ROUNDS, SUMMARY, ".lock", "notes.txt"}
