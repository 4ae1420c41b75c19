"""Where to go on with each peer after a restart: a small file that may get lost, since cursors only save work."""

import json
import logging
from pathlib import Path

from fl_core.sync.messages import Peer
from fl_core.types import is_hex_id

logger: logging.Logger = logging.getLogger(__name__)


class CursorFile:
    """Cursors by peer, written as a whole.

    Args:
        path: The file; its folder exists.
        epoch: Names this server's own journal: cursors of another one say nothing about what this one holds.
    """

    def __init__(self, path: Path, *, epoch: str) -> None:
        self._path, self._epoch = path, epoch
        self._cursors = self._read()
        self._is_dirty = False

    def _read(self) -> dict[Peer, str]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if content["epoch"] != self._epoch:
                return {}
            return {Peer(key): str(cursor) for key, cursor in content["cursors"].items() if is_hex_id(key)}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            logger.warning("gossip's cursors cannot be read; starting without", extra={"file": str(self._path)})
            return {}

    @property
    def cursors(self) -> dict[Peer, str]:
        """As of now."""
        return dict(self._cursors)

    def keep(self, peer: Peer, cursor: str) -> None:
        """Remember; ``flush`` writes."""
        self._is_dirty = self._is_dirty or self._cursors.get(peer) != cursor
        self._cursors[peer] = cursor

    def flush(self) -> None:
        """Write what changed; a disk that refuses costs a longer pull after the next start, so it is only logged."""
        if not self._is_dirty:
            return
        part = self._path.with_suffix(".part")
        try:
            part.write_text(json.dumps({"epoch": self._epoch, "cursors": self._cursors}), encoding="utf-8")
            part.replace(self._path)
        except OSError:
            logger.warning("gossip's cursors cannot be written", exc_info=True)
        self._is_dirty = False
