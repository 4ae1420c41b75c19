"""The server's signing key: one Ed25519 key, in the data folder for its owner only, or where the settings say."""

import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fl_core.errors import ParameterError
from ledger_server.private_files import write_private
from ledger_server.settings import Settings

KEY_FILE = "server-key.pem"


def key_file(settings: Settings) -> Path:
    return settings.server_key or settings.data_dir / KEY_FILE


def server_key(settings: Settings) -> Ed25519PrivateKey:
    """The server's key. That of the data folder is made on first use; one that the settings name must be there.

    Raises:
        ParameterError: As ``load_key`` and ``create_key``.
    """
    return load_key(settings.server_key) if settings.server_key else load_or_create_key(key_file(settings))


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read an Ed25519 private key from a PEM file; somebody else's, such as a mounted Secret, may be open to its group.

    Raises:
        ParameterError: The file is missing, unreadable, not such a key, or open to others.
    """
    try:
        data, found = path.read_bytes(), path.stat()
    except OSError as error:
        raise ParameterError(f"cannot read the key {path}: {error.strerror}") from error
    is_own, mode = found.st_uid == os.geteuid(), found.st_mode & 0o777
    if mode & (0o077 if is_own else 0o037):
        fix = f"run: chmod 600 {path}" if is_own else "let its owner make that 440, or a Secret's defaultMode 0440"
        raise ParameterError(f"the key {path} is open to others (mode {mode:o}); {fix}")
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ParameterError(f"{path} is not an unencrypted PEM private key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ParameterError(f"{path} holds another kind of key; generate an Ed25519 key with: dag-acfl keys generate")
    return key


def create_key(path: Path) -> Ed25519PrivateKey:
    """Make a new key and write it, never over an existing one.

    Raises:
        ParameterError: The file exists or cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, pem)
    except OSError as error:
        raise ParameterError(f"cannot write the key {path}: {error.strerror}") from error
    return key


def load_or_create_key(path: Path) -> Ed25519PrivateKey:
    """The key at ``path``, made on first use."""
    return load_key(path) if path.exists() else create_key(path)
