"""Servers that are peers of one another: a key each, and the list of all that each is given."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fl_core.dag.signature import public_key_of
from ledger_server.keys import KEY_FILE
from tests.builders import key_from_seed
from tests.faults.harness.servers import ROOT, ServerProcess, free_port

ISSUER_SEED = 1
"""Of ``tests.builders.ISSUER``."""


@dataclass(frozen=True, slots=True)
class PeerPlace:
    """Where a server answers, and the seed of its key."""

    url: str
    seed: int

    @property
    def key(self) -> Ed25519PrivateKey:
        return key_from_seed(self.seed)


def peer_list(places: Mapping[str, PeerPlace]) -> str:
    """The setting ``DAG_ACFL_PEERS`` of all of them; each passes over its own entry."""
    return " ".join(f"{name}={place.url}#{public_key_of(place.key)}" for name, place in places.items())


def give_key(folder: Path, key: Ed25519PrivateKey) -> None:
    """Put a server's key into its data folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with open(folder / KEY_FILE, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(pem)


def join(source: str, folder: Path) -> None:
    """``dag-acfl ledger join``: genesis and nothing else, from a server that answers."""
    command = [sys.executable, "-m", "dag_acfl", "ledger", "join", source, "--data-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)


def peers_on_loopback(folder: Path, *names: str) -> dict[str, ServerProcess]:
    """Servers, not started, that are peers of one another; the first signs as the issuer of a new ledger does."""
    ports = [free_port() for _ in names]
    places = {
        name: PeerPlace(f"http://127.0.0.1:{port}", ISSUER_SEED + number)
        for number, (name, port) in enumerate(zip(names, ports, strict=True))
    }
    peers = {"DAG_ACFL_PEERS": peer_list(places)}
    for name, place in places.items():
        give_key(folder / name, place.key)
    return {
        name: ServerProcess(folder / name, name, port=port, environment=peers)
        for name, port in zip(names, ports, strict=True)
    }
