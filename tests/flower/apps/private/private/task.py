"""A linear model of the digits, as NumPy arrays with names."""

import numpy as np

from fl_simulator.data.rotated import rotated_digits


def load_data(partition_id, num_partitions):
    return rotated_digits(num_clients=num_partitions, rotations=(0,), train_per_client=80, test_per_client=60)[
        partition_id
    ]


def probabilities(weight, bias, images):
    scores = images.reshape(len(images), 64) @ weight + bias
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def train(weight, bias, images, labels, epochs, lr):
    """Gradient descent on all samples at once."""
    flat, wanted = images.reshape(len(images), 64), np.eye(10)[labels]
    for _ in range(epochs):
        error = (probabilities(weight, bias, images) - wanted) / len(images)
        weight, bias = weight - lr * flat.T @ error, bias - lr * error.sum(axis=0)
    return weight, bias
