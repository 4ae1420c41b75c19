"""What is shown to be typed next can be typed, also where the shell does not find the program."""

import re
import subprocess
import sys
from pathlib import Path


def test_commands_that_are_shown_begin_as_the_program_was_started(tmp_path: Path) -> None:
    program = tmp_path / "my env" / "dag-acfl"
    program.parent.mkdir()
    start = f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); from dag_acfl.__main__ import main; sys.exit(main())"
    program.write_text(f"#!{sys.executable}\n{start}\n")
    program.chmod(0o700)

    def shown(command: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin"},
        )
        return done.stdout + done.stderr

    hints = re.findall(r":\s+(.*dag-acfl.*)", shown("'my env/dag-acfl' client init mine.py"))
    assert len(hints) == 5
    assert all(hint.startswith("'my env/dag-acfl' ") for hint in hints)
    (see,) = re.findall("see: (.*)", shown(f"{hints[0]} --nonsense"))
    assert see == "'my env/dag-acfl' try --help"
    assert "--sites" in shown(see)
