"""Whether tables and migrations agree: exit status 1 if not.

python -m ledger_server.store check [URL of an empty database; default: a new SQLite file]
"""

import sys
import tempfile

from ledger_server.store.schema import check


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    if arguments[:1] != ["check"] or len(arguments) > 2:
        sys.stderr.write("usage: python -m ledger_server.store check [URL of an empty database]\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        found = check(arguments[1] if len(arguments) == 2 else f"sqlite:///{folder}/check.sqlite3")
    for difference in found:
        sys.stderr.write(f"tables and migrations differ: {difference}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
