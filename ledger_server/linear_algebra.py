"""One thread for linear algebra in a server; call it before NumPy is imported.

BLAS splits even a product of 0.4 MB between all cores and lets their threads spin at a barrier. While requests keep
the cores busy that turns a tenth of a millisecond into tens (measured: a selection 20 ms instead of 2, a publication
40 instead of 4). A server's parallelism is its requests.
"""

import os
from typing import Final

_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def use_one_thread() -> None:
    """Unless the environment says otherwise already; processes that this one starts inherit it."""
    for name in _VARIABLES:
        os.environ.setdefault(name, "1")
