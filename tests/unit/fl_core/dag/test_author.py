"""An author is a key or a secret; neither can pass for the other."""

import hashlib

import pytest

from fl_core.dag.author import AuthorKind, author_of_secret, check_secret, split_author
from fl_core.errors import SignatureError, TransactionInvalidError

SECRET = "5e" * 32


def test_author_is_the_tagged_digest_of_the_secret() -> None:
    digest = hashlib.sha256(b"dag-acfl/author-secret/v1\0" + SECRET.encode()).hexdigest()
    assert author_of_secret(SECRET) == f"hash:{digest}"
    check_secret(author_of_secret(SECRET), SECRET)


def test_another_secret_is_refused() -> None:
    with pytest.raises(SignatureError):
        check_secret(author_of_secret(SECRET), "5f" * 32)
    with pytest.raises(SignatureError):
        check_secret(AuthorKind.ED25519.author(split_author(author_of_secret(SECRET))[1]), SECRET)


@pytest.mark.parametrize("secret", ["", "5E" * 32, "5e" * 31, "5e" * 33, "é" * 64])
def test_malformed_secret_is_refused(secret: str) -> None:
    with pytest.raises(TransactionInvalidError):
        author_of_secret(secret)


@pytest.mark.parametrize("author", ["", "ab" * 32, "anon:" + "ab" * 32, "key:" + "AB" * 32, "hash:ab", "key:"])
def test_malformed_author_is_refused(author: str) -> None:
    with pytest.raises(TransactionInvalidError):
        split_author(author)
