"""The bucket that servers send a client to for models: only where its user has named it, and never instead of a server.

A redirect could lead anywhere, also to what only this machine reaches: so a client follows none but to the address that
it was given. It goes there without its token, and what comes counts by its digest alone.
"""

import time
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from fl_client.errors import AnswerInvalidError
from fl_client.transport import ByteCounts, Endpoint
from fl_core.errors import ParameterError

_REST_S: Final = 60.0
"""For how long a bucket is left alone that has failed; servers give the models meanwhile."""


class Bucket:
    """Safe to share between threads.

    Args:
        url: What links begin with: ``https://s3.example.org/bucket``, or ``https://bucket.s3.eu-central-1.amazonaws.com``.
        servers: Addresses of those that may lead there.
        traffic: Where moved bytes are counted.
        ca_file: PEM of the authority that signed its certificate; the system's authorities otherwise.

    Raises:
        ParameterError: ``url`` cannot be used; or it is ``http://`` where a server is ``https://``.
    """

    def __init__(self, url: str, servers: list[str], *, traffic: ByteCounts, ca_file: Path | None) -> None:
        self.endpoint: Endpoint = Endpoint(url, traffic=traffic, ca_file=ca_file)
        if self.endpoint.url.startswith("http:") and not all(each.startswith("http:") for each in servers):
            raise ParameterError(f"the bucket {url} has no TLS, and a server has; name it by https://")
        self._rests_until = 0.0

    @property
    def is_at_hand(self) -> bool:
        """Whether a server may lead there now."""
        return time.monotonic() >= self._rests_until

    def failed(self) -> None:
        """Ask servers alone for a while."""
        self._rests_until = time.monotonic() + _REST_S

    def path_of(self, link: str) -> str:
        """What to ask the endpoint for.

        Raises:
            AnswerInvalidError: The link leads elsewhere.
        """
        prefix = urlsplit(self.endpoint.url)
        try:
            parts = urlsplit(link)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            parts, port = urlsplit(""), 0
        inside = parts.path.removeprefix(prefix.path)
        is_same = (parts.scheme, parts.hostname, port) == (prefix.scheme, prefix.hostname, prefix.port)
        if not is_same or not parts.path.startswith(f"{prefix.path}/") or ".." in unquote(inside):
            raise AnswerInvalidError(f"a server leads to another address than {self.endpoint.url}")
        return f"{inside}?{parts.query}"
