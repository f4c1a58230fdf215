"""Field specifiers: they describe the encoding of the attributes of a message class.

Each takes ``versions`` (``"9+"``, ``"4-12"`` or ``"3"``; without it the field is there in every
version), ``nullable`` (the versions in which it may be null), ``tag`` (a tagged field), a
``default`` and ``ignorable``: whether a value may be dropped where the version has no such field.
Integers are most significant byte first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, overload

from millstream.model.topic import TopicId

if TYPE_CHECKING:
    from millstream.protocol.schema import Struct

LAST_VERSION: Final = 0x7FFF
NO_UUID: Final = bytes(16)
"""The uuid of sixteen zero bytes, Kafka's "none"."""

Buffer: TypeAlias = bytes | bytearray | memoryview
VersionRange: TypeAlias = tuple[int, int]

NEVER: Final[VersionRange] = (1, 0)
"""The range that holds no version."""


class _Missing:
    """The type of "no default was given"."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()


def parse_versions(text: str) -> VersionRange:
    """Return (first, last) of ``"4-12"``, ``"9+"``, ``"3"`` or ``"none"``."""
    if text == "none":
        return NEVER
    if text[-1] == "+":
        return int(text[:-1]), LAST_VERSION
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class Field:
    """One row of a table: a field's kind, its versions, and what it is when absent."""

    __slots__ = (
        "default",
        "element",
        "factory",
        "ignorable",
        "kind",
        "name",
        "nullable",
        "tag",
        "versions",
    )

    def __init__(
        self,
        kind: str,
        versions: str,
        *,
        nullable: str | None = None,
        tag: int | None = None,
        default: object = MISSING,
        factory: Callable[[], object] | None = None,
        ignorable: bool = False,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.element: Field | type[Struct] | None = None
        self.versions = parse_versions(versions)
        self.nullable = NEVER if nullable is None else parse_versions(nullable)
        self.tag = tag
        self.default = default
        self.factory = factory
        self.ignorable = ignorable

    def in_version(self, version: int) -> bool:
        """True when this version carries the field."""
        first, last = self.versions
        return first <= version <= last

    def nullable_in(self, version: int) -> bool:
        """True when the field may be null in this version."""
        first, last = self.nullable
        return first <= version <= last

    def default_value(self) -> object:
        """Return the value of an absent field: a new list, a shared struct, or a constant."""
        if self.factory is None:
            return self.default
        if self.kind == "struct":
            assert isinstance(self.element, type)
            return self.element.shared_default()
        return self.factory()

    @property
    def required(self) -> bool:
        """True when the constructor insists on a value."""
        return self.default is MISSING and self.factory is None


T = TypeVar("T")
S = TypeVar("S", bound="Struct")


def bool_(
    versions: str = "0+",
    *,
    tag: int | None = None,
    default: bool = MISSING,
    ignorable: bool = False,
) -> bool:
    """One byte; everything but 0 is true."""
    return cast(bool, Field("bool", versions, tag=tag, default=default, ignorable=ignorable))


def int8(
    versions: str = "0+", *, tag: int | None = None, default: int = MISSING, ignorable: bool = False
) -> int:
    """A signed byte."""
    return cast(int, Field("int8", versions, tag=tag, default=default, ignorable=ignorable))


def int16(
    versions: str = "0+", *, tag: int | None = None, default: int = MISSING, ignorable: bool = False
) -> int:
    """A signed integer of two bytes."""
    return cast(int, Field("int16", versions, tag=tag, default=default, ignorable=ignorable))


def int32(
    versions: str = "0+", *, tag: int | None = None, default: int = MISSING, ignorable: bool = False
) -> int:
    """A signed integer of four bytes."""
    return cast(int, Field("int32", versions, tag=tag, default=default, ignorable=ignorable))


def int64(
    versions: str = "0+", *, tag: int | None = None, default: int = MISSING, ignorable: bool = False
) -> int:
    """A signed integer of eight bytes."""
    return cast(int, Field("int64", versions, tag=tag, default=default, ignorable=ignorable))


def uint16(
    versions: str = "0+", *, tag: int | None = None, default: int = MISSING, ignorable: bool = False
) -> int:
    """An unsigned integer of two bytes."""
    return cast(int, Field("uint16", versions, tag=tag, default=default, ignorable=ignorable))


def uint32(
    versions: str = "0+", *, tag: int | None = None, default: int = MISSING, ignorable: bool = False
) -> int:
    """An unsigned integer of four bytes."""
    return cast(int, Field("uint32", versions, tag=tag, default=default, ignorable=ignorable))


def float64(
    versions: str = "0+",
    *,
    tag: int | None = None,
    default: float = MISSING,
    ignorable: bool = False,
) -> float:
    """An IEEE 754 double of eight bytes."""
    return cast(float, Field("float64", versions, tag=tag, default=default, ignorable=ignorable))


def string(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: str | None = MISSING,
    ignorable: bool = False,
) -> str:
    """UTF-8 text of up to 32,767 bytes."""
    field = Field(
        "string", versions, nullable=nullable, tag=tag, default=default, ignorable=ignorable
    )
    return cast(str, field)


def bytes_(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: bytes | None = MISSING,
    ignorable: bool = False,
) -> bytes:
    """Bytes; a decoded value is a copy."""
    field = Field(
        "bytes", versions, nullable=nullable, tag=tag, default=default, ignorable=ignorable
    )
    return cast(bytes, field)


def records_(
    versions: str = "0+", *, nullable: str | None = None, default: Buffer | None = MISSING
) -> memoryview:
    """Record batches. They are sent by reference, and a decoded value is a view of the frame."""
    return cast(memoryview, Field("records", versions, nullable=nullable, default=default))


def uuid(
    versions: str = "0+",
    *,
    tag: int | None = None,
    default: bytes = MISSING,
    ignorable: bool = False,
) -> bytes:
    """Sixteen raw bytes."""
    return cast(bytes, Field("uuid", versions, tag=tag, default=default, ignorable=ignorable))


def topic_id_(
    versions: str = "0+",
    *,
    tag: int | None = None,
    default: TopicId = MISSING,
    ignorable: bool = False,
) -> TopicId:
    """The uuid of a topic."""
    return cast(TopicId, Field("uuid", versions, tag=tag, default=default, ignorable=ignorable))


@overload
def array(
    element: type[S],
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: None = ...,
    factory: Callable[[], list[S]] | None = None,
    ignorable: bool = False,
) -> list[S]: ...


@overload
def array(
    element: T,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: None = ...,
    factory: Callable[[], list[T]] | None = None,
    ignorable: bool = False,
) -> list[T]: ...


def array(
    element: object,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: None = MISSING,
    factory: Callable[[], object] | None = None,
    ignorable: bool = False,
) -> object:
    """Give a list of structs, ``array(FetchTopic)``, or of one specifier, ``array(int32())``."""
    field = Field(
        "array",
        versions,
        nullable=nullable,
        tag=tag,
        default=default,
        factory=factory,
        ignorable=ignorable,
    )
    assert isinstance(element, Field | type)
    field.element = cast("Field | type[Struct]", element)
    return field


def struct(
    element: type[S],
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: None = MISSING,
    factory: Callable[[], S] | None = None,
    ignorable: bool = False,
) -> S:
    """Give a struct inside a struct; its default, made by ``factory``, is shared and frozen."""
    field = Field(
        "struct",
        versions,
        nullable=nullable,
        tag=tag,
        default=default,
        factory=factory,
        ignorable=ignorable,
    )
    field.element = element
    return cast(S, field)
