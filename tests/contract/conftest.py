"""The store's contract holds for every place that models may lie in, a bucket as well."""

import pytest

from ledger_server.store.opening import BlobPlace


@pytest.fixture(params=["rows", "files"])
def blobs(request: pytest.FixtureRequest, database_url: str) -> BlobPlace:
    """Where a journal's models lie: in rows of either kind of database, or in files, which know nothing of its kind."""
    if request.param == "rows":
        return "database"
    return "directory" if database_url.startswith("sqlite") else "s3"
