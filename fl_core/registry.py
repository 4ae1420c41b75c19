"""Parts that a genesis document or a scenario names: selectors, aggregators, strategies, models and the like.

A new part is one file and one line in its registry. The line says where the part is, ``module:name``, and it is
imported when it is first asked for. A part with parameters is a class or a function whose first argument is annotated
with the frozen dataclass of its parameters (``fl_core.parameters``).

    >>> SELECTORS = PartRegistry("selector", {"top-k": "fl_core.selection.top_k:TopK"})
    >>> SELECTORS.build("top-k", {"k": 5}).params
    TopKParams(k=5)

Other people's parts come by the entry points of installed packages, in a registry's group, and by ``module:name`` in
place of a name. No genesis document can say the latter (``fl_core.dag.genesis.Component``): what a ledger or a peer
names is never a reason to import what the operator of this machine has not installed.
"""

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, Generic, TypeVar, get_type_hints

from fl_core.errors import DagAcflError, ParameterError, PartFailedError, UnknownNameError
from fl_core.parameters import read_parameters, rules_of
from fl_core.types import JsonScalar

T = TypeVar("T")

_MAX_TEXT: Final = 300


class Registry(Mapping[str, T]):
    """What there is of one kind, by name; an unknown name raises ``UnknownNameError``, which lists the known ones.

    Args:
        kind: What the names stand for, for messages.
        entries: The things themselves, or where they are, ``module:name``.
        group: Entry points of installed packages that add to them; empty: nothing is added, and no ``module:name``.
    """

    def __init__(self, kind: str, entries: Mapping[str, T | str], *, group: str = "") -> None:
        self.kind: str = kind
        self.group: str = group
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        entry = self._entries.get(name)
        if isinstance(entry, str):
            own: T = _load(entry)
            return own
        if entry is not None:
            return entry
        if self.group and ":" in name:
            return self._imported(name, name)
        places = self._installed().get(name)
        if places is None:
            raise UnknownNameError(self.kind, name, self, group=self.group)
        if len(places) > 1:
            raise ParameterError(f"{self.kind} {name!r} comes with several packages: {', '.join(places)}; keep one")
        return self._imported(name, places[0])

    def __contains__(self, name: object) -> bool:
        return name in self._entries or (bool(self.group) and ":" in str(name)) or name in self._installed()

    def __iter__(self) -> Iterator[str]:
        yield from self._entries
        yield from self._installed()

    def __len__(self) -> int:
        return len(self._entries) + len(self._installed())

    def adopt(self, name: str, part: T) -> None:
        """Know a part that was named ``module:name`` by its own name too, in this process.

        Raises:
            ParameterError: Another part has that name.
        """
        if name in self and self[name] is not part:
            raise ParameterError(f"there is another {self.kind} {name!r}; give yours a name of its own")
        self._entries.setdefault(name, part)

    def _installed(self) -> dict[str, list[str]]:
        """Where the parts of installed packages are, by name; a name of the project's own stays its own."""
        found: dict[str, list[str]] = {}
        for point in entry_points(group=self.group) if self.group else ():
            if point.name not in self._entries:
                found.setdefault(point.name, []).append(point.value)
        return found

    def _imported(self, name: str, place: str) -> T:
        try:
            found: T = _load(place)
        except DagAcflError:
            raise
        except Exception as error:
            where = "" if name == place else f" ({place})"
            raise ParameterError(
                f"{self.kind} {name!r}{where} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        return found


def _load(place: str) -> Any:
    """What stands at ``module:name``."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


class PartRegistry(Registry[Callable[..., T]], Generic[T]):
    """Parts of one kind that are built from parameters."""

    def params_type(self, name: str) -> type[Any]:
        """The dataclass of a part's parameters.

        Raises:
            ParameterError: It does not say it.
        """
        part: Any = self[name]
        try:
            hints = get_type_hints(part.__init__ if inspect.isclass(part) else part)
            kind: type[Any] = hints[next(iter(inspect.signature(part).parameters))]
            if not hasattr(kind, "read"):
                rules_of(kind)
        except (TypeError, NameError, StopIteration, KeyError) as error:  # KeyError: a field without a rule
            raise ParameterError(
                f"{self.kind} {name!r}: its first argument must be annotated with a dataclass whose fields are made by "
                f"fl_core.parameters.parameter"
            ) from error
        return kind

    def read_params(self, name: str, given: Mapping[str, JsonScalar]) -> Any:
        """A part's parameters, checked; those left out have their defaults.

        A dataclass whose parts have parameters of their own has a ``read``, and a ``write`` that is its inverse.

        Raises:
            UnknownNameError: No such part.
            ParameterError: An unknown parameter, a wrong type, or a value out of range.
        """
        kind, owner = self.params_type(name), f"{self.kind} {name!r}"
        return kind.read(given, owner=owner) if hasattr(kind, "read") else read_parameters(kind, given, owner=owner)

    def build(self, name: str, given: Mapping[str, JsonScalar], *args: Any, **context: Any) -> T:
        """A part.

        Args:
            name: Which.
            given: Its parameters.
            args: What every part of this registry takes beside its parameters, such as a strategy the run's world.
            context: What some take, by the name of their argument; a part without it is not given it.

        Raises:
            UnknownNameError, ParameterError: As ``read_params``.
        """
        part, params = self[name], self.read_params(name, given)
        signature = inspect.signature(part)
        needed = {argument: value for argument, value in context.items() if argument in signature.parameters}
        try:
            signature.bind(params, *args, **needed)
        except TypeError as error:
            raise ParameterError(
                f"{self.kind} {name!r} does not take what every {self.kind} is given: {error}"
            ) from error
        return part(params, *args, **needed)


@contextmanager
def installed_part(kind: str, part: Any) -> Iterator[None]:
    """In this block a part runs: what one of an installed package raises is told as its fault, in one line.

    What the project's own parts raise is a bug of the project, and goes on as it is.

    Raises:
        PartFailedError: It raised something that is no error of this project; names the part, its file and line.
    """
    try:
        yield
    except DagAcflError:
        raise
    except Exception as error:
        if type(part).__module__.startswith("fl_core."):
            raise
        file = inspect.getfile(type(part))
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
        name = file.replace("\\", "/").rpartition("/")[2]  # its folder is the operator's affair
        place = f"{name}, line {lines[-1]}: " if lines else ""
        said = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_TEXT]
        raise PartFailedError(
            f"{kind} {part.name!r} failed: {place}{said}; mend its package on every server"
        ) from error


def written_params(params: Any) -> dict[str, JsonScalar]:
    """Checked parameters as a person would write them, defaults written out; the inverse of ``read_params``."""
    written: dict[str, JsonScalar] = params.write() if hasattr(params, "write") else asdict(params)
    return written
