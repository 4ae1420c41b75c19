"""Images that an experiment trains and tests on, of which its cost at full size is worked out."""

from pathlib import Path

from experiments.full_size import images
from fl_simulator.config.experiment import read_experiment

FOUR_CLIENTS = """
name = "four"
title = "Four clients of twenty digits, sixteen of which they train on"
seeds = [0]

[base]
run = {{ rounds = 6, evaluate_every = 3 }}
training = {{ {training}, batch_size = 5 }}
data = {{ name = "digits", pixels = "unit" }}
partition = {{ name = "iid", clients = 4, samples = 20 }}
topology.name = "complete"

[[methods]]
label = "one"
strategy.name = "{strategy}"
"""


def trained_and_tested(folder: Path, *, strategy: str, training: str) -> tuple[float, float]:
    file = folder / "four.toml"
    file.write_text(FOUR_CLIENTS.format(strategy=strategy, training=training))
    return images(read_experiment(file))


def test_epochs_train_on_all_images_of_each_client(tmp_path: Path) -> None:
    assert trained_and_tested(tmp_path, strategy="decavg", training="epochs = 2") == (6 * 2 * 4 * 16, 2 * 4 * 4)


def test_steps_train_on_a_batch_each(tmp_path: Path) -> None:
    assert trained_and_tested(tmp_path, strategy="decavg", training="steps = 3") == (6 * 3 * 4 * 5, 2 * 4 * 4)


def test_a_round_of_d_sgd_is_one_batch(tmp_path: Path) -> None:
    assert trained_and_tested(tmp_path, strategy="d-sgd", training="epochs = 2") == (6 * 4 * 5, 2 * 4 * 4)
