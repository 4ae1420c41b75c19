"""The virtual teacher's loss: numbers by hand, values by the twin, and what it refuses."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_client.training import TrainingDataError
from fl_client.training.virtual_teacher import virtual_teacher
from tests.reference import virtual_teacher as naive

LOGITS = st.floats(-20, 20)


def test_a_sample_of_three_classes_by_hand() -> None:
    # p = (1/2, 1/4, 1/4); the teacher says (.8, .1, .1).
    outputs = torch.log(torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64))
    expected = 0.8 * math.log(0.8 / 0.5) + 2 * 0.1 * math.log(0.1 / 0.25)
    assert float(virtual_teacher(outputs, torch.tensor([0]), beta=0.8)) == pytest.approx(expected)


def test_a_model_that_says_what_is_taught_has_no_loss() -> None:
    outputs = torch.log(torch.tensor([[0.05, 0.9, 0.05]], dtype=torch.float64))
    assert float(virtual_teacher(outputs, torch.tensor([1]), beta=0.9)) == pytest.approx(0, abs=1e-12)


def test_a_teacher_that_is_sure_is_cross_entropy() -> None:
    outputs, labels = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.0, 3.0]]), torch.tensor([0, 2])
    expected = torch.nn.functional.cross_entropy(outputs, labels)
    assert float(virtual_teacher(outputs, labels, beta=1.0)) == pytest.approx(float(expected))


@given(
    st.integers(2, 6).flatmap(
        lambda classes: st.lists(
            st.tuples(st.lists(LOGITS, min_size=classes, max_size=classes), st.integers(0, classes - 1)),
            min_size=1,
            max_size=4,
        )
    ),
    st.floats(0.01, 1),
)
def test_it_is_the_naive_twin(samples: list[tuple[list[float], int]], beta: float) -> None:
    outputs, labels = [logits for logits, _ in samples], [label for _, label in samples]
    loss = virtual_teacher(torch.tensor(outputs, dtype=torch.float64), torch.tensor(labels), beta=beta)
    assert float(loss) == pytest.approx(naive.virtual_teacher(outputs, labels, beta=beta), rel=1e-9, abs=1e-9)


def test_every_pixel_is_a_sample_of_its_own() -> None:
    outputs = torch.randn((2, 3, 4), generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    flat = virtual_teacher(outputs.transpose(1, 2).reshape(8, 3), labels.reshape(8), beta=0.9)
    assert float(virtual_teacher(outputs, labels, beta=0.9)) == pytest.approx(float(flat))


@pytest.mark.parametrize(
    ("outputs", "labels"),
    [
        (torch.zeros(2, 1), torch.tensor([0, 0])),
        (torch.zeros(2, 3), torch.zeros(2)),
        (torch.zeros(2, 3), torch.zeros(2, 3)),
    ],
)
def test_labels_are_classes_and_there_are_two_or_more(outputs: torch.Tensor, labels: torch.Tensor) -> None:
    with pytest.raises(TrainingDataError, match="virtual teacher"):
        virtual_teacher(outputs, labels)
