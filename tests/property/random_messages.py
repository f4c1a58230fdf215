"""Random messages of any class in any version, from a seed: what the codec is tested with."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

import millstream.protocol.messages
from millstream.protocol.api import FIRST_INTERNAL_KEY
from millstream.protocol.message import Message
from millstream.protocol.schema import Field, Struct

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
TEXTS = ("", "a", "access-log", "ключ", "日志", "🙂", "x" * 126, "y" * 127, "z" * 300)

Override = Callable[[Field, Random], Any]
"""Gives the value of a field, or NotImplemented to leave it to chance."""


def all_messages() -> list[type[Message]]:
    """Return every message class there is, in the order of their names."""
    found = set()
    for module_info in pkgutil.iter_modules(millstream.protocol.messages.__path__):
        module = import_module(f"millstream.protocol.messages.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and "VERSIONS" in vars(value):
                found.add(value)
    return sorted(found, key=lambda cls: cls.__name__)


def kafkas_messages() -> list[type[Message]]:
    """Return the message classes that Apache Kafka has too."""
    return [cls for cls in all_messages() if getattr(cls, "API_KEY", 0) < FIRST_INTERNAL_KEY]


def every_version() -> list[tuple[type[Message], int]]:
    """Return every class with every version it has."""
    return [(cls, version) for cls in all_messages() for version in cls.VERSIONS]


def random_struct(
    cls: type[Struct], version: int, random: Random, override: Override | None = None
) -> Any:
    """Return an instance whose fields of this version are random and whose others are default."""
    values = {}
    for field in cls.FIELDS:
        if not field.in_version(version):
            assert not field.required, f"{cls.__name__}.{field.name} has no default"
            continue
        value = NotImplemented if override is None else override(field, random)
        if value is not NotImplemented:
            values[field.name] = value
        elif field.required or random.random() < 0.75:
            values[field.name] = _value(field, version, random, override)
    return cls(**values)


def _value(field: Field, version: int, random: Random, override: Override | None) -> Any:
    if field.nullable_in(version) and random.random() < 0.3:
        return None
    if field.kind == "struct":
        return random_struct(field.element, version, random, override)
    if field.kind == "array":
        return _array(field, version, random, override)
    return _scalar(field.kind, random)


def _array(field: Field, version: int, random: Random, override: Override | None) -> list[Any]:
    element = field.element
    count = random.choice((0, 1, 1, 2, 3))
    if isinstance(element, Field):
        if random.random() < 0.02:
            count = 130
        return [_value(element, version, random, override) for _ in range(count)]
    return [random_struct(element, version, random, override) for _ in range(count)]


def _scalar(kind: str, random: Random) -> Any:
    if kind in RANGES:
        low, high = RANGES[kind]
        return random.choice((low, high, 0, 1, random.randint(low, high)))
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.choice((0.0, -1.5, random.uniform(-1e9, 1e9)))
    if kind == "uuid":
        return random.choice((bytes(16), random.randbytes(16)))
    if kind == "string":
        return random.choice(TEXTS)
    return random.randbytes(random.choice((0, 1, 5, 126, 127, 128, 1500)))
