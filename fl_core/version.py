"""Which release this is."""

from importlib import metadata


def installed_version() -> str:
    """The release that is installed; ``0+unknown`` when the source tree runs without installation."""
    try:
        return metadata.version("dag-acfl")
    except metadata.PackageNotFoundError:
        return "0+unknown"
