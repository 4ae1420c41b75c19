"""A local S3 service for tests: ``with s3_service() as service: service.fresh()``.

moto's, in a thread, on a free port of this machine. It keeps objects in memory and accepts any credentials.
"""

import logging
import os
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest import mock

from ledger_server.buckets import S3Address

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}
NOBODY = "http://127.0.0.1:9"
"""Where nobody listens. Amazon's address for a machine's own credentials is set to it: no test asks there."""
_NUMBERS = count(1)


class S3Service:
    """A service that is running, and asked over HTTP; it can go away for a while."""

    def __init__(self) -> None:
        self._server = _started(0)
        host, self._port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{self._port}"

    @contextmanager
    def down(self) -> Iterator[None]:
        """Nobody listens until the block ends; the objects are kept."""
        self._server.stop()
        try:
            yield
        finally:
            self._server = _started(self._port)

    def stop(self) -> None:
        """Serve no more."""
        self._server.stop()

    def fresh(self, prefix: str = "site/models") -> S3Address:
        """An empty bucket."""
        name = f"bucket-{next(_NUMBERS)}"
        make = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(make, timeout=10):
            return S3Address(name, prefix, self.endpoint, allow_http=True)

    def objects(self, address: S3Address) -> dict[str, bytes]:
        """What lies in a bucket, as another program sees it, by key."""
        with self._client() as client:
            found = client.list_objects_v2(Bucket=address.bucket).get("Contents", [])
            keys = [each["Key"] for each in found]
            return {key: client.get_object(Bucket=address.bucket, Key=key)["Body"].read() for key in keys}

    def models(self, address: S3Address) -> dict[str, bytes]:
        """As ``objects``, without the one that says whose models these are."""
        return {key: data for key, data in self.objects(address).items() if not key.endswith("journal")}

    def put(self, address: S3Address, key: str, data: bytes) -> None:
        """Write an object behind the server's back."""
        with self._client() as client:
            client.put_object(Bucket=address.bucket, Key=key, Body=data)

    def remove(self, address: S3Address, key: str) -> None:
        """Delete an object behind the server's back."""
        with self._client() as client:
            client.delete_object(Bucket=address.bucket, Key=key)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        client = _boto3().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        try:
            yield client
        finally:
            client.close()


@contextmanager
def s3_service() -> Iterator[S3Service]:
    """Serve until the block ends; until then the environment holds the credentials, and no others of AWS."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    service = S3Service()
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    try:
        with mock.patch.dict(os.environ, bare | CREDENTIALS | {"AWS_METADATA_ENDPOINT": NOBODY}, clear=True):
            yield service
    finally:
        service.stop()


def _started(port: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that only moto needs
        from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    return server


def _boto3() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import boto3

    return boto3
