"""The store's contract holds for every place that models may lie in, a bucket as well."""

import pytest

from ledger_server.store.opening import BlobPlace


@pytest.fixture(params=["database", "directory", "s3"])
def blobs(request: pytest.FixtureRequest) -> BlobPlace:
    """Where a journal's models lie."""
    place: BlobPlace = request.param
    return place
