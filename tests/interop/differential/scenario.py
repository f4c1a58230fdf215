"""The register of scenarios: a function per scenario, run once per version or case.

::

    @scenario(versions="Produce")
    def one_batch(s: Session, version: int) -> None:
        s.produce(batch("a", "b"), topic=s.topic(), version=version)

    @scenario(cases={"no_key": None, "key": b"k"})
    def keys(s: Session, key: bytes | None) -> None: ...

The module gives the API: ``scenarios/produce.py`` holds ``Produce/...``; its package, the set of
scenarios that it belongs to, which share a broker and its settings. With cases and versions
the function gets (case, version), and the name is ``Produce/keys/no_key/v9``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from tests.interop.differential import apis, scenarios
from tests.interop.differential.session import Session


@dataclass(frozen=True)
class Scenario:
    """One thing that both brokers are asked."""

    api: str
    name: str
    run: Callable[[Session], None]

    def __str__(self) -> str:
        return f"{self.api}/{self.name}"


_REGISTER: Final[dict[tuple[str, str], Scenario]] = {}
"""By package and name."""


def scenario(
    versions: str | Iterable[int] | Callable[..., None] | None = None,
    cases: Mapping[str, Any] | Iterable[str] = (),
) -> Callable[..., Any]:
    """Register a function as one scenario per combination of case and version.

    ``versions`` is the name of an API (all its versions) or the numbers themselves. Without
    arguments the decorator is written bare.
    """
    if callable(versions):
        return scenario()(versions)

    def register(function: Callable[..., None]) -> Callable[..., None]:
        package, _, module = function.__module__.rpartition(".")
        api = "".join(part.capitalize() for part in module.split("_"))
        numbers: list[int | None] = [None]
        if isinstance(versions, str):
            numbers = list(apis.versions(versions))
        elif versions is not None and not callable(versions):
            numbers = list(versions)
        table = cases if isinstance(cases, Mapping) else {each: each for each in cases}
        for label, case in table.items() if table else [(None, None)]:
            for version in numbers:
                _add((package, api), function, label, case, version)
        return function

    return register


def _add(
    place: tuple[str, str],
    function: Callable[..., None],
    label: str | None,
    case: object,
    version: int | None,
) -> None:
    package, api = place
    arguments: list[object] = []
    parts = [function.__name__]
    if label is not None:
        arguments.append(case)
        parts.append(label)
    if version is not None:
        arguments.append(version)
        parts.append(f"v{version}")
    made = Scenario(api, "/".join(parts), lambda session: function(session, *arguments))
    assert (package, str(made)) not in _REGISTER, f"two scenarios called {made}"
    _REGISTER[package, str(made)] = made


def all_scenarios(package: ModuleType = scenarios) -> list[Scenario]:
    """Return every scenario of a package, by API in the order of their definition."""
    for module in sorted(each.name for each in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"{package.__name__}.{module}")
    return [made for (place, _), made in _REGISTER.items() if place == package.__name__]
