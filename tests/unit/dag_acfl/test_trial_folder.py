from pathlib import Path

import pytest

from dag_acfl.trial.processes import TrialError
from dag_acfl.trial.run import MARK, RUN, fresh_folder


def test_an_earlier_trial_makes_room_for_the_next(tmp_path: Path) -> None:
    (fresh_folder(tmp_path) / "ledger").mkdir()
    (tmp_path / "summary.json").write_text("{}")
    assert [each.name for each in fresh_folder(tmp_path).iterdir()] == [MARK]
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize("name", [f"{RUN}/mine.txt", "metrics.csv"])
def test_what_is_not_of_a_trial_is_never_deleted(name: str, tmp_path: Path) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(TrialError, match="choose another folder with --out"):
        fresh_folder(tmp_path)
    assert mine.read_text() == "mine"
