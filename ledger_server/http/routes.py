"""What a request may cost, by method and path: known before routing, so that a refusal reads nothing.

The table is the application's; first match wins. It bounds bodies and says which requests are only a
supervisor's question (health, metrics), answered however busy the server is and logged at debug.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

ANY_METHOD: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class RouteRule:
    """Limits of the requests that match.

    Attributes:
        path: Regular expression that the whole path matches.
        max_body_bytes: Largest body; more is 413.
        methods: Methods that the rule is for.
        counted: Whether requests count towards the limits of concurrency and rate.
        endpoint: Answers them without the framework's routing, dependencies and exception handlers, which take as
            long as the rest of a small request; raises ``Problem`` for what it refuses.
        template: The route's path as metrics name it; only with ``endpoint``.
    """

    path: str
    max_body_bytes: int
    methods: frozenset[str] = ANY_METHOD
    counted: bool = True
    endpoint: Endpoint | None = None
    template: str | None = None


class RouteTable:
    """Rules in order; a request that none matches may have a body of ``default_max_body_bytes``."""

    def __init__(self, rules: Sequence[RouteRule], *, default_max_body_bytes: int) -> None:
        self._rules = [(re.compile(rule.path), rule) for rule in rules]
        self._default = RouteRule(".*", default_max_body_bytes)

    def rule_for(self, method: str, path: str) -> RouteRule:
        """The first rule that matches."""
        for pattern, rule in self._rules:
            if method in rule.methods and pattern.fullmatch(path):
                return rule
        return self._default


SUPERVISION: Final = RouteRule("/(healthz|readyz|version|metrics)", max_body_bytes=0, counted=False)
"""The rule for the routes that supervisors ask."""
