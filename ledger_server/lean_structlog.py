"""structlog without rich: it would load that for coloured tracebacks, which a server's log has not, and 5 MB of memory.

Whoever needs structlog in a server imports it from here.
"""

import sys

if "rich" in sys.modules or "structlog" in sys.modules:
    import structlog
else:
    sys.modules["rich"] = None  # type: ignore[assignment]  # its import fails, which structlog is prepared for
    try:
        import structlog
    finally:
        del sys.modules["rich"]

__all__ = ["structlog"]
