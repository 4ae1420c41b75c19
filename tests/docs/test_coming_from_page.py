"""docs/coming_from.md: what diffs of Python take away stood beside task.py, and what they give takes part."""

import ast
import sys
from pathlib import Path

import numpy as np
import pytest

from fl_client.scaffold import load_trainers
from tests.docs.test_docs import ROOT, code_blocks

PAGE = ROOT / "docs" / "coming_from.md"
(TASK,) = code_blocks(PAGE, "python")
ALONE, FLOWER, NVFLARE = code_blocks(PAGE, "diff")


def side(diff: str, mark: str) -> str:
    """What stood there before (``-``), or stands there now (``+``)."""
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in (" ", mark))


@pytest.fixture
def beside_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "task.py").write_text(TASK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "task", raising=False)
    return tmp_path


def test_what_the_diffs_give_is_one_and_the_same_client(beside_task: Path) -> None:
    assert ast.dump(ast.parse(side(ALONE, "+"))) == ast.dump(ast.parse(side(NVFLARE, "+")))
    file = beside_task / "my_client.py"
    file.write_text(side(ALONE, "+"))
    trainers = load_trainers(file, [{"site": 0}, {"site": 1}])
    arrays = trainers[0].initial_arrays()
    result = trainers[0].train(arrays, epochs=10)
    assert result.num_examples == 40
    assert trainers[0].evaluate(result.arrays)["accuracy"] > trainers[1].evaluate(result.arrays)["accuracy"]
    assert not np.array_equal(result.arrays["1.weight"], arrays["1.weight"])
    del sys.modules["task"]


def test_the_loop_of_ones_own_ran_before(beside_task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(side(ALONE, "-"), "main.py", "exec"), {})
    assert float(capsys.readouterr().out.split()[1]) > 0.5
    del sys.modules["task"]


def test_what_is_taken_away_is_python() -> None:
    for diff in (ALONE, NVFLARE):
        names = {node.id for node in ast.walk(ast.parse(side(diff, "-"))) if isinstance(node, ast.Name)}
        assert {"Net", "load_data", "train", "test"} <= names


def test_what_is_typed_for_a_flower_app_is_what_its_own_page_types() -> None:
    typed = "".join(code_blocks(ROOT / "docs" / "flower.md", "bash"))
    assert set(side(FLOWER, "+").splitlines()) <= set(typed.splitlines())
