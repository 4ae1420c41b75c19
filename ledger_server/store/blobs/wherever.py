"""Models in two places: some in segment files, some in a bucket, as their rows say; new ones in one of the two."""

from fl_core.models import Buffer
from fl_core.types import Digest
from ledger_server.store.blobs.protocol import Blob, Place
from ledger_server.store.blobs.s3 import S3Blobs
from ledger_server.store.blobs.segments import SegmentBlobs
from ledger_server.store.protocol import ModelReader


class SegmentsAndBucket:
    """Both stores, for a journal whose setting has changed or may change.

    Args:
        segments: Holds what has a place.
        bucket: Holds what goes by its digest.
        new_in_bucket: Which of the two takes new models.
    """

    def __init__(self, segments: SegmentBlobs, bucket: S3Blobs, *, new_in_bucket: bool) -> None:
        self._segments, self._bucket = segments, bucket
        self._new_in_bucket = new_in_bucket

    def _of(self, blob: Blob) -> SegmentBlobs | S3Blobs:
        return self._bucket if blob.place is None else self._segments

    def put(self, digest: Digest, data: Buffer) -> Place | None:
        """See ``BlobStore.put``."""
        if not self._new_in_bucket:
            return self._segments.put(digest, data)
        self._bucket.put(digest, data)
        return None

    def get(self, blob: Blob) -> bytes | None:
        """See ``BlobStore.get``."""
        return self._of(blob).get(blob)

    def open(self, blob: Blob) -> ModelReader | None:
        """See ``BlobStore.open``."""
        return self._of(blob).open(blob)

    def drop(self, blob: Blob) -> None:
        """See ``BlobStore.drop``."""
        self._of(blob).drop(blob)

    def stored_bytes(self) -> int:
        """See ``BlobStore.stored_bytes``."""
        return self._segments.stored_bytes()

    def check(self) -> None:
        """See ``BlobStore.check``."""
        self._segments.check()
        self._bucket.check()

    def close(self) -> None:
        """See ``BlobStore.close``."""
        self._segments.close()
        self._bucket.close()
