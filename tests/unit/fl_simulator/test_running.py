"""A run: what its folder holds, and that stopping it anywhere changes no figure."""

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_core.errors import DagAcflError
from fl_core.selection import SELECTORS
from fl_core.types import JsonScalar
from fl_core.verify import verify
from fl_simulator.config.experiment import PlannedRun
from fl_simulator.config.scenario import read_scenario
from fl_simulator.errors import ResultsError
from fl_simulator.run.folder import (
    CHECKPOINT,
    CHOICES,
    CLIENTS,
    EDGES,
    EVIDENCE,
    LEDGER,
    SUMMARY,
    is_finished,
    read_rounds,
)
from fl_simulator.run.parallel import RunFailed, play_one
from fl_simulator.run.play import WriteLedger, open_folder, run
from fl_simulator.run.prepare import build_world
from fl_simulator.run.record import RoundRecord, RunLabel
from fl_simulator.strategies import STRATEGIES, decentralised_names
from ledger_server.admin.bundle import Bundle, write_bundle

SMALL: Mapping[str, Mapping[str, JsonScalar]] = {
    "partition": {"name": "rotations", "quarter_turns": "0,2", "clients": "3,3", "samples": 30},
    "model": {"name": "digits-mlp", "similarity_layers": "all"},
    "training": {"initial_epochs": 2, "learning_rate": 0.1, "batch_size": 5},
    "run": {"rounds": 6, "participation": 0.5, "evaluate_every": 2, "checkpoint_every": 2},
}
QUICK: Mapping[str, JsonScalar] = {"name": "dag-acfl", "selector": "least-squares"}
"""Asks no BEAST, which is most of what a small run costs."""
UNRELIABLE_RING: Mapping[str, JsonScalar] = {"name": "ring", "links_up": 0.8, "nodes_up": 0.8}
ROUNDS_OF_SMALL = 6
OF_THE_MACHINE = ("seconds", "peak_memory_bytes")
"""What a round took this machine: no figure of the run."""


def planned(strategy: Mapping[str, JsonScalar] | str = "dag-acfl", **changes: Mapping[str, JsonScalar]) -> PlannedRun:
    named = {"name": strategy} if isinstance(strategy, str) else strategy
    sections = {section: {**SMALL.get(section, {}), **changes.get(section, {})} for section in {*SMALL, *changes}}
    if named["name"] in decentralised_names():
        sections.setdefault("topology", UNRELIABLE_RING)
    scenario = read_scenario({**sections, "strategy": named})
    label = RunLabel(
        experiment="test",
        setting="small",
        participation=scenario.run.participation,
        method=scenario.strategy.name,
        seed=scenario.run.seed,
        rounds=scenario.num_intervals,
    )
    return PlannedRun(label, scenario)


def timed(name: str) -> PlannedRun:
    return planned(QUICK if name == "dag-acfl" else name, asynchronous=TIMED)


def never() -> bool:
    return False


def after(rounds: int) -> Callable[[], bool]:
    """Whether to stop: after so many rounds."""
    asked = iter(range(1, 1000))
    return lambda: next(asked) >= rounds


def play(
    mine: PlannedRun,
    path: Path,
    *,
    should_stop: Callable[[], bool] = never,
    on_round: Callable[[RoundRecord], None] = lambda _record: None,
    write_ledger: WriteLedger | None = write_bundle,
    workers: int = 1,
) -> bool:
    with open_folder(mine, path, overwrite=False) as folder:
        return run(mine, folder, workers=workers, on_round=on_round, should_stop=should_stop, write_ledger=write_ledger)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a small run that nobody interrupted; each is played once, and only looked at."""

    @cache
    def played(name: str = "dag-acfl", *, in_virtual_time: bool = False) -> Path:
        path = tmp_path_factory.mktemp("whole")
        assert play(timed(name) if in_virtual_time else planned(name), path)
        return path

    return played


def figures(path: Path) -> list[str]:
    """The lines of a run's rounds, without ``OF_THE_MACHINE``."""
    rows = [record.to_row() for record in read_rounds(path)]
    return [
        json.dumps({name: cell for name, cell in row.items() if not name.startswith(OF_THE_MACHINE)}) for row in rows
    ]


def summary(path: Path) -> Any:
    def without_machine(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_machine(each) for name, each in value.items() if name not in OF_THE_MACHINE}
        return value

    return without_machine(json.loads((path / SUMMARY).read_text()))


def assert_same_run(left: Path, right: Path) -> None:
    assert figures(left) == figures(right)
    assert (left / CLIENTS).read_bytes() == (right / CLIENTS).read_bytes()
    assert summary(left) == summary(right)
    for file in (LEDGER, CHOICES, EDGES, EVIDENCE):
        assert (left / file).exists() == (right / file).exists()
        if (left / file).exists():
            assert (left / file).read_bytes() == (right / file).read_bytes(), file


def model_bytes(mine: PlannedRun) -> int:
    world = build_world(mine.scenario, workers=1)
    world.close()
    return world.model_bytes


# -- what a round's line says ---------------------------------------------------------------------------


def test_rounds_of_dag_acfl_say_what_travelled_what_was_learnt_and_what_the_ledger_is(
    whole: Callable[..., Path],
) -> None:
    found = read_rounds(whole())
    assert is_finished(whole())
    assert [each.round for each in found] == list(range(6))
    assert [each.virtual_time_s for each in found] == [1, 2, 3, 4, 5, 6]
    assert [each.participants for each in found] == [3] * 6
    assert [each.transactions for each in found] == [4, 7, 10, 13, 16, 19], "genesis, and three a round"
    model = model_bytes(planned())
    assert model > (64 * 32 + 32 + 32 * 10 + 10) * 4, "float32, and the file's head"
    assert all(each.down_bytes == 3 * (model + 32) for each in found)
    assert found[0].up_bytes == 3 * (2 * model + 32), "three joiners send a model to ask and one to publish"
    assert found[-1].up_bytes <= 3 * (2 * model + 32)
    assert all(each.tips is not None and 1 <= each.tips <= 6 for each in found)
    assert all(each.storage_bytes is not None and each.transactions is not None for each in found)
    assert all((each.storage_bytes or 0) > (each.transactions or 0) * model for each in found)
    assert all({"training", "ledger"} <= each.seconds.keys() for each in found)
    if sys.platform == "linux":
        peaks = [each.peak_memory_bytes or 0 for each in found]
        assert 2**20 < peaks[0] <= peaks[-1]
        assert peaks == sorted(peaks)


def test_only_evaluated_rounds_have_accuracies_and_they_are_means_of_the_clients(whole: Callable[..., Path]) -> None:
    records = read_rounds(whole())
    judged = [each for each in records if each.accuracy is not None]
    assert [each.round for each in judged] == [1, 3, 5]
    accuracy, loss, heard = np.loadtxt(whole() / CLIENTS, delimiter=",", skiprows=1, unpack=True)[1:]
    assert len(accuracy) == 6
    assert judged[-1].accuracy == pytest.approx(accuracy.mean(), abs=1e-6)
    assert judged[-1].worst_client == pytest.approx(accuracy.min(), abs=1e-6)
    assert judged[-1].loss == pytest.approx(loss.mean(), rel=1e-5)
    assert heard.tolist() == [1] * 6
    assert all(each.loss is None and each.modularity is None for each in records if each.accuracy is None)


def test_a_client_that_has_not_taken_part_has_no_accuracy(tmp_path: Path) -> None:
    play(planned(run={"rounds": 1, "participation": 0.34}), tmp_path)
    assert len((tmp_path / CLIENTS).read_text().splitlines()) == 1 + 2


def test_a_method_that_names_clusters_is_judged_by_them(whole: Callable[..., Path]) -> None:
    final = read_rounds(whole("oracle"))[-1]
    assert (final.communities, final.purity, final.misclassified) == (2, 1.0, 0)


def test_communities_are_looked_for_when_asked(whole: Callable[..., Path], tmp_path: Path) -> None:
    play(planned(run={"communities": False}), tmp_path)
    with_them, without = read_rounds(whole())[-1], read_rounds(tmp_path)[-1]
    assert with_them.communities is not None
    assert with_them.modularity is not None
    assert (without.communities, without.modularity, without.purity) == (None, None, None)
    assert with_them.accuracy == without.accuracy


# -- the ledger -----------------------------------------------------------------------------------------


def test_a_finished_runs_ledger_verifies(whole: Callable[..., Path]) -> None:
    with Bundle(whole() / LEDGER) as bundle:
        assert list(verify(bundle)) == []
        assert bundle.count == 19


def test_no_ledger_is_kept_where_the_scenario_wants_none(tmp_path: Path) -> None:
    assert play(planned(run={"ledger": False, "rounds": 1}), tmp_path)
    assert not (tmp_path / LEDGER).exists()


# -- the same again --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_stopped_run_goes_on_to_the_figures_of_an_uninterrupted_one(
    name: str, whole: Callable[..., Path], tmp_path: Path
) -> None:
    mine = planned(name)
    for stop, more in ((1, 1), (3, 2)):
        assert not play(mine, tmp_path, should_stop=after(more))
        assert len(read_rounds(tmp_path)) == stop
        assert not is_finished(tmp_path)
    assert play(mine, tmp_path)
    assert_same_run(whole(name), tmp_path)


@pytest.mark.parametrize(("name", "crash"), [("fedavg", 0), ("fedavg", 1), ("fedavg", 2), ("dag-acfl", 4)])
def test_a_run_that_died_in_a_round_goes_on_from_its_checkpoint(
    name: str, crash: int, whole: Callable[..., Path], tmp_path: Path
) -> None:
    def die(record: RoundRecord) -> None:
        if record.round == crash:
            raise ZeroDivisionError

    mine = planned(name)
    with pytest.raises(ZeroDivisionError):
        play(mine, tmp_path / "died", on_round=die)
    assert (tmp_path / "died" / CHECKPOINT).exists() == (crash >= 2)
    played: list[int] = []
    assert play(mine, tmp_path / "died", on_round=lambda record: played.append(record.round))
    assert played[0] == crash // 2 * 2, "checkpoints are after rounds 1 and 3"
    assert_same_run(whole(name), tmp_path / "died")


def test_a_checkpoint_that_lacks_what_the_strategy_remembers_is_told_with_what_to_do(tmp_path: Path) -> None:
    mine = planned("fedavg")
    assert not play(mine, tmp_path, should_stop=after(1))
    with np.load(tmp_path / CHECKPOINT) as saved:
        arrays = {name: array for name, array in saved.items() if not name.endswith("models")}
        assert len(arrays) < len(saved.files)
    np.savez(tmp_path / CHECKPOINT, **arrays)
    with pytest.raises(ResultsError, match=r"another version of the simulator.*--overwrite"):
        play(mine, tmp_path)
    assert len(read_rounds(tmp_path)) == 1, "what was done before is kept"


@pytest.mark.parametrize("name", ["fedavg", "dag-acfl", "ifca"])
def test_the_same_seed_gives_the_same_figures_and_another_gives_others(
    name: str, whole: Callable[..., Path], tmp_path: Path
) -> None:
    play(planned(name), tmp_path / "same", workers=2)
    play(planned(name, run={"seed": 1, "rounds": 2}), tmp_path / "other")
    assert_same_run(whole(name), tmp_path / "same")
    assert figures(whole(name))[:2] != figures(tmp_path / "other")


def test_evaluations_change_nothing_that_is_learnt(whole: Callable[..., Path], tmp_path: Path) -> None:
    play(planned(run={"evaluate_every": 1, "checkpoint_every": 1}), tmp_path)
    seldom, often = read_rounds(whole()), read_rounds(tmp_path)
    for one, other in zip(seldom, often, strict=True):
        assert (one.up_bytes, one.tips, one.satisfaction) == (other.up_bytes, other.tips, other.satisfaction)
        assert one.accuracy in {None, other.accuracy}
    assert (whole() / LEDGER).read_bytes() == (tmp_path / LEDGER).read_bytes()


# -- in virtual time ------------------------------------------------------------------------------------


TIMED: Mapping[str, JsonScalar] = {
    "duration_s": 30.0,
    "evaluate_every_s": 5.0,
    "speed": "uniform",
    "speed.typical": 20.0,
    "speed.ratio": 4.0,
    "availability": "alternating",
    "availability.on_s": 20.0,
    "availability.off_s": 5.0,
    "work.failures": 0.1,
}


@pytest.mark.parametrize("name", ["dag-acfl", "fedasync", "fedbuff", "fedavg", "ifca"])
def test_a_run_in_virtual_time_stops_and_goes_on_to_the_same_figures(
    name: str, whole: Callable[..., Path], tmp_path: Path
) -> None:
    mine = timed(name)
    assert not play(mine, tmp_path, should_stop=after(1))
    assert not play(mine, tmp_path, should_stop=after(2))
    assert play(mine, tmp_path)
    assert [each.virtual_time_s for each in read_rounds(tmp_path)] == [5, 10, 15, 20, 25, 30]
    assert_same_run(whole(name, in_virtual_time=True), tmp_path)


def test_several_servers_with_gossip_and_roaming_leave_a_ledger_that_verifies(tmp_path: Path) -> None:
    strategy: Mapping[str, JsonScalar] = {**QUICK, "servers": 3, "gossip_delay": 2.0, "roaming": 0.5}
    assert play(planned(strategy, asynchronous=TIMED), tmp_path)
    with Bundle(tmp_path / LEDGER) as bundle:
        assert list(verify(bundle)) == []
        assert bundle.count > 6, "genesis, and more than one of each client"


# -- stopping, and folders -----------------------------------------------------------------------------------


def test_a_run_told_to_stop_in_its_last_round_is_finished(tmp_path: Path) -> None:
    assert play(planned("fedavg"), tmp_path, should_stop=after(ROUNDS_OF_SMALL))
    assert is_finished(tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()


@pytest.mark.parametrize("name", ["dag-acfl", "sdagfl"])
def test_training_that_diverges_ends_the_run_and_what_was_done_before_is_kept(name: str, tmp_path: Path) -> None:
    with pytest.raises(DagAcflError, match="learning_rate"):
        play(planned(name, training={"learning_rate": 1e30}), tmp_path)
    assert not is_finished(tmp_path)


def test_a_run_whose_ledger_cannot_be_written_is_not_finished(tmp_path: Path) -> None:
    def full(_source: object, _path: Path) -> None:
        raise OSError(28, "No space left on device")

    mine = planned(run={"rounds": 3})
    with pytest.raises(OSError, match="No space left"):
        play(mine, tmp_path, write_ledger=full)
    assert not is_finished(tmp_path)
    assert play(mine, tmp_path)


def test_what_a_part_of_ones_own_raises_is_told_with_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_selector.py").write_text(
        "from fl_core.selection.top_k import TopK, TopKParams\n\n\n"
        "class Broken:\n"
        '    name = "broken"\n\n'
        "    def __init__(self, params: TopKParams) -> None:\n"
        "        self.params = params\n\n"
        "    def choose(self, request):\n"
        "        return request.nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SELECTORS, "_entries", dict(SELECTORS._entries))  # other tests shall not find it
    broken = planned({"name": "dag-acfl", "selector": "their_selector:Broken"})
    end = play_one(
        0,
        broken,
        tmp_path / "run",
        workers=1,
        overwrite=False,
        write_ledger=None,
        on_event=lambda _event: None,
        should_stop=lambda: False,
    )
    assert isinstance(end, RunFailed)
    assert end.message == (
        "a part of your own failed: their_selector.py, line 11: "
        "AttributeError: 'SelectionRequest' object has no attribute 'nothing'"
    )
