"""Lazy imports of a package's names, so that a tool loads only what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

_VALUES: Final = "millstream.client.core.values"


def names_of(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's ``__getattr__``: ``modules`` says in which of its modules a name is.

    The values of ``core.values`` are names of both APIs.
    """

    def load(name: str) -> object:
        module = modules.get(name)
        found = import_module(_VALUES if module is None else f"{package}.{module}")
        if module is None and name not in found.__all__:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(found, name)
        return value

    return load
