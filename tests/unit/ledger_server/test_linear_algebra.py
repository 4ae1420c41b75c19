"""NumPy reads these variables when it is imported; a server sets them before."""

import subprocess
import sys


def test_serve_imports_no_numpy_before_it_limits_its_threads() -> None:
    program = (
        "import sys, dag_acfl.cli, dag_acfl.commands.serve, ledger_server.linear_algebra;"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_what_the_environment_says_already_stays() -> None:
    program = (
        "import os; os.environ['OMP_NUM_THREADS'] = '3';"
        "from ledger_server.linear_algebra import use_one_thread; use_one_thread();"
        "assert (os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS']) == ('3', '1')"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
