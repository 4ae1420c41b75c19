"""NumPy reads its number of threads when it is imported; ``serve`` sets it before."""

import subprocess
import sys

PROGRAM = """
import os, sys
from dag_acfl.process import use_one_blas_thread
assert "numpy" not in sys.modules
os.environ["OMP_NUM_THREADS"] = "3"
use_one_blas_thread()
assert (os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]) == ("3", "1")
"""


def test_blas_has_one_thread_unless_the_environment_says_otherwise() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
