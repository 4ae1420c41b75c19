"""A model gets out: of a client's folder and of a ledger, as a file that the printed lines load."""

import json
import os
import re
import stat
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dag_acfl.__main__ import main
from dag_acfl.commands.models import note_file
from fl_client.state import Measured, ParticipantState
from fl_core.dag.building import build_update
from fl_core.dag.genesis import Genesis
from fl_core.types import TxId, digest_of
from ledger_server.admin.bundle import write_bundle
from tests.builders import START, TinyLedger, make_genesis, model
from tests.sources import SoundLedger, sound_ledger

LEDGER = TxId("1" * 64)
MODEL_FILE = """
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
"""
WITH_BASE = """
import torch
from torch import nn
from fl_client.training import TorchTrainer
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head, self.base = nn.Linear(3, 1), nn.Linear(1, 2), nn.Linear(2, 2)
        self.base.requires_grad_(False)
        self.base.weight.fill_(7)
        self.register_buffer("seen", torch.tensor(5))
def trainer(size):
    return TorchTrainer(Model(), (torch.ones(size, 3), torch.zeros(size).long()), share="fc")
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DAG_ACFL_"):
            monkeypatch.delenv(name)


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 0, capsys.readouterr()
    return capsys.readouterr().out


def refused(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def client_folder(name: str = "my_client-state", *, head: float | None = None, **accuracies: float) -> Path:
    """A client that was given (1, 0, 0, 0) and made (2, 0, 0, 0) of it."""
    rest = (
        {} if head is None else {"head.weight": np.full((2, 1), head, np.float32), "head.bias": np.zeros(2, np.float32)}
    )
    with ParticipantState(name) as state:
        state.enter(LEDGER)
        given, trained = (
            Measured(model(value), rest, {"accuracy": accuracies[which]} if which in accuracies else {})
            for value, which in ((1.0, "given"), (2.0, "trained"))
        )
        state.keep(given=given, trained=trained)
        header = build_update(
            ledger=LEDGER,
            author=state.author,
            sequence=0,
            created_at_ms=5,
            num_examples=1,
            start=START,
            model_digest=digest_of(trained.model),
            model_size=len(trained.model),
            parents=(LEDGER,),
        ).header
        state.begin(header, trained.model)
        state.finish(header)
    return Path(name)


PARAMETERS = "print({name: value.flatten().tolist() for name, value in model.state_dict().items()}, model.training)"


def loaded_as_printed(printed: str, show: str = PARAMETERS) -> str:
    """What the printed lines say when they are run beside the file; ends with the model's parameters."""
    lines = printed.partition("# to use it in Python:\n")[2]
    assert lines
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.syspath_prepend(str(Path.cwd()))
        for name in ("my_client", "scans"):
            patch.setitem(sys.modules, name, None)  # forgotten in the end
            del sys.modules[name]
        exec(compile(f"{lines}\n{show}", "printed", "exec"), {"__name__": "__main__"})
    return said.getvalue()


# -- out of a client's folder -------------------------------------------------------------------------


def test_the_best_model_is_written_and_loads_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    client_folder(given=0.9, trained=0.8)
    Path("my_client.py").write_text(MODEL_FILE)
    printed = run("client", "export", "my_client.py", capsys=capsys)
    assert printed.startswith("the best model (accuracy 0.900 on its own test data): ")
    assert "bytes in my_client-best.safetensors" in printed
    assert stat.S_IMODE(Path("my_client-best.safetensors").stat().st_mode) == 0o600
    assert loaded_as_printed(printed) == "{'fc.weight': [0.0, 0.0, 0.0], 'fc.bias': [1.0]} False\n"


def test_of_a_folder_the_lines_name_the_file_that_its_client_ran_and_its_class(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, folder = Path("scans.py"), client_folder("site-0", trained=0.9)
    file.write_text(
        "import nothing\n" + MODEL_FILE.replace("Model(nn", "Block(nn") + MODEL_FILE.replace("Model(nn", "Net(nn")
    )
    note_file(folder, file)
    printed = run("client", "export", "site-0", capsys=capsys)
    assert "from scans import Net  #" in printed
    assert "model = Net()\n" in printed
    file.write_text(MODEL_FILE)
    assert loaded_as_printed(run("client", "export", "site-0", capsys=capsys)).endswith("'fc.bias': [2.0]} False\n")
    (folder / "client-file.txt").unlink()
    printed = run("client", "export", "site-0", capsys=capsys)
    assert "from my_client import Model  # for my_client and Model write the names of your file, and the" in printed


def test_of_a_file_without_pytorch_the_lines_give_its_trainer_the_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    client_folder(trained=0.9)
    Path("my_client.py").write_text(
        "class Own:\n"
        "    def evaluate(self, arrays):\n"
        "        return {'bias': arrays['fc.bias'].tolist()}\n"
        "def trainer(site=0):\n"
        "    return Own()\n"
    )
    printed = run("client", "export", "my_client.py", capsys=capsys)
    assert "torch" not in printed
    assert loaded_as_printed(printed, show="") == "{'bias': [2.0]}\n"


def test_a_small_figure_is_not_rounded_to_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    client_folder(trained=0.0004)
    assert "(accuracy 0.0004 on its own test data)" in run("client", "export", "my_client-state", capsys=capsys)


@pytest.mark.parametrize(("which", "value"), [("given", 1), ("trained", 2), ("best", 2)])
def test_each_model_can_be_had_also_while_the_client_runs(
    which: str, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = client_folder(given=0.8, trained=0.9)
    with ParticipantState(folder):
        run("client", "export", str(folder), "--which", which, "--out", "out/mine.safetensors", capsys=capsys)
    assert load_file("out/mine.safetensors")["fc.bias"].tolist() == [value]


def test_status_names_the_file_of_each_model_and_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    client_folder(given=0.9, trained=0.8)
    rows = [line.split() for line in run("client", "status", "my_client-state", capsys=capsys).splitlines()]
    shown = {name: (load_file(file)["fc.bias"].tolist(), figures) for name, file, *figures in rows[-3:]}
    assert shown == {
        "given": ([1], ["accuracy", "0.900"]),
        "trained": ([2], ["accuracy", "0.800"]),
        "best": ([1], ["accuracy", "0.900"]),
    }
    as_json = json.loads(run("client", "status", "my_client-state", "--json", capsys=capsys))
    assert as_json["best"]["metrics"] == {"accuracy": 0.9}


def test_without_test_data_the_newest_trained_model_is_written_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client_folder()
    assert main(["client", "export", "my_client-state"]) == 0
    shown = capsys.readouterr()
    assert "nothing was measured on test data" in shown.err
    assert shown.out.startswith("the trained model: ")
    assert load_file("my_client-trained.safetensors")["fc.bias"].tolist() == [2]


def test_what_stays_with_the_client_is_in_the_file_and_what_is_frozen_comes_with_its_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client_folder(head=3.0, trained=0.9)
    Path("my_client.py").write_text(WITH_BASE)
    printed = run("client", "export", "my_client.py", capsys=capsys)
    assert sorted(load_file("my_client-best.safetensors")) == ["fc.bias", "fc.weight", "head.bias", "head.weight"]
    said = loaded_as_printed(printed)
    assert said.startswith("as Model() makes them: ['seen', 'base.weight', 'base.bias']\n")
    assert "'head.weight': [3.0, 3.0]" in said
    printed = run("client", "export", "my_client.py", "--client", "my_client.py", "--set", "size=4", capsys=capsys)
    whole = load_file("my_client-best.safetensors")
    assert whole["base.weight"].tolist() == [[7, 7], [7, 7]]
    assert whole["seen"].tolist() == 5
    assert "strict" not in printed
    assert "'head.weight': [3.0, 3.0]" in loaded_as_printed(printed)


def test_a_folder_without_a_model_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    said = "a client's first run makes one, where its --state says"
    assert refused("client", "export", "missing", capsys=capsys).endswith(f"missing is no state folder; {said}")
    with ParticipantState("new-state"):
        pass
    assert "first publication" in refused("client", "export", "new-state", capsys=capsys)


# -- out of a ledger ----------------------------------------------------------------------------------


def bundle(genesis: Genesis | None = None) -> SoundLedger:
    """pilot.dagacfl: a ledger of ann, bob and cat, who all approve each other."""
    sound = sound_ledger(None if genesis is None else TinyLedger(genesis))
    write_bundle(sound.source(), Path("pilot.dagacfl"))
    return sound


def values(file: str) -> list[float]:
    arrays = load_file(file)
    return [*arrays["fc.bias"].tolist(), *arrays["fc.weight"][0].tolist()]


def test_an_updates_model_is_had_by_the_beginning_of_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    sound = bundle()
    Path("my_client.py").write_text(MODEL_FILE)
    printed = run("ledger", "export-model", sound.cat[:12], "pilot.dagacfl", capsys=capsys)
    assert values(f"update-{sound.cat[:12]}.safetensors") == [0.5, 0.5, 0.25, 0]
    assert "update 0 of key:" in printed
    assert loaded_as_printed(printed).endswith("{'fc.weight': [0.5, 0.25, 0.0], 'fc.bias': [0.5]} False\n")


def test_an_authors_newest_model_is_had_by_the_beginning_of_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    sound = bundle()
    shown = f"{sound.tiny.author('bob')[:17]}…"
    run("ledger", "export-model", "pilot.dagacfl", "--author", shown, "--out", "bob.safetensors", capsys=capsys)
    assert values("bob.safetensors") == [0.75, 0.5, 0.5, 0]


def test_a_clusters_model_is_the_average_of_its_authors_newest_weighed_as_the_ledger_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle()
    printed = run("ledger", "export-model", "pilot.dagacfl", "--cluster", "1", capsys=capsys)
    # ann (.5, .5, .5) of 2 examples, bob (.75, .5, .5) of 1, cat (.5, .5, .25) of 3
    assert values("cluster-1.safetensors") == pytest.approx([3.25 / 6, 0.5, 2.25 / 6, 0])
    assert "the average of its 3 authors' newest models" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pilot.dagacfl"], "name one model"),
        ([], "name one model"),
        (["ab", "pilot.dagacfl", "--cluster", "1"], "name one model"),
        (["--author", "ann", "--cluster", "1", "pilot.dagacfl"], "name one model"),
        (["--cluster", "9", "pilot.dagacfl"], "no cluster 9: they are numbered to 1"),
        (["--author", "hash:", "pilot.dagacfl"], "none begins so; see: dag-acfl ledger inspect"),
        (["--author", "key:", "pilot.dagacfl"], "several begin so"),
        (["0" * 64, "pilot.dagacfl"], "none begins so"),
    ],
)
def test_a_model_that_is_not_there_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle()
    assert words in refused("ledger", "export-model", *arguments, capsys=capsys)


def test_a_pruned_model_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    sound = sound_ledger()
    source = sound.source()
    source.prune(sound.ann)
    write_bundle(source, Path("pilot.dagacfl"))
    assert "pruned" in refused("ledger", "export-model", sound.ann, "pilot.dagacfl", capsys=capsys)


def test_where_a_part_stays_with_the_clients_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    bundle(replace(make_genesis(), training={"frozen_sha256": "0" * 64}))
    assert main(["ledger", "export-model", "pilot.dagacfl", "--cluster", "1"]) == 0
    shown = capsys.readouterr()
    assert "a part stays with its client" in shown.err
    assert "strict=False" in shown.out


# -- a ledger of which a part stays with the clients ---------------------------------------------------


def test_a_ledger_founded_by_a_client_that_keeps_a_part_holds_the_rest_and_the_digest_of_what_is_frozen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("my_client.py").write_text(WITH_BASE)
    founding = ["--name", "heads", "--client", "my_client.py", "--set", "size=2", "--data-dir", "site"]
    printed = run("ledger", "init", *founding, "--hint", "epochs=3", capsys=capsys)
    assert "stays     with each client: head.bias, head.weight" in printed
    genesis = json.loads(run("ledger", "inspect", "site", "--json", capsys=capsys))["genesis"]
    roles = {tensor["name"]: tensor["role"] for tensor in genesis["layout"]}
    assert roles == {"fc.bias": "parameter", "fc.weight": "parameter", "head.bias": "local", "head.weight": "local"}
    assert genesis["training"]["epochs"] == 3
    assert re.fullmatch("[0-9a-f]{64}", genesis["training"]["frozen_sha256"])


def test_the_founder_may_let_bases_differ(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_client.py").write_text(WITH_BASE)
    founding = ["--name", "heads", "--client", "my_client.py", "--set", "size=2", "--data-dir", "site"]
    run("ledger", "init", *founding, "--hint", "frozen_sha256=any", capsys=capsys)
    genesis = json.loads(run("ledger", "inspect", "site", "--json", capsys=capsys))["genesis"]
    assert genesis["training"]["frozen_sha256"] == "any"


def test_a_ledger_takes_a_first_model_with_metadata_as_transformers_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_file({"fc.weight": np.ones((1, 3), np.float32)}, "first.safetensors", metadata={"format": "pt"})
    run("ledger", "init", "--name", "x", "--model", "first.safetensors", "--data-dir", "site", capsys=capsys)
    summary = json.loads(run("ledger", "inspect", "site", "--json", capsys=capsys))
    assert summary["parameters"] == 3
    printed = run("ledger", "export-model", summary["ledger"][:8], "site", "--out", "again.safetensors", capsys=capsys)
    assert printed.startswith("the initial model, transaction ")
    assert load_file("again.safetensors")["fc.weight"].tolist() == [[1, 1, 1]]
