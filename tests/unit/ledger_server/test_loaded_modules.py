"""What a server loads: idle, each megabyte is a process's for good, and it has no use for these."""

import subprocess
import sys


def test_a_server_loads_neither_numpys_generators_nor_networkx_nor_what_trains() -> None:
    program = (
        "import sys, ledger_server.app;"
        "loaded = {'numpy.random', 'networkx', 'torch', 'matplotlib', 'fl_simulator', 'fl_client'} & set(sys.modules);"
        "assert not loaded, loaded"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
