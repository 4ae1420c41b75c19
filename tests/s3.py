"""A local S3 service for tests: ``with s3_service() as service: service.fresh()``.

moto's, in a thread, on a free port of this machine. It keeps objects in memory and accepts any credentials.
"""

import logging
import os
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from unittest import mock

from ledger_server.buckets import S3Address

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class S3Service:
    """A service that is running, and asked over HTTP."""

    endpoint: str

    def fresh(self, prefix: str = "site/models") -> S3Address:
        """An empty bucket."""
        name = f"bucket-{next(_NUMBERS)}"
        make = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(make, timeout=10):
            return S3Address(name, prefix, self.endpoint, allow_http=True)

    def objects(self, address: S3Address) -> dict[str, bytes]:
        """What lies in a bucket, as another program sees it, by key."""
        client = _boto3().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        try:
            found = client.list_objects_v2(Bucket=address.bucket).get("Contents", [])
            return {
                each["Key"]: client.get_object(Bucket=address.bucket, Key=each["Key"])["Body"].read() for each in found
            }
        finally:
            client.close()


@contextmanager
def s3_service() -> Iterator[S3Service]:
    """Serve until the block ends; until then the environment holds the credentials, and no others of AWS."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that only moto needs
        from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    try:
        with mock.patch.dict(os.environ, bare | CREDENTIALS, clear=True):
            host, port = server.get_host_and_port()
            yield S3Service(f"http://{host}:{port}")
    finally:
        server.stop()


def moved(address: S3Address, endpoint: str) -> S3Address:
    """The same bucket, asked for somewhere else."""
    return replace(address, endpoint=endpoint)


def _boto3() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import boto3

    return boto3
