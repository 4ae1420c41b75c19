"""Parts that a genesis document or a scenario names: selectors, aggregators, strategies, models and the like.

A new part is one file and one line in its registry. The line says where the part is, ``module:name``, and it is
imported when it is first asked for. A part with parameters is a class or a function whose first argument is annotated
with the frozen dataclass of its parameters (``fl_core.parameters``).

    >>> SELECTORS = PartRegistry("selector", {"top-k": "fl_core.selection.top_k:TopK"})
    >>> SELECTORS.build("top-k", {"k": 5}).params
    TopKParams(k=5)
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any, Generic, TypeVar, get_type_hints

from fl_core.errors import UnknownNameError
from fl_core.parameters import read_parameters
from fl_core.types import JsonScalar

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """What there is of one kind, by name; an unknown name raises ``UnknownNameError``, which lists the known ones.

    Args:
        kind: What the names stand for, for messages.
        entries: The things themselves, or where they are, ``module:name``.
    """

    def __init__(self, kind: str, entries: Mapping[str, T | str]) -> None:
        self.kind, self._entries = kind, entries

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        entry = self._entries[name]
        if not isinstance(entry, str):
            return entry
        module, _, attribute = entry.partition(":")
        found: T = getattr(import_module(module), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class PartRegistry(Registry[Callable[..., T]], Generic[T]):
    """Parts of one kind that are built from parameters."""

    def params_type(self, name: str) -> type[Any]:
        """The dataclass of a part's parameters."""
        part: Any = self[name]
        hints = get_type_hints(part.__init__ if inspect.isclass(part) else part)
        kind: type[Any] = hints[next(iter(inspect.signature(part).parameters))]
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
        part = self[name]
        accepted = inspect.signature(part).parameters
        needed = {argument: value for argument, value in context.items() if argument in accepted}
        return part(self.read_params(name, given), *args, **needed)


def written_params(params: Any) -> dict[str, JsonScalar]:
    """Checked parameters as a person would write them, defaults written out; the inverse of ``read_params``."""
    written: dict[str, JsonScalar] = params.write() if hasattr(params, "write") else asdict(params)
    return written
