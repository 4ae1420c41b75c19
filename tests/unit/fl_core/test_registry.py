"""Parts by name, wherever they are."""

from dataclasses import dataclass

import pytest

from fl_core.errors import ParameterError, UnknownNameError
from fl_core.parameters import parameter
from fl_core.registry import PartRegistry, Registry


@dataclass(frozen=True, slots=True)
class OvenParams:
    """An oven's."""

    heat: int = parameter(180, at_least=0, doc="Degrees.")


@dataclass(frozen=True, slots=True)
class Oven:
    """Bakes."""

    params: OvenParams
    kitchen: str = ""
    timer: int = 0


def grill(params: OvenParams, kitchen: str) -> Oven:
    """A part may be a function, too."""
    return Oven(OvenParams(2 * params.heat), kitchen)


PARTS = PartRegistry[Oven]("oven", {"plain": f"{__name__}:Oven", "grill": grill})


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under pytest's importlib mode this module is importable by no name of its own."""
    import sys

    monkeypatch.setitem(sys.modules, __name__, type(sys)(__name__))
    sys.modules[__name__].Oven = Oven  # type: ignore[attr-defined]


def test_a_part_is_built_from_its_parameters() -> None:
    assert PARTS.build("plain", {"heat": 200}) == Oven(OvenParams(200))
    assert PARTS.params_type("plain") is PARTS.params_type("grill") is OvenParams


def test_context_goes_to_parts_that_ask() -> None:
    assert PARTS.build("plain", {}, "ours", timer=5) == Oven(OvenParams(), "ours", 5)
    assert PARTS.build("grill", {}, "ours", timer=5) == Oven(OvenParams(360), "ours")


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(UnknownNameError, match="unknown oven 'stove'; known: grill, plain"):
        PARTS.build("stove", {})
    with pytest.raises(UnknownNameError, match="unknown pan 'wok'; known: pot"):
        Registry("pan", {"pot": 1})["wok"]
    assert "wok" not in Registry("pan", {"pot": 1})


def test_wrong_parameters_name_the_part() -> None:
    with pytest.raises(ParameterError, match="oven 'plain' has no parameter 'cold'"):
        PARTS.build("plain", {"cold": 1})
    with pytest.raises(ParameterError, match="oven 'plain': heat must be at least 0"):
        PARTS.build("plain", {"heat": -1})
