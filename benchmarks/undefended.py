"""``dag-acfl`` without what protects learning in the server's own code: what ``defences.py`` is held against.

Steps and shares are not measured, alarms look at nothing, no caller has a share of the server's room. What genesis and
settings say is left to who calls it.

    python benchmarks/undefended.py serve --data-dir data
"""

import sys
from typing import Any

from dag_acfl.__main__ import main
from fl_core.dag.figures import Figures, Step
from ledger_server.alarms import ServerAlarms
from ledger_server.publishing import LedgerService
from ledger_server.shares import Shares

UNMEASURED = Figures(1.0, Step(0.0, ()))


def instead(where: type, name: str, answer: object) -> None:
    """Have a method do nothing but answer."""
    assert hasattr(where, name), "what is left out must be there"

    def method(*_: Any, **__: Any) -> Any:
        return answer

    setattr(where, name, method)


if __name__ == "__main__":
    instead(LedgerService, "_figures", UNMEASURED)
    instead(LedgerService, "_copied", None)
    instead(ServerAlarms, "see", None)
    instead(ServerAlarms, "restore", None)
    instead(Shares, "excess", 0)
    sys.exit(main())
