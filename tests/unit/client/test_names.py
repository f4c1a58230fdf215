"""Types that users of the client need have one place to be imported from."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from typing import Final

import millstream.client
from millstream.client import MillstreamError

MODULES: Final = (
    "millstream.client.errors",
    "millstream.client.core.consumer.errors",
    "millstream.client.core.share.errors",
)


def declared() -> dict[str, str]:
    """Return the names that type checkers see, and where these are."""
    tree = ast.parse(inspect.getsource(millstream.client))
    return {
        alias.name: each.module or ""
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("millstream")
        for alias in each.names
        if alias.name == alias.asname
    }


def test_every_name_is_what_it_says() -> None:
    for name, module in declared().items():
        assert getattr(millstream.client, name) is getattr(import_module(module), name), name


def test_every_error_is_there_and_has_one_base() -> None:
    for module in map(import_module, MODULES):
        for name, found in vars(module).items():
            if inspect.isclass(found) and found.__module__ == module.__name__:
                assert issubclass(found, MillstreamError), name
                assert name in declared(), name
