"""How large the graphs of the numerical part are, how many are drawn, and for how many rounds they average."""

from typing import Final

SIGMA_NOISE: Final = 1e-3
"""Of σ_init = 1. The paper does not say; training's steps are some orders below averaging's (Fig. 5a)."""
CURVE: Final = {"nodes": 256, "degree": 32, "parameters": 1000, "rounds": 40, "seeds": 10}
SIZES: Final = (64, 128, 256, 512, 1024, 2048, 4096)
MEAN_DEGREE: Final = 16
EXPONENT_SEEDS: Final = 10
GAMMAS: Final = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0)
REWIRED: Final = {"nodes": 2048, "targets": (-0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8), "seeds": 5}
MIXING: Final = {"nodes": (16, 32, 64, 128, 256, 512, 1024), "parameters": 64, "seeds": 5}
MOST_ROUNDS: Final = 1 << 15
"""After which σ_an has to be flat."""
ESTIMATED: Final = {"nodes": 1024, "seeds": 10}
