"""What can go wrong with the database, as our own tree; a driver's exception never leaves this package.

Only ``StoreUnavailableError`` can happen to a running server; the others stop it from starting, or are faults of the
program.
"""

from fl_core.errors import DagAcflError


class StoreError(DagAcflError):
    """The database does not do what was asked.

    Args:
        message: For whoever asks, also over the network.
        private: What only the operator is told, after it: a driver's own words, which name addresses and users.
    """

    code = "store-error"

    def __init__(self, message: str = "", *, private: str = "") -> None:
        super().__init__(f"{message}: {private}" if private else message)
        self._public = message

    @property
    def public(self) -> str:
        """The message without its private part."""
        return self._public


class StoreUnavailableError(StoreError):
    """The database cannot be read or written now; nothing of the failed call is stored or acknowledged (HTTP 503)."""

    code = "store-unavailable"


class SupersededError(StoreUnavailableError):
    """The database is not any more what this process was started for: it is to end."""


class DiskNearlyFullError(StoreUnavailableError):
    """There is no room for so much; there may be for less."""


class SyncFailedError(StoreUnavailableError):
    """What was written could not be brought to the disk, for whatever reason.

    The kernel may have forgotten it and say of the next sync that all is well, so none may follow before a restart.
    """


class StoreLocationError(StoreError):
    """The URL, the folder or the file is not one that a ledger can live in."""

    code = "store-location"


class StoreInconsistentError(StoreError):
    """The database refuses a row that the ledger's rules admitted, such as one whose parent is not stored."""

    code = "store-inconsistent"


class SchemaBehindError(StoreError):
    """The tables are older than this program; the message names the command that brings them up to date."""

    code = "schema-behind"


class SchemaAheadError(StoreError):
    """The tables were made by a newer program, which must be the one to serve them."""

    code = "schema-ahead"


class LedgerExistsError(StoreError):
    """The database holds a ledger already."""

    code = "ledger-exists"
