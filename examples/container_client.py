"""The client of docker-compose.yml: a site of sixteen, chosen by the container's name, on the demo's digits.

    docker compose up --scale client=4

Each replica has its own name, so mostly its own site. For real data, mount a file of your own over this one
(``dag-acfl client init`` writes it); ``trainer`` is all that it must bring.
"""

import hashlib
import os
import socket

import torch
from digits_client import trainer as digits_trainer

from fl_client.training import Trainer

SITES = 16


def trainer() -> Trainer:
    """The site that ``SITE`` names, or one drawn from the host's name."""
    torch.set_num_threads(1)  # replicas share a machine
    drawn = hashlib.sha256(socket.gethostname().encode()).digest()[0]
    return digits_trainer(site=int(os.environ.get("SITE") or drawn) % SITES)
