"""What a trainer may return, what becomes of it, and that whatever is left out is said once."""

import numpy as np
import pytest

from fl_client.metrics import Measurements, beside
from fl_core.dag.transaction import Header
from tests.builders import TinyLedger


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_numbers_of_any_kind_are_kept_by_the_names_they_were_given(caplog: pytest.LogCaptureFixture) -> None:
    measured = {"rmse": 3.25, "hits": 7, "better": True, "f1": np.float32(0.5), "auc": np.array(0.75), "zero": -0.0}
    found = Measurements().finite(measured, of="evaluate")
    assert found == {"rmse": 3.25, "hits": 7.0, "better": 1.0, "f1": 0.5, "auc": 0.75, "zero": 0.0}
    assert str(found["zero"]) == "0.0"
    assert said(caplog) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0.8", "returned 'x' as str, not as a number"),
        ([0.1, 0.2], "returned 'x' as list, not as a number"),
        (np.array([0.1, 0.2]), "returned 'x' as ndarray, not as a number"),
        (None, "returned 'x' as NoneType, not as a number"),
        (float("nan"), "returned 'x' as nan: it is left out where it is not finite"),
        (float("-inf"), "returned 'x' as -inf: it is left out where it is not finite"),
    ],
)
def test_what_is_no_finite_number_is_left_out_and_said_once(
    value: object, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    measurements = Measurements()
    for _ in range(3):
        assert measurements.finite({"x": value, "rmse": 2.0}, of="evaluate") == {"rmse": 2.0}
    (line,) = said(caplog)
    assert line.startswith("evaluate() ")
    assert words in line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("AUC", "'AUC' is not published: a name is made of a-z 0-9 _ . -"),
        ("top 1", "'top 1' is not published: a name is made of"),
        ("x" * 65, "1 to 64 of them"),
        ("_epsilon", "names that begin with _ are the system's"),
    ],
)
def test_a_name_that_the_header_does_not_allow_is_not_published(
    name: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    measurements = Measurements()
    for _ in range(2):
        assert measurements.published({name: 0.5, "rmse": 2.0}, {}) == {"rmse": 2.0}
    (line,) = said(caplog)
    assert words in line


def test_a_transaction_has_room_for_32_and_evaluations_come_first(caplog: pytest.LogCaptureFixture) -> None:
    evaluated, trained = {f"e{i}": float(i) for i in range(30)}, {f"t{i}": float(i) for i in range(9)}
    kept = Measurements().published(evaluated, trained)
    assert list(kept) == [*evaluated, "t0", "t1"]
    (line,) = said(caplog)
    assert line == "a transaction has room for 32 metrics, so 7 are not published: t2, t3, t4, t5, t6, …"


def test_figures_of_the_system_take_no_room_of_the_clients(caplog: pytest.LogCaptureFixture) -> None:
    own = {f"m{i:02}": float(i) for i in range(32)}
    assert Measurements().published(own, {}, systems={"_own_accuracy": 0.5}) == {**own, "_own_accuracy": 0.5}
    assert said(caplog) == []


def test_a_name_of_both_is_the_evaluations(caplog: pytest.LogCaptureFixture) -> None:
    assert beside({"loss": 0.25}, {"loss": 0.5, "gpu_seconds": 3.0}) == {"train_loss": 0.5, "gpu_seconds": 3.0}
    published = Measurements().published({"loss": 0.25, "num_examples": 60.0}, {"loss": 0.5, "gpu_seconds": 3.0})
    assert published == {"loss": 0.25, "train_loss": 0.5, "gpu_seconds": 3.0}
    assert said(caplog) == []


def test_a_header_takes_whatever_is_published() -> None:
    odd = {"": 1.0, "Ü": 1.0, "_x": 1.0, "a/b": 1.0, **{f"m{i}": -0.0 for i in range(40)}}
    measurements = Measurements()
    metrics = measurements.published(measurements.finite(odd, of="evaluate"), measurements.finite(odd, of="train"))
    assert len(metrics) == 32
    tiny = TinyLedger()
    header = tiny.draft("ann", [tiny.genesis_id], tiny.genesis_model, metrics=metrics).header
    assert isinstance(header, Header)
    assert header.encode()
