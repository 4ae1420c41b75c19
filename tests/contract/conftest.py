"""The store's contract holds for every place that models may lie in, a bucket as well, one server's or several'."""

from dataclasses import replace

import pytest

from ledger_server.buckets import S3Address
from ledger_server.store.opening import BlobPlace
from tests.s3 import S3Service


@pytest.fixture(params=["rows", "files"])
def place(request: pytest.FixtureRequest) -> str:
    """Where a journal's models lie: in rows of either kind of database, or in files, which know nothing of its kind."""
    return str(request.param)


@pytest.fixture
def blobs(place: str, database_url: str) -> BlobPlace:
    if place == "rows":
        return "database"
    return "directory" if place == "files" and database_url.startswith("sqlite") else "s3"


@pytest.fixture
def bucket(request: pytest.FixtureRequest, place: str, blobs: BlobPlace) -> S3Address | None:
    if blobs != "s3":
        return None
    service: S3Service = request.getfixturevalue("s3")
    return replace(service.fresh(), shared=place == "shared")
