"""Attackers: clients of a simulated run that do it harm, whatever the method.

A new attacker is one file and one line in ``ATTACKERS``; the contract tests in ``tests/contract/test_attackers.py``
then hold it to what every attacker promises. ``attack`` seats them in a run.
"""

from typing import Final

from fl_core.registry import PartRegistry
from fl_simulator.attacks.protocol import Attacker

ATTACKERS: Final = PartRegistry[Attacker](
    "attacker",
    {
        "absent": "fl_simulator.attacks.absent:Absent",
        "adaptive": "fl_simulator.attacks.adaptive:Adaptive",
        "free-rider": "fl_simulator.attacks.free_rider:FreeRider",
        "label-flip": "fl_simulator.attacks.label_flip:LabelFlip",
        "layer-clone": "fl_simulator.attacks.layer_clone:LayerClone",
        "little-is-enough": "fl_simulator.attacks.little_is_enough:LittleIsEnough",
        "noise": "fl_simulator.attacks.noise:Noise",
        "patch": "fl_simulator.attacks.patch:Patch",
        "scaled-step": "fl_simulator.attacks.scaled_step:ScaledStep",
        "semantic": "fl_simulator.attacks.semantic:Semantic",
        "small-norm": "fl_simulator.attacks.small_norm:SmallNorm",
        "sybil": "fl_simulator.attacks.sybil:Sybil",
    },
    group="dag_acfl.attackers",
)
"""Each takes its parameters."""
