"""How a setting is declared, read and checked: one ConfigKey per name, one class per group of them.

A class that derives from :class:`Config` declares its settings as typed attributes::

    class TopicConfig(Config):
        segment_bytes: int = int32("segment.bytes", 1_073_741_824, at_least(1_048_576), "…")

The metaclass takes the declarations out of the class body. A class made with ``final=True`` gets
one slot per setting, so reading ``config.segment_bytes`` costs what reading any attribute costs.
Texts are parsed and refused the way Kafka does it (``ConfigDef.parseType`` and its validators),
error messages included, because clients see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, TypedDict, TypeVar, Unpack, cast

from millstream.config.validators import Validator
from millstream.config.value import ConfigType, Value, format_value, parse_value


class UpdateMode(Enum):
    """Whether a broker setting may change while the broker runs, and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


READ_ONLY: Final = UpdateMode.READ_ONLY
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that a topic setting inherits from; its value times ``factor``, where it is
    not null.
    """

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting. ``inherits`` lists, for a topic setting, the broker settings it falls back to.

    ``effective`` is False for a Kafka setting that is accepted and reported and changes nothing
    here; ``kafka`` is False for a setting that only Millstream has. ``internal`` settings are
    described only where they are set.
    """

    name: str
    type: ConfigType
    default: Value
    validator: Validator | None = None
    doc: str = ""
    mode: UpdateMode = READ_ONLY
    inherits: tuple[Synonym, ...] = ()
    internal: bool = False
    effective: bool = True
    kafka: bool = True

    @property
    def attribute(self) -> str:
        """The attribute that holds the value: the name with underscores for dots."""
        return self.name.replace(".", "_")

    @property
    def is_sensitive(self) -> bool:
        """True for values that are never shown: passwords, and settings of unknown meaning."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def parse(self, text: str) -> Value:
        """Return the value of a text; ConfigError names the setting and the reason."""
        value = parse_value(self.type, self.name, text)
        if self.validator is not None:
            self.validator(self.name, value)
        return value

    def format(self, value: Value) -> str | None:
        """Return the text of a value as Kafka prints it; null stays None."""
        return format_value(value)


class ConfigMeta(type):
    """Takes ConfigKeys out of a class body; a ``final`` class gets a slot for each."""

    keys: Mapping[str, ConfigKey]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, object], final: bool = False
    ) -> ConfigMeta:
        """Make the class; ``final`` makes it one that has instances."""
        keys: dict[str, ConfigKey] = {}
        for base in bases:
            keys |= getattr(base, "keys", {})
        for attribute, value in list(namespace.items()):
            if isinstance(value, ConfigKey):
                assert value.attribute == attribute, f"{attribute} declares {value.name}"
                keys[value.name] = value
                del namespace[attribute]
        slots = namespace.get("__slots__", ())
        assert isinstance(slots, tuple)
        if final:
            slots += tuple(key.attribute for key in keys.values())
        namespace["__slots__"] = slots
        made = super().__new__(mcs, name, bases, namespace)
        made.keys = keys
        return made


class Config(metaclass=ConfigMeta):
    """Settings with their values; immutable. ``overrides`` holds the texts that were set."""

    __slots__ = ()
    keys: ClassVar[Mapping[str, ConfigKey]]
    overrides: Mapping[str, str]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings do not change: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"settings do not change: {name}")

    def __repr__(self) -> str:
        # Names alone: the texts of settings may be secrets.
        return f"{type(self).__name__}({', '.join(self.overrides)})"

    def value(self, name: str) -> Value:
        """Return the value under Kafka's name; KeyError when there is no such setting."""
        return cast(Value, getattr(self, self.keys[name].attribute))

    def same_values(self, other: Config) -> bool:
        """Tell whether every setting has the same value in both."""
        return all(self.value(name) == other.value(name) for name in self.keys)


def fill(config: Config, values: Mapping[str, Value], overrides: Mapping[str, str]) -> None:
    """Give a new instance of a final class its values, by attribute; done once, by its
    constructor.
    """
    write = object.__setattr__
    for attribute, value in values.items():
        write(config, attribute, value)
    write(config, "overrides", overrides)


_INT = TypeVar("_INT", int, int | None)
_TEXT = TypeVar("_TEXT", str, str | None)
_LIST = TypeVar("_LIST", tuple[str, ...], tuple[str, ...] | None)


class Options(TypedDict, total=False):
    """What a declaration may add; see ConfigKey."""

    mode: UpdateMode
    inherits: tuple[Synonym, ...]
    internal: bool
    kafka: bool


def boolean(name: str, default: bool, doc: str, **options: Unpack[Options]) -> bool:
    """Declare a setting that is true or false."""
    return cast(bool, ConfigKey(name, ConfigType.BOOLEAN, default, None, doc, **options))


def int16(
    name: str, default: int, validator: Validator | None, doc: str, **options: Unpack[Options]
) -> int:
    """Declare a 16-bit number."""
    return cast(int, ConfigKey(name, ConfigType.SHORT, default, validator, doc, **options))


def int32(
    name: str, default: _INT, validator: Validator | None, doc: str, **options: Unpack[Options]
) -> _INT:
    """Declare a 32-bit number."""
    return cast(_INT, ConfigKey(name, ConfigType.INT, default, validator, doc, **options))


def int64(
    name: str, default: _INT, validator: Validator | None, doc: str, **options: Unpack[Options]
) -> _INT:
    """Declare a 64-bit number."""
    return cast(_INT, ConfigKey(name, ConfigType.LONG, default, validator, doc, **options))


def double(
    name: str, default: float, validator: Validator | None, doc: str, **options: Unpack[Options]
) -> float:
    """Declare a floating-point number."""
    return cast(float, ConfigKey(name, ConfigType.DOUBLE, default, validator, doc, **options))


def string(
    name: str, default: _TEXT, validator: Validator | None, doc: str, **options: Unpack[Options]
) -> _TEXT:
    """Declare a text."""
    return cast(_TEXT, ConfigKey(name, ConfigType.STRING, default, validator, doc, **options))


def texts(
    name: str, default: _LIST, validator: Validator | None, doc: str, **options: Unpack[Options]
) -> _LIST:
    """Declare a list of texts, separated by commas."""
    return cast(_LIST, ConfigKey(name, ConfigType.LIST, default, validator, doc, **options))


def password(name: str, doc: str, **options: Unpack[Options]) -> str | None:
    """Declare a secret, which is never shown."""
    return cast("str | None", ConfigKey(name, ConfigType.PASSWORD, None, None, doc, **options))


def class_name(name: str, default: _TEXT, doc: str, **options: Unpack[Options]) -> _TEXT:
    """Declare the name of a Java class, which stands for what Millstream does in its place."""
    return cast(_TEXT, ConfigKey(name, ConfigType.CLASS, default, None, doc, **options))
