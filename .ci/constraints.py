"""Write constraints.txt: the exact version of every package that the extras bring, as this environment has them."""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

BUILD = ("hatchling", "editables")


def pins(roots: Iterable[Requirement]) -> Iterator[str]:
    """``name==version`` of each package that the roots need here, without a local label such as ``+cpu``."""
    wanted: dict[str, set[str]] = {}
    waiting = list(roots)
    while waiting:
        requirement = waiting.pop()
        key = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if key in wanted and requirement.extras <= wanted[key]:
            continue
        wanted.setdefault(key, set()).update(requirement.extras)
        try:
            needs = distribution(requirement.name).requires or []
        except PackageNotFoundError:
            sys.exit(f"error: {requirement.name} is not installed; run: make .venv/.installed-dev")
        waiting += [need for need in map(Requirement, needs) if applies(need, wanted[key])]
    for key in sorted(wanted.keys() - {"dag-acfl"}):
        found = distribution(key)
        yield f"{found.metadata['Name']}=={found.version.partition('+')[0]}"


def applies(need: Requirement, extras: Iterable[str]) -> bool:
    """Whether a requirement is for this platform and one of the extras."""
    return need.marker is None or any(need.marker.evaluate({"extra": each}) for each in ("", *extras))


def main(file: Path) -> None:
    comments = [line for line in file.read_text().splitlines() if line.startswith("#")]
    found = sorted(pins([Requirement("dag-acfl[dev]"), *map(Requirement, BUILD)]), key=str.lower)
    file.write_text("\n".join([*comments, *found]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
