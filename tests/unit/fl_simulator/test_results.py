"""The folder of a run: what a reader finds in it, and what a crash leaves to go on from."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.selection_pictures import read_choices
from fl_simulator.errors import ResultsError, RunExistsError, SimulationError
from fl_simulator.run.environment import describe_environment
from fl_simulator.run.folder import (
    CHECKPOINT,
    CLIENTS,
    ENVIRONMENT,
    LABEL,
    ROUNDS,
    SCENARIO,
    SUMMARY,
    RunFolder,
    is_finished,
    read_label,
    read_rounds,
)
from fl_simulator.run.record import _WHOLE_NUMBERS, ROUND_COLUMNS, RoundRecord, RunLabel, summarise_rounds
from fl_simulator.run.results import shown_runs
from fl_simulator.strategies.protocol import Choice

ROOT = Path(__file__).parents[3]
TOML = '[strategy]\nname = "fedavg"\n'
MINE = RunLabel(
    experiment="dag-acfl/table_2", setting="MNIST(type I)-LR", participation=0.5, method="FlexCFL(2)", seed=3, rounds=4
)


def record(number: int, accuracy: float | None = 0.5) -> RoundRecord:
    """A round in which two clients sent and got four bytes each."""
    return RoundRecord(
        round=number,
        virtual_time_s=number + 1.0,
        participants=2,
        up_bytes=8,
        down_bytes=8,
        seconds={"training": 0.25},
        accuracy=accuracy,
    )


def begin(path: Path, *, scenario: str = TOML, overwrite: bool = False) -> RunFolder:
    return RunFolder.open(path, scenario=scenario, label=MINE, overwrite=overwrite)


def write_rounds(folder: RunFolder, *numbers: int) -> None:
    for number in numbers:
        folder.append(record(number, number / 10))


STATE = {"models": np.full((2, 3), 2, np.float32), "own/rng": np.arange(4)}


def test_round_comes_back_from_its_row() -> None:
    figures: dict[str, Any] = {name: place + 0.5 for place, name in enumerate(ROUND_COLUMNS)}
    figures |= {name: int(figures[name]) for name in _WHOLE_NUMBERS}
    whole = RoundRecord(seconds={"training": 0.5, "evaluation": 1.0}, **figures)
    row = whole.to_row()
    assert list(row) == [*ROUND_COLUMNS, "seconds_training", "seconds_evaluation"]
    assert RoundRecord.from_row(row) == whole


def test_figures_without_a_value_are_no_columns() -> None:
    assert "modularity" not in record(0).to_row()
    assert RoundRecord.from_row({**record(0).to_row(), "modularity": ""}).modularity is None


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan])
def test_loss_of_a_diverged_model_is_kept(loss: float) -> None:
    diverged = replace(record(0), loss=loss)
    assert repr(RoundRecord.from_row(diverged.to_row()).loss) == repr(loss)
    json.dumps(diverged.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accurracy": "1.0"}, "no column 'accurracy'"),
        ({"accuracy": "high"}, "accuracy is 'high'"),
        ({"up_bytes": "1.5"}, r"up_bytes is '1.5'"),
        ({"participants": "True"}, "participants is 'True'"),
        ({"seconds_training": "long"}, "seconds_training is 'long'"),
        ({"up_bytes": ""}, "lacks something.*up_bytes"),
    ],
)
def test_round_with_something_wrong_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(ResultsError, match=words):
        RoundRecord.from_row({**record(0).to_row(), **change})


def test_label_names_a_folder() -> None:
    assert MINE.folder_name == "mnist-type-i-lr-0.5-flexcfl-2-seed-3"


def test_summary_has_the_last_evaluated_round_the_first_best_one_and_the_sums() -> None:
    records = [record(0, 0.2), record(1, 0.9), record(2, 0.9), record(3, 0.7), record(4, None)]
    summary = summarise_rounds(records)
    assert (summary["rounds"], summary["final"]["round"], summary["best"]["round"]) == (5, 3, 1)
    assert (summary["up_bytes"], summary["down_bytes"], summary["between_servers_bytes"]) == (40, 40, 0)
    assert summary["seconds"] == {"training": 1.25}


def test_run_without_an_evaluation_has_no_summary() -> None:
    with pytest.raises(SimulationError, match="evaluate_every"):
        summarise_rounds([record(0, None)])


def test_finished_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    with begin(tmp_path / "a" / "b") as folder:
        write_rounds(folder, 0, 1)
        folder.save_checkpoint(STATE)
        write_rounds(folder, 2)
        folder.finish({"note": "µ"}, clients=[(0, 0.25, 1.5, 1)])
        written = folder.records
    path = tmp_path / "a" / "b"
    assert (read_label(path), read_rounds(path), is_finished(path)) == (MINE, written, True)
    assert (path / SCENARIO).read_text() == TOML
    summary = json.loads((path / SUMMARY).read_text("utf-8"))
    assert (summary["note"], summary["final"]["round"], summary["label"]) == ("µ", 2, asdict(MINE))
    assert not (path / CHECKPOINT).exists()
    assert (path / CLIENTS).read_text() == "client,accuracy,loss,heard\n0,0.25,1.5,1\n"


def test_round_can_be_read_before_the_run_is_over(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0))
        assert read_rounds(tmp_path) == [record(0)]
        assert not is_finished(tmp_path)


def test_a_finished_run_is_refused_and_the_way_out_named(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0))
        folder.finish()
    with pytest.raises(RunExistsError, match=r"--out.*--overwrite"):
        begin(tmp_path)
    assert is_finished(tmp_path)


def test_a_finished_run_that_lost_its_scenario_is_not_begun_anew(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0))
        folder.finish()
    (tmp_path / SCENARIO).unlink()
    with pytest.raises(ResultsError, match=SCENARIO):
        begin(tmp_path)
    assert len(read_rounds(tmp_path)) == 1


def test_overwriting_leaves_nothing_of_the_run_and_all_that_is_not_of_it(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        write_rounds(folder, 0)
        folder.save_checkpoint(STATE)
        folder.finish()
    (tmp_path / "notes.txt").write_text("mine")
    with begin(tmp_path, overwrite=True) as folder:
        assert (folder.records, folder.resumed_from) == ([], None)
    assert not (tmp_path / SUMMARY).exists()
    assert not (tmp_path / CLIENTS).exists()
    assert (tmp_path / ROUNDS).read_bytes() == b""
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_processes_do_not_write_to_one_folder(tmp_path: Path, *, overwrite: bool) -> None:
    with begin(tmp_path), pytest.raises(SimulationError, match="another process writes"):
        begin(tmp_path, overwrite=overwrite)
    begin(tmp_path).close()


def test_refused_folder_is_not_left_locked(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        write_rounds(folder, 0)
    with pytest.raises(SimulationError, match="another scenario"):
        begin(tmp_path, scenario=TOML + "# changed\n")
    begin(tmp_path, overwrite=True).close()


def test_mended_scenario_is_played_in_the_folder_that_a_refused_one_left(tmp_path: Path) -> None:
    begin(tmp_path).close()
    mended = TOML + "# changed\n"
    with begin(tmp_path, scenario=mended) as folder:
        assert folder.records == []
    assert (tmp_path / SCENARIO).read_text() == mended


def test_finished_run_of_another_scenario_is_not_taken_for_this_one(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0))
        folder.finish()
    with pytest.raises(SimulationError, match="another scenario") as refused:
        begin(tmp_path, scenario=TOML + "# changed\n")
    assert not isinstance(refused.value, RunExistsError)


def test_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SimulationError, match="file cannot be written: File exists"):
        begin(tmp_path / "file")


def test_start_that_was_cut_short_before_any_round_is_begun_again(tmp_path: Path) -> None:
    begin(tmp_path).close()
    (tmp_path / SCENARIO).unlink()  # the last that create writes
    with begin(tmp_path) as folder:
        assert folder.records == []


def test_run_without_a_checkpoint_is_resumed_from_its_beginning(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        write_rounds(folder, 0, 1)
    with begin(tmp_path) as folder:
        assert (folder.records, folder.resumed_from) == ([], None)
        write_rounds(folder, 0)
    assert len(read_rounds(tmp_path)) == 1


def test_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        write_rounds(folder, 0, 1)
        folder.save_checkpoint(STATE)
        write_rounds(folder, 2, 3)
    with begin(tmp_path) as folder:
        assert folder.resumed_from is not None
        assert folder.resumed_from.keys() == STATE.keys()
        np.testing.assert_array_equal(folder.resumed_from["models"], STATE["models"], strict=True)
        assert [each.round for each in folder.records] == [0, 1]
        write_rounds(folder, 2)
        folder.finish()
    assert [each.round for each in read_rounds(tmp_path)] == [0, 1, 2]
    environment = json.loads((tmp_path / ENVIRONMENT).read_text())
    assert len(environment["resumed"]) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(cut=st.integers(0, 400), junk=st.binary(max_size=20))
def test_whatever_a_crash_does_after_the_checkpoint_the_run_goes_on_from_it(
    tmp_path: Path, cut: int, junk: bytes
) -> None:
    with begin(tmp_path, overwrite=True) as folder:
        write_rounds(folder, 0, 1)
        folder.save_checkpoint(STATE)
        synced = (tmp_path / ROUNDS).read_bytes()
        write_rounds(folder, 2, 3)
    later = (tmp_path / ROUNDS).read_bytes()[len(synced) :]
    (tmp_path / ROUNDS).write_bytes(synced + later[:cut] + junk)
    (tmp_path / f".{CHECKPOINT}.draft").write_bytes(junk)  # a kill while the next checkpoint was written
    with begin(tmp_path) as folder:
        assert [each.round for each in folder.records] == [0, 1]
        assert (tmp_path / ROUNDS).read_bytes() == synced
        folder.append(record(2))
    assert [each.round for each in read_rounds(tmp_path)] == [0, 1, 2]


def test_reader_leaves_a_torn_last_line_out(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0))
    with (tmp_path / ROUNDS).open("ab") as file:
        file.write(b"1,2.0,")
    assert read_rounds(tmp_path) == [record(0)]


def test_checkpoint_that_knows_more_than_the_rounds_is_refused(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        write_rounds(folder, 0, 1)
        folder.save_checkpoint(STATE)
    left = b"\n".join((tmp_path / ROUNDS).read_bytes().split(b"\n")[:2]) + b"\n"
    (tmp_path / ROUNDS).write_bytes(left)
    with pytest.raises(ResultsError, match=r"has 1 rounds, and checkpoint.npz knows of 2"):
        begin(tmp_path)
    assert (tmp_path / ROUNDS).read_bytes() == left


def test_columns_that_come_later_are_added_to_all_rounds(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0, None))
        folder.append(record(1, 0.5))
        folder.append(record(2, None))
        assert read_rounds(tmp_path) == folder.records
    head, *rows = (tmp_path / ROUNDS).read_text().splitlines()
    assert head.split(",")[-2:] == ["accuracy", "seconds_training"]
    assert [row.split(",")[-2] for row in rows] == ["", "0.5", ""]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        write_rounds(folder, 0)
        folder.save_checkpoint(STATE)
    content = (tmp_path / CHECKPOINT).read_bytes()
    middle = content.index(b"\x93NUMPY") + 140  # inside of an array, not of zip's index
    (tmp_path / CHECKPOINT).write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
    with pytest.raises(ResultsError, match=CHECKPOINT):
        begin(tmp_path)
    (tmp_path / CHECKPOINT).write_bytes(content[: len(content) // 2])
    with pytest.raises(ResultsError, match=CHECKPOINT):
        begin(tmp_path)


def test_checkpoint_without_python_objects_only(tmp_path: Path) -> None:
    with begin(tmp_path) as folder, pytest.raises(ValueError, match="models holds Python objects"):
        folder.save_checkpoint({"models": np.array([{}], dtype=object)})
    assert not (tmp_path / CHECKPOINT).exists()


def test_damaged_round_and_label_are_named_with_their_file(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0))
    (tmp_path / ROUNDS).write_bytes(b"round\n0\n")
    with pytest.raises(ResultsError, match=r"rounds.csv, line 2: a round lacks"):
        read_rounds(tmp_path)
    for wrong in ("[]", "{}", '{"colour": 1}', "{", "[" * 100_000):
        (tmp_path / LABEL).write_text(wrong)
        with pytest.raises(ResultsError, match=r"run.json is damaged"):
            read_label(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [(LABEL, {"seed": "x"}), (LABEL, {"rounds": -1}), (LABEL, {"method": "\ud800"}), (SUMMARY, {"costs": [1]})],
)
def test_a_run_that_no_console_can_show_is_named(tmp_path: Path, name: str, content: dict[str, object]) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0))
        folder.finish()
    written = json.loads((tmp_path / name).read_text())
    (tmp_path / name).write_text(json.dumps({**written, **content}))
    with pytest.raises(ResultsError, match=rf"{tmp_path}.* is damaged"):
        shown_runs([tmp_path])


def test_a_round_with_a_number_that_no_curve_can_show_is_named(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        folder.append(record(0))
    head, line = (tmp_path / ROUNDS).read_text().splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True)) | {"up_bytes": "9" * 400, "accuracy": "0.5"}
    (tmp_path / ROUNDS).write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    with pytest.raises(ResultsError, match=r"rounds.csv is damaged"):
        shown_runs([tmp_path])


def test_a_link_to_a_device_is_not_read(tmp_path: Path) -> None:
    with begin(tmp_path):
        pass
    (tmp_path / ROUNDS).unlink()
    (tmp_path / ROUNDS).symlink_to("/dev/zero")
    with pytest.raises(ResultsError, match=r"rounds.csv cannot be read"):
        read_rounds(tmp_path)


def test_environment_names_versions_seed_and_processor() -> None:
    found = describe_environment(seed=12)
    assert found["seed"] == 12
    assert found["packages"]["numpy"] == np.__version__
    assert found["cores"] >= 1
    assert found["processor"]
    assert json.loads(json.dumps(found)) == found
    if (ROOT / ".git").exists():
        assert len(found["commit"]) == 40
        assert isinstance(found["commit_changed"], bool)


def test_the_last_choices_are_read_as_they_were_kept(tmp_path: Path) -> None:
    choices = [
        Choice(
            client=4,
            offered=np.array([2, 0, 1]),
            taken=np.array([2]),
            similarities=np.array([0.9, 0.2, 0.1]),
            update_similarities=np.array([0.8, 0.1, -0.5]),
            probabilities=np.array([0.0, 0.7]),
        ),
        Choice(client=0, offered=np.array([], dtype=np.int64), taken=np.array([], dtype=np.int64)),
    ]
    with begin(tmp_path) as folder:
        folder.save_choices(choices, np.array([0, 0, 1, 1, 1]))
    kept = read_choices(tmp_path)
    assert kept is not None
    (first, second), clusters = kept
    assert clusters.tolist() == [0, 0, 1, 1, 1]
    assert (first.client, first.offered.tolist(), first.taken.tolist()) == (4, [2, 0, 1], [2])
    assert first.ranked_by.tolist() == [0.8, 0.1, -0.5]
    assert first.probabilities.tolist() == [0.0, 0.7]
    assert (second.client, len(second.offered), len(second.taken)) == (0, 0, 0)


def test_a_folder_without_choices_has_none(tmp_path: Path) -> None:
    begin(tmp_path).close()
    assert read_choices(tmp_path) is None
