"""Parts by name, wherever they are."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

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


# -- other people's parts ------------------------------------------------------------------------------


@pytest.fixture
def ovens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a package: its name, and its entry points in the group ``tests.ovens``."""
    (tmp_path / "their_ovens.py").write_text(
        "from dataclasses import dataclass\n"
        "from fl_core.parameters import NoParams\n"
        "def solar(params: NoParams, kitchen): return 'sun'\n"
        "def bare(): return 'nothing'\n"
        "@dataclass\nclass Loose:\n    heat: int = 3\n"
        "def loose(params: Loose, kitchen): return 'loose'\n"
    )
    (tmp_path / "broken_ovens.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(package: str, points: str) -> None:
        folder = tmp_path / f"{package}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(f"[tests.ovens]\n{points}\n")
        importlib.invalidate_caches()

    return install


def open_parts() -> PartRegistry[Any]:
    return PartRegistry("oven", {"grill": grill}, group="tests.ovens")


Install: TypeAlias = Callable[[str, str], None]


def test_an_installed_package_adds_its_parts(ovens: Install) -> None:
    parts = open_parts()
    assert (list(parts), "solar" in parts) == (["grill"], False)
    ovens("theirs", "solar = their_ovens:solar")
    assert (list(parts), len(parts), "solar" in parts) == (["grill", "solar"], 2, True)
    assert parts.build("solar", {}, "ours") == "sun"


def test_a_package_takes_no_name_of_the_projects_own_and_two_packages_share_none(ovens: Install) -> None:
    parts = open_parts()
    ovens("theirs", "grill = their_ovens:solar\nsolar = their_ovens:solar")
    assert parts.build("grill", {}, "ours") == Oven(OvenParams(360), "ours")
    ovens("others", "solar = their_ovens:bare")
    with pytest.raises(ParameterError, match=r"oven 'solar' comes with several packages: their_ovens:.+; keep one"):
        parts.build("solar", {}, "ours")


def test_a_place_stands_for_a_name_only_where_there_is_a_group(ovens: Install) -> None:
    assert open_parts().build("their_ovens:solar", {}, "ours") == "sun"
    assert "their_ovens:solar" not in PARTS
    with pytest.raises(UnknownNameError, match=r"unknown oven 'their_ovens:solar'; known: grill, plain$"):
        PARTS.build("their_ovens:solar", {}, "ours")


def test_an_unknown_name_says_what_to_install() -> None:
    with pytest.raises(UnknownNameError, match=r"known: grill; or install the package .+ entry points tests\.ovens$"):
        open_parts().build("solar", {})


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no_such_module:solar", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("broken_ovens:solar", "cannot be imported: ModuleNotFoundError"),
        ("their_ovens:lunar", "cannot be imported: AttributeError: module 'their_ovens' has no attribute 'lunar'"),
        ("their_ovens:", "cannot be imported: AttributeError"),
        (":solar", "cannot be imported: ValueError"),
        ("their_ovens:bare", "its first argument must be annotated with a dataclass"),
        ("their_ovens:loose", "its first argument must be annotated with a dataclass"),
        ("their_ovens:dataclass", "its first argument must be annotated with a dataclass"),
    ],
)
def test_what_is_no_part_is_refused_in_words(ovens: Install, place: str, words: str) -> None:
    with pytest.raises(ParameterError, match=f"oven '{place}'.*{words}"):
        open_parts().build(place, {}, "ours")


def test_a_part_that_takes_other_arguments_is_refused_in_words(ovens: Install) -> None:
    with pytest.raises(ParameterError, match="does not take what every oven is given: too many positional arguments"):
        open_parts().build("their_ovens:solar", {}, "ours", "and another")


def test_a_part_that_was_named_by_its_place_is_known_by_its_name_unless_that_is_taken(ovens: Install) -> None:
    parts = open_parts()
    parts.adopt("solar", parts["their_ovens:solar"])
    parts.adopt("solar", parts["their_ovens:solar"])
    assert parts.build("solar", {}, "ours") == "sun"
    with pytest.raises(ParameterError, match="there is another oven 'grill'; give yours a name of its own"):
        parts.adopt("grill", parts["their_ovens:solar"])
