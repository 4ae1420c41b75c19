"""Products of matrices of many rows, as fast as this processor can.

Torch multiplies float32 by MKL, which takes half of the width that an AMD processor's registers have. oneDNN, which
torch brings along for convolutions and its compiler, takes all of it: twice the speed from some 64 rows on. It is asked
for by the operator that torch's compiler uses; where there is none, torch's own product does.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

_IS_FOR_X86: Final[bool] = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
_LINEAR: Final[Callable[..., Tensor] | None] = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None) if _IS_FOR_X86 else None
)


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Left times right transposed, and a bias on each row: ``(n, k)``, ``(m, k)``, ``(m,)`` to ``(n, m)``."""
    if _LINEAR is not None and left.dtype == torch.float32 and left.device.type == "cpu":
        return _LINEAR(left, right, bias, "none", [], "")
    return functional.linear(left, right, bias)
