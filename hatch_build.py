"""Writes into a wheel of which commit it is, so that ``dag-acfl --version`` and a server can say so."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMMIT_FILE = "ledger_server/_commit.txt"


class CommitHook(BuildHookInterface):
    """Of sdist and wheel; a wheel that is made of an sdist takes over the sdist's."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files are collected."""
        if version == "editable" or Path(self.root, COMMIT_FILE).exists():
            return
        commit = os.environ.get("REVISION") or self._described()
        if commit:
            file = Path(tempfile.mkdtemp(), "commit.txt")
            file.write_text(f"{commit[:40]}\n", "ascii")
            build_data["force_include"][str(file)] = COMMIT_FILE

    def _described(self) -> str:
        command = ["git", "-C", self.root, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        except FileNotFoundError:
            return ""  # no git here: the builder may name the commit as REVISION
