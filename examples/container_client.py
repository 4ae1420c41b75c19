"""The client of docker-compose.yml: each replica is another site of sixteen, on the demo's digits.

    CLIENTS=6 docker compose up

For real data, mount a file of your own over this one (``dag-acfl client init`` writes it); ``trainer`` is all that it
must bring.
"""

import os
from itertools import count
from pathlib import Path

import torch
from digits_client import trainer as digits_trainer

from fl_client.training import Trainer

SITES = 16
TAKEN = Path("/sites")
"""A folder of all replicas: one in it for each site that has been taken."""
MINE = Path("/data/site")
"""Which one this replica took, in its own volume."""


def trainer() -> Trainer:
    """The site that ``SITE`` names, or the first that no other replica has taken. Odd ones see digits on their side."""
    torch.set_num_threads(1)  # replicas share a machine
    return digits_trainer(site=int(os.environ.get("SITE") or _own()) % SITES)


def _own() -> int:
    if not MINE.exists():
        MINE.write_text(str(next(site for site in count() if _take(site))))
    return int(MINE.read_text())


def _take(site: int) -> bool:
    try:
        (TAKEN / str(site)).mkdir()
    except FileExistsError:
        return False
    return True
