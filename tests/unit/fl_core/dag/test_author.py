"""An author is a key or a secret; neither can pass for the other."""

import hashlib

import pytest

from fl_core.dag.author import AuthorKind, author_of_secret, shown_author, split_author
from fl_core.errors import SignatureError, SignatureRequiredError, TransactionInvalidError

SECRET = "5e" * 32


def test_author_is_the_tagged_digest_of_the_secret() -> None:
    digest = hashlib.sha256(b"dag-acfl/author-secret/v1\0" + SECRET.encode()).hexdigest()
    assert author_of_secret(SECRET) == f"hash:{digest}"
    assert shown_author(None, secret=SECRET) == shown_author(author_of_secret(SECRET), secret=SECRET)


def test_another_secret_is_refused() -> None:
    for author in (author_of_secret("5f" * 32), AuthorKind.ED25519.author(split_author(author_of_secret(SECRET))[1])):
        with pytest.raises(SignatureError):
            shown_author(author, secret=SECRET)


def test_author_without_key_shows_its_secret() -> None:
    for author in (None, author_of_secret(SECRET)):
        with pytest.raises(SignatureRequiredError):
            shown_author(author, secret=None)
    key = AuthorKind.ED25519.author("ab" * 32)
    assert shown_author(key, secret=None) == key


@pytest.mark.parametrize("secret", ["", "5E" * 32, "5e" * 31, "5e" * 33, "é" * 64])
def test_malformed_secret_is_refused(secret: str) -> None:
    with pytest.raises(TransactionInvalidError):
        author_of_secret(secret)


@pytest.mark.parametrize("author", ["", "ab" * 32, "anon:" + "ab" * 32, "key:" + "AB" * 32, "hash:ab", "key:"])
def test_malformed_author_is_refused(author: str) -> None:
    with pytest.raises(TransactionInvalidError):
        split_author(author)
