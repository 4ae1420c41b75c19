"""Whose certificates are believed where peers speak TLS."""

import ssl
from pathlib import Path

from fl_core.errors import ParameterError


def authorities(ca_file: Path | None) -> ssl.SSLContext:
    """Whose certificates are believed: the authorities in a PEM file and no others, or for None the system's.

    Raises:
        ParameterError: The file cannot be read, or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except ssl.SSLError as error:
        raise ParameterError(f"setting peers_ca_file: {ca_file} holds no certificate in PEM ({error.reason})") from None
    except OSError as error:
        raise ParameterError(f"setting peers_ca_file: {ca_file} cannot be read ({error.strerror})") from None
