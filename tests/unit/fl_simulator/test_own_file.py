"""``simulate --client``: an experiment of a person's own file, stopped and gone on with, and what is refused."""

from pathlib import Path

import pytest

from fl_client.errors import UserModuleError
from fl_simulator.config.experiment import Experiment, client_experiment, overrides_of, read_experiment, scenario_toml
from fl_simulator.errors import ScenarioError
from fl_simulator.run.play import open_folder, run
from fl_simulator.run.record import RoundRecord

TEXT = """
from tests.tiny_trainer import TinyTrainer

def trainer(site, far=3.0):
    return TinyTrainer(far if site % 2 else 0.0)
"""


def own_file(folder: Path, text: str = TEXT) -> Path:
    file = folder / "my_client.py"
    file.write_text(text)
    return file


def own(folder: Path, *changes: str, text: str = TEXT) -> Experiment:
    said = ("run.rounds=4", "training.epochs=1", "training.initial_epochs=1", *changes)
    return client_experiment(own_file(folder, text), sites=6, overrides=overrides_of(said))


def records_of(experiment: Experiment, method: str, path: Path, *, stop_after: int = 100) -> list[RoundRecord]:
    (planned,) = (each for each in experiment.runs if each.label.method == method)
    rounds = iter(range(1, 1000))
    with open_folder(planned, path, overwrite=False) as folder:
        run(planned, folder, workers=1, should_stop=lambda: next(rounds) >= stop_after)
        return list(folder.records)


def test_three_methods_are_played_on_the_files_sites(tmp_path: Path) -> None:
    experiment = own(tmp_path)
    assert [each.label.method for each in experiment.runs] == ["local-only", "FedAvg", "DAG-ACFL"]
    assert {each.label.setting for each in experiment.runs} == {"my_client-6-sites"}
    last = {
        each.label.method: records_of(experiment, each.label.method, tmp_path / each.label.method)[-1]
        for each in experiment.runs
    }
    # Alone, four halvings leave 1/16 of the way to 0, and 2/16 of that to 3.
    alone = (1 / (1 + 1 / 16) + 1 / (1 + 2 / 16)) / 2
    assert last["local-only"].accuracy == pytest.approx(alone, abs=1e-6)
    assert last["FedAvg"].accuracy is not None
    assert last["FedAvg"].accuracy < alone, "one model for all lies between"
    ours = last["DAG-ACFL"]
    assert ours.accuracy == pytest.approx(alone, abs=0.05), "nothing of another kind is averaged in"
    assert ours.communities == 2
    assert (ours.purity, ours.satisfaction, ours.cross_cluster_rate) == (None, None, None), "nobody knows true clusters"


def test_a_stopped_run_goes_on_to_the_same_figures(tmp_path: Path) -> None:
    experiment = own(tmp_path)
    whole = records_of(experiment, "DAG-ACFL", tmp_path / "whole")
    records_of(experiment, "DAG-ACFL", tmp_path / "stopped", stop_after=2)
    gone_on = records_of(experiment, "DAG-ACFL", tmp_path / "stopped")
    assert [each.accuracy for each in gone_on] == [each.accuracy for each in whole]
    assert len(gone_on) == 4


def test_arguments_of_trainer_are_said_as_settings(tmp_path: Path) -> None:
    (first, *_) = own(tmp_path, "client.set.far=5.0").runs
    assert first.scenario.client is not None
    assert dict(first.scenario.client.settings) == {"far": 5.0}
    again = tmp_path / "scenario.toml"
    again.write_text(scenario_toml(first.scenario))
    assert read_experiment(again).runs[0].scenario == first.scenario


def test_another_text_of_the_file_is_another_scenario(tmp_path: Path) -> None:
    before, after = own(tmp_path), own(tmp_path, text=TEXT + "# mended\n")
    assert before.runs[0].scenario != after.runs[0].scenario


def test_a_flower_app_is_its_own_modules_and_no_virtual_environments(tmp_path: Path) -> None:
    for place in ("pyproject.toml", "app/task.py", "env/pyvenv.cfg", "env/lib/torch.py", ".cache/made.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / place).write_text("1")

    def scenario() -> object:
        return client_experiment(tmp_path, sites=2, overrides={}).runs[0].scenario

    before = scenario()
    (tmp_path / "env" / "lib" / "torch.py").write_text("2")
    (tmp_path / ".cache" / "made.py").unlink()
    assert scenario() == before
    (tmp_path / "app" / "task.py").write_text("2")
    assert scenario() != before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("data.name=digits",), "a client's file brings its own data and model"),
        (("training.batch_size=5",), "batch_size is for the client's file to say"),
        (("client.colour=red",), "has no 'colour'"),
        (("client.sites=0",), "sites = 8, a whole number"),
    ],
)
def test_what_the_file_decides_is_not_said_again(tmp_path: Path, changes: tuple[str, ...], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        own(tmp_path, *changes)


def test_a_file_that_is_not_there_is_named_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="dag-acfl client init"):
        client_experiment(tmp_path / "none.py", sites=2, overrides={})


def test_a_file_without_accuracy_or_with_an_unknown_argument_ends_its_run_in_one_line(tmp_path: Path) -> None:
    blind = (
        TEXT.replace("return Tiny", "made = Tiny")
        + "    made.evaluate = lambda arrays: {'loss': 1.0}\n    return made\n"
    )
    with pytest.raises(ScenarioError, match=r"gives no accuracy, .* but loss"):
        records_of(own(tmp_path, text=blind), "FedAvg", tmp_path / "blind")
    with pytest.raises(UserModuleError, match="'colour'"):
        records_of(own(tmp_path, "client.set.colour=red"), "FedAvg", tmp_path / "red")
