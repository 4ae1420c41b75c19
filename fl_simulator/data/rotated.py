"""Rotated digits: sites that see the same ten digits, but whose cameras hang four ways.

Client i belongs to cluster ``i % len(rotations)`` and sees its images turned by that cluster's angle. All
labels are everywhere, so what separates the clusters is the images and not who has which label; and a site
has few samples, so that learning alone is not enough. One sample belongs to one client only, and there to
either its training or its test part. Every part has its share of each label, to within one sample where
parts are small.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_simulator.data.digits import load_digits


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """One client's samples: images float32 in [0, 1] ``(n, 8, 8)``, labels int64 ``(n,)``, and its true
    cluster.
    """

    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    cluster: int


def rotated_digits(
    *,
    num_clients: int = 16,
    rotations: Sequence[int] = (0, 90, 180, 270),
    train_per_client: int = 60,
    test_per_client: int = 50,
    common_test: bool = False,
    seed: int = 0,
) -> list[ClientData]:
    """The rotated-digits federation.

    Args:
        num_clients: How many clients, ≥ 1.
        rotations: One angle in degrees (a multiple of 90, counter-clockwise) per cluster.
        train_per_client: Training samples of each client, ≥ 1.
        test_per_client: Test samples of each client, ≥ 1.
        common_test: Whether all are tested on the same digits, each client's turned as its own; nobody trains on them.
        seed: Decides who gets which sample; the same seed gives the same federation.

    Raises:
        ParameterError: A number is out of range, or the clients together want more than the 1,797 samples.
    """
    share = train_per_client + (0 if common_test else test_per_client)
    wanted = num_clients * share + (test_per_client if common_test else 0)
    images, labels = load_digits()
    if min(num_clients, train_per_client, test_per_client) < 1:
        raise ParameterError("num_clients, train_per_client and test_per_client must be at least 1")
    if not rotations or any(angle % 90 for angle in rotations):
        raise ParameterError(f"rotations must be multiples of 90 degrees, at least one; got {list(rotations)}")
    if wanted > len(labels):
        raise ParameterError(
            f"{num_clients} clients with {share} samples each need {wanted} digits;"
            f" there are {len(labels)}: ask for fewer clients or fewer samples"
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # by label, random within a label
    chosen = order[np.arange(wanted) * len(order) // wanted]  # every label keeps its share
    if common_test:
        is_common = _spread(test_per_client, wanted)
        chosen, common = chosen[~is_common], chosen[is_common]
    is_test = _spread(share - train_per_client, share)
    clients = []
    for client in range(num_clients):
        mine = chosen[client::num_clients]  # dealt like cards: every client sees every label
        train, test = rng.permutation(mine[~is_test]), common if common_test else rng.permutation(mine[is_test])
        cluster = client % len(rotations)
        turns = rotations[cluster] // 90
        clients.append(
            ClientData(
                train_x=np.ascontiguousarray(np.rot90(images[train], turns, axes=(1, 2))),
                train_y=labels[train],
                test_x=np.ascontiguousarray(np.rot90(images[test], turns, axes=(1, 2))),
                test_y=labels[test],
                cluster=cluster,
            )
        )
    return clients


def _spread(count: int, places: int) -> NDArray[np.bool_]:
    """So many of the places, evenly spread: over the labels, where these stand together."""
    return np.diff(np.arange(places + 1) * count // places).astype(bool)
