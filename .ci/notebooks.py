"""Run the notebooks of examples/ in an empty folder, in a reader's order, and say how long each took."""

import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
ORDER = ("first_federation", "read_a_ledger", "simulate")
"""The second reads what the first has left."""

if {file.stem for file in FOLDER.glob("*.ipynb")} != set(ORDER):
    sys.exit(f"{FOLDER} has other notebooks than {', '.join(ORDER)}")
with tempfile.TemporaryDirectory(prefix="dag-acfl-notebooks-") as folder:
    for name in ORDER:
        began = time.monotonic()
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
        if any(cell.outputs or cell.execution_count for cell in notebook.cells if cell.cell_type == "code"):
            sys.exit(f"{name}.ipynb has outputs; clear them before it is committed")
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
        if len(sys.argv) > 1:
            nbformat.write(notebook, Path(sys.argv[1]) / f"{name}.ipynb")
        print(f"{name}: {time.monotonic() - began:.0f} s")
