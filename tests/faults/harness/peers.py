"""Servers that are peers of one another: a key each, and the list of all that each is given."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fl_core.dag.signature import public_key_of
from ledger_server.keys import KEY_FILE
from tests.builders import key_from_seed
from tests.faults.harness.servers import ServerProcess
from tests.faults.report import ROOT

ISSUER_SEED = 1
"""Of ``tests.builders.ISSUER``: the first of the peers signs as the issuer of a new ledger does."""


def introduce(servers: Sequence[ServerProcess], *others: str) -> None:
    """Make servers that have not been started peers of one another, and of ``others``, which are entries of the list."""
    keys = [key_from_seed(ISSUER_SEED + number) for number in range(len(servers))]
    known = [f"{server.name}={server.url}#{public_key_of(key)}" for server, key in zip(servers, keys, strict=True)]
    for server, key in zip(servers, keys, strict=True):
        server.environment = {**server.environment, "DAG_ACFL_PEERS": " ".join([*known, *others])}
        server.folder.mkdir(parents=True, exist_ok=True)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with open(server.folder / KEY_FILE, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(pem)


def join(source: ServerProcess, folder: Path) -> None:
    """``dag-acfl ledger join``: genesis and nothing else, from a server that answers."""
    command = [sys.executable, "-m", "dag_acfl", "ledger", "join", source.url, "--data-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
