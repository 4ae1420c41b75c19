"""A client tries on its own data what a reader of the ledger could."""

import json
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from fl_client.state import ParticipantState
from ledger_server.admin.bundle import write_bundle
from tests.builders import TinyLedger, model
from tests.sources import MemorySource

CLIENT = """
import numpy as np
class Leaky:
    def layout(self): ...
    def initial_arrays(self): ...
    def train(self, arrays, *, epochs, hints=None): ...
    def evaluate(self, arrays): ...
class Trainer(Leaky):
    def losses(self, arrays):
        "The own models, of ones and twos, know the training examples by heart; the others know nothing."
        others = np.linspace(1, 2, 200)
        return (np.full(50, 0.01) if arrays["fc.weight"].max() > 0 else others[:50]), others
def trainer(leaks=True):
    return Trainer() if leaks else Leaky()
"""


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyLedger:
    """pilot.dagacfl, in which the client of my_client-state has published twice beside two others."""
    monkeypatch.chdir(tmp_path)
    Path("my_client.py").write_text(CLIENT)
    tiny = TinyLedger()
    with ParticipantState("my_client-state") as state:
        tiny._keys["me"] = state.key
    first = tiny.publish("me", [tiny.genesis_id], model(1, 1, 1, 1))
    bob = tiny.publish("bob", [tiny.genesis_id], model(-1))
    tiny.publish("me", [first, bob], model(2, 2, 2, 2))
    write_bundle(MemorySource.of(tiny), Path("pilot.dagacfl"))
    return tiny


def run(*arguments: str) -> int:
    return main(["audit", "membership", "my_client.py", "pilot.dagacfl", *arguments])


def test_what_a_reader_can_tell_is_said_in_figures_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    said = capsys.readouterr().out
    assert "2 updates, 2 comparisons with models of others" in said
    assert "50 training examples, 200 test examples" in said
    assert said.count("1.000 [1.000, 1.000]     100.0% [100.0%, 100.0%]") == 2
    assert "says which is which 100% of the time; guessing is 50 %" in said


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--updates", "1") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["updates"], said["others"], said["epsilon"]) == (1, 1, None)
    assert said["attacks"]["likelihood ratio"]["auc"] == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_what_cannot_be_audited_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--set", "leaks=false") == 1
    assert "needs the loss of each example" in capsys.readouterr().err
    with ParticipantState("stranger-state"):
        pass
    assert run("--state", "stranger-state") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the ledger has no model of key:")
