"""The kinds of ledger that ``dag-acfl ledger init --authors`` makes: the rules of each, where nobody says otherwise."""

from collections.abc import Mapping
from typing import Final

from fl_core.dag.genesis import RULES, Component

PROFILES: Final[Mapping[str, Mapping[str, Component]]] = {
    "open": RULES,
    "listed": {**RULES, "authors": Component("listed", {"keys_only": False})},
}
