"""How settings are declared, and how their values are read: numbers, texts, choices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, field
from typing import Any, Final, cast

from millstream.model.errors import ConfigError

Reader = Callable[[object], object]
"""Converts the user's value to the typed value; raises ValueError or ConfigError."""

INT_MAX: Final = 2**31 - 1
"""The largest value of a time field in a request."""
LONG_MAX: Final = 2**63 - 1
_YES: Final = {"true": True, "false": False}


def setting(reader: Reader, default: Any = MISSING, *, is_secret: bool = False) -> Any:
    """Declare a setting: how it is read, and its default. A secret is in no text and no error."""
    metadata = {"reader": reader, "is_secret": is_secret}
    return field(default=default, repr=not is_secret, metadata=metadata)


def integer(least: int = 0, most: int = INT_MAX) -> Reader:
    """Read a whole number within bounds."""

    def read(value: object) -> int:
        number = value
        if isinstance(value, str):
            number = _parsed(int, value, "it takes a whole number")
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int):
            raise ConfigError("it takes a whole number")
        if not least <= number <= most:
            raise ValueError(f"it takes {least} to {most}")
        return number

    return read


def _parsed(kind: type[int | float], value: str, otherwise: str) -> int | float:
    """Read a number from text; ValueError with a sentence where the text is none."""
    try:
        return kind(value.strip())
    except ValueError:
        raise ValueError(otherwise) from None


def milliseconds(least: float = 0, most: int = LONG_MAX) -> Reader:
    """Read a number of milliseconds, fractions allowed."""

    def read(value: object) -> float:
        number = value
        if isinstance(value, str):
            number = _parsed(float, value, "it takes a number of milliseconds")
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError("it takes a number of milliseconds")
        if not least <= number <= most:
            raise ValueError(f"it takes {least} to {most} ms")
        return number

    return read


def boolean(value: object) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _YES:
        return _YES[value.strip().lower()]
    raise ValueError("it takes true or false")


def text(value: object) -> str:
    """Read text."""
    if not isinstance(value, str):
        raise ConfigError("it takes text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError("it takes text that can be written as UTF-8")
    return value


def optional_text(value: object) -> str | None:
    """Read text or None."""
    return None if value is None else text(value)


def optional_name(value: object) -> str | None:
    """Read text that is not empty, or None."""
    if value == "":
        raise ValueError("it takes a name that is not empty")
    return optional_text(value)


def choice(*allowed: str) -> Reader:
    """Read one of some words, ignoring case."""

    def read(value: object) -> str:
        word = text(value).lower()
        if word not in allowed:
            raise ValueError(f"it takes {', '.join(allowed)}")
        return word

    return read


def function(value: object) -> object:
    """Read a callable or None."""
    if value is not None and not callable(value):
        raise ValueError("it takes a function")
    return value


def tracing(value: object) -> object:
    """Read True, a provider of tracers, or nothing; ``"false"`` and ``"true"`` as in a file."""
    if value is None or hasattr(value, "get_tracer"):
        return value
    try:
        return boolean(value) or None
    except ValueError:
        raise ValueError("it takes true, false or a TracerProvider") from None


def serializer(value: object) -> object:
    """Read a serializer or deserializer: a callable of topic and data, or of the data alone.

    Returns one of topic and data, or None. A callable that must have two arguments, or takes any
    number, is given the topic; everything else is called with the data, as ``json.loads`` and
    ``str.encode`` want to be.
    """
    chosen = function(value)
    if chosen is None or _takes_topic(cast("Callable[..., object]", chosen)):
        return chosen
    return _OfData(cast("Callable[[object], object]", chosen))


class _OfData:
    """A serializer that is not asked with the topic."""

    __slots__ = ("_convert",)

    def __init__(self, convert: Callable[[object], object]) -> None:
        self._convert = convert

    def __call__(self, topic: str, data: object) -> object:
        return self._convert(data)


def _takes_topic(convert: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(convert).parameters.values()
    except (TypeError, ValueError):  # a type of C, such as str or int
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [
        each for each in parameters if each.kind in positional and each.default is each.empty
    ]
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    return len(required) >= 2 or (takes_any and len(required) != 1)
