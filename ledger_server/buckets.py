"""Where a bucket is: the name and address of an S3 service's, as settings give them; nothing here asks the network."""

import re
from dataclasses import dataclass
from typing import Final

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")


@dataclass(frozen=True, slots=True)
class S3Address:
    """Where the objects lie.

    Args:
        bucket: It must exist.
        prefix: Before each object's name, without slashes at its ends. May be empty.
        endpoint: URL of a service other than Amazon's; None: Amazon's, or what ``AWS_ENDPOINT_URL`` says.
        region: The bucket's; None: what ``AWS_REGION`` says.
        allow_http: Whether an endpoint may be asked without TLS.
        shared: Whether the prefix is one for several servers of a ledger, and not one server's alone.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    allow_http: bool = False
    shared: bool = False

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def parse_s3_url(text: str) -> tuple[str, str]:
    """Bucket and prefix of ``s3://bucket/prefix``.

    Raises:
        ValueError: It is no such URL.
    """
    scheme, _, rest = text.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.rstrip("/")
    if scheme != "s3" or not _BUCKET.fullmatch(bucket):
        raise ValueError("must be s3://bucket/prefix, the bucket in small letters, digits, dots and hyphens")
    if prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/"))):
        raise ValueError("the prefix after the bucket must be letters, digits, '.', '_', '-' and single slashes")
    return bucket, prefix
