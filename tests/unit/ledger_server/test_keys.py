import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fl_core.dag.signature import public_key_of
from fl_core.errors import ParameterError
from ledger_server.keys import create_key, load_key, load_or_create_key, server_key
from ledger_server.settings import load_settings


def private(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def pem(
    key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey | x25519.X25519PrivateKey,
    encryption: KeySerializationEncryption | None = None,
) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


def test_a_new_key_is_its_owners_alone_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "key.pem"
    key = create_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert public_key_of(load_key(path)) == public_key_of(key)
    assert public_key_of(load_or_create_key(path)) == public_key_of(key)


def test_the_umask_opens_a_new_key_to_nobody(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create_key(tmp_path / "key.pem")
    finally:
        os.umask(before)
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600


def test_the_first_use_makes_a_key_and_the_next_finds_it(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    assert public_key_of(load_or_create_key(path)) == public_key_of(load_or_create_key(path))


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = private(tmp_path / "key.pem", b"something else")
    with pytest.raises(ParameterError, match="File exists"):
        create_key(path)
    with pytest.raises(ParameterError, match="not an unencrypted PEM private key"):
        load_or_create_key(path)
    assert path.read_bytes() == b"something else"


def test_a_link_is_not_followed_to_a_new_key(tmp_path: Path) -> None:
    (tmp_path / "key.pem").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ParameterError, match="File exists"):
        create_key(tmp_path / "key.pem")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644])
def test_a_key_that_is_open_to_others_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    create_key(path)
    path.chmod(mode)
    with pytest.raises(ParameterError, match=f"mode {mode:o}.*chmod 600"):
        load_key(path)
    path.chmod(0o400)
    load_key(path)


def test_a_key_of_another_owner_may_be_open_to_its_group_as_a_mounted_secret_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(data_dir=tmp_path / "site", server_key=tmp_path / "secret" / "key")
    with pytest.raises(ParameterError, match=r"cannot read the key .*secret/key"):
        server_key(settings)
    made = create_key(tmp_path / "secret" / "key")
    (tmp_path / "secret" / "key").chmod(0o440)
    with pytest.raises(ParameterError, match=r"mode 440.*chmod 600"):
        server_key(settings)
    monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "secret").stat().st_uid + 1)
    assert public_key_of(server_key(settings)) == public_key_of(made)
    assert not (tmp_path / "site").exists(), "no other key is made"
    (tmp_path / "secret" / "key").chmod(0o444)
    with pytest.raises(ParameterError, match=r"mode 444.*defaultMode 0440"):
        server_key(settings)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        pem(Ed25519PrivateKey.generate())[:60],
        pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"secret")),
        Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    ],
    ids=["empty", "binary", "nonsense", "cut", "encrypted", "public"],
)
def test_what_is_no_plain_private_key_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ParameterError, match="is not an unencrypted PEM private key"):
        load_key(private(tmp_path / "key.pem", data))


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP256R1()), x25519.X25519PrivateKey.generate()])
def test_a_key_of_another_kind_is_refused(
    tmp_path: Path, key: ec.EllipticCurvePrivateKey | x25519.X25519PrivateKey
) -> None:
    with pytest.raises(ParameterError, match="another kind of key"):
        load_key(private(tmp_path / "key.pem", pem(key)))


def test_a_key_of_an_unknown_algorithm_is_refused(tmp_path: Path) -> None:
    # PKCS 8 with the object identifier 1.2.3.4: DER of (0, (1.2.3.4), "")
    der = bytes.fromhex("300c 020100 3005 0603 2a0304 0400".replace(" ", ""))
    import base64

    text = b"-----BEGIN PRIVATE KEY-----\n" + base64.b64encode(der) + b"\n-----END PRIVATE KEY-----\n"
    with pytest.raises(ParameterError, match="PEM private key"):
        load_key(private(tmp_path / "key.pem", text))


def test_a_missing_key_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"cannot read the key .*nothing\.pem: No such file"):
        load_key(tmp_path / "nothing.pem")
    (tmp_path / "file").touch()
    with pytest.raises(ParameterError, match="cannot write the key"):
        create_key(tmp_path / "file" / "key.pem")
