"""Authors: who trained an update, and how that is shown.

An author is an Ed25519 key, which signs every update, or a secret, of which the author id is the digest:

    author = SHA-256( "dag-acfl/author-secret/v1" 0x00 ‖ the secret's 64 digits in ASCII )

The secret is shown to the server with each publication, over TLS, and kept by nobody but its author: whoever sees
the ledger sees the digest. So servers vouch for authors with a secret; for those with a key, anybody can check.
"""

import hashlib
from enum import IntEnum
from typing import Final

from fl_core.errors import SignatureError, SignatureRequiredError, TransactionInvalidError
from fl_core.types import AuthorId, is_hex_id

SECRET_DOMAIN: Final = b"dag-acfl/author-secret/v1\x00"


class AuthorKind(IntEnum):
    """What stands behind an author id, and the prefix that shows it in text."""

    SECRET = 0
    ED25519 = 1

    @property
    def prefix(self) -> str:
        """What an ``AuthorId`` of this kind begins with."""
        return ("hash:", "key:")[self]

    def author(self, hex_id: str) -> AuthorId:
        """The author id of 64 hexadecimal digits (a secret's digest, or a public key)."""
        return AuthorId(self.prefix + hex_id)


AUTHOR_KINDS: Final = {int(kind): kind for kind in AuthorKind}
_BY_PREFIX: Final = {kind.prefix: kind for kind in AuthorKind}


def split_author(author: str) -> tuple[AuthorKind, str]:
    """An author id's kind and its 64 hexadecimal digits.

    Raises:
        TransactionInvalidError: ``author`` is not an author id.
    """
    prefix, colon, hex_id = author.partition(":")
    kind = _BY_PREFIX.get(prefix + colon)
    if kind is not None and is_hex_id(hex_id):
        return kind, hex_id
    raise TransactionInvalidError("an author is key: or hash: and 64 lowercase hexadecimal digits")


def author_of_secret(secret: str) -> AuthorId:
    """The author that shows this secret, 64 lowercase hexadecimal digits.

    Raises:
        TransactionInvalidError: The secret has another form.
    """
    if not is_hex_id(secret):
        raise TransactionInvalidError("an author's secret is 64 lowercase hexadecimal digits")
    return AuthorKind.SECRET.author(hashlib.sha256(SECRET_DOMAIN + secret.encode("ascii")).hexdigest())


def shown_author(author: AuthorId | None, *, secret: str | None) -> AuthorId:
    """Who publishes, of what a publication says: the author, whose signature is checked elsewhere, or the secret's.

    Raises:
        SignatureRequiredError: Neither a key nor a secret is shown.
        SignatureError: The secret is not the author's.
        TransactionInvalidError: Author or secret is malformed.
    """
    if secret is None:
        if author is None or split_author(author)[0] is AuthorKind.SECRET:
            raise SignatureRequiredError("a publication shows its author: send author and signature, or secret")
        return author
    shown = author_of_secret(secret)
    if author not in (None, shown):
        raise SignatureError("the secret is not this author's")
    return shown
