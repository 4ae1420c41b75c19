"""How long a call may take."""

from dataclasses import dataclass

from fl_core.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a call may take, in seconds; all > 0.

    ``Timeouts(total_s=60)``: a call, its retries included, ends after a minute.
    """

    total_s: float = 300.0
    """One call, with all its attempts, pauses and servers."""
    connect_s: float = 5.0
    """Opening one connection."""
    silence_s: float = 30.0
    """Longest time without a byte, the server's own work included."""

    def __post_init__(self) -> None:
        for name in ("total_s", "connect_s", "silence_s"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"timeout {name} must be above 0")
