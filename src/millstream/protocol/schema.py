"""The notation of the message tables: field specifiers and the classes they make.

A message is a class whose attributes are fields::

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1, ignorable=True)

``versions`` is ``"9+"``, ``"4-12"`` or ``"3"``; without it the field is there in every version. A
field without a default must be given to the constructor. Nothing is compiled when a class is
made: constructors, decoders and encoders are made on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import (
    Any,
    ClassVar,
    Final,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

from millstream.model.topic import TopicId

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
        if isinstance(self.element, StructMeta):
            return shared_default(self.element) if self.kind == "struct" else []
        return self.factory()

    @property
    def required(self) -> bool:
        """True when the constructor insists on a value."""
        return self.default is MISSING and self.factory is None


Number = TypeVar("Number", int, float)
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
    """A signed integer of two bytes, most significant first, as all below."""
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
    assert isinstance(element, Field | StructMeta)
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


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        bool_,
        int8,
        int16,
        int32,
        int64,
        uint16,
        uint32,
        float64,
        string,
        bytes_,
        records_,
        uuid,
        topic_id_,
        array,
        struct,
    ),
)
class StructMeta(type):
    """Turns the specifiers of a class body into slots and the table ``FIELDS``."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: object
    ) -> StructMeta:
        """Take the fields out of the class body; ``options`` go to ``__init_subclass__``."""
        fields = []
        for attribute, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = attribute
                fields.append(value)
                del namespace[attribute]
        inherited = [field for base in bases for field in getattr(base, "FIELDS", ())]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = (*inherited, *fields)
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=StructMeta):
    """A group of fields. Mutable, compared by value, constructed by keyword."""

    FIELDS: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: object) -> None:
        # The first construction compiles the constructor of the class and steps aside.
        cls = type(self)
        cls.__init__ = compile_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.FIELDS != self.FIELDS:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS)
        return f"{type(self).__name__}({values})"


def compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    """Return ``__init__`` of a class: one keyword parameter and one assignment for each field."""
    parameters = []
    body = []
    names: dict[str, object] = {"MISSING": MISSING}
    for field in cls.FIELDS:
        name = field.name
        value = name
        if field.required:
            parameters.append(name)
        elif field.kind == "array" and field.factory is not None:
            parameters.append(f"{name}=MISSING")
            value = f"[] if {name} is MISSING else {name}"
        else:
            names[f"default_{name}"] = field.default_value()
            parameters.append(f"{name}=default_{name}")
        body.append(f"    self.{name} = {value}\n")
    signature = ", ".join(["self", *(["*", *parameters] if parameters else [])])
    source = f"def __init__({signature}):\n" + ("".join(body) or "    pass\n")
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), names)
    return cast("Callable[..., None]", names["__init__"])


_SHARED_DEFAULTS: Final[dict[type[Struct], Struct]] = {}


def shared_default(cls: type[Struct]) -> Struct:
    """Return the one instance with nothing but defaults; to assign to its fields is an error.

    Messages carry many structs that are seldom set (``current_leader`` of a fetched partition),
    so absent ones share an instance.
    """
    shared = _SHARED_DEFAULTS.get(cls)
    if shared is None:
        frozen = StructMeta(cls.__name__, (cls,), {"__setattr__": _refuse_assignment})
        shared = _SHARED_DEFAULTS[cls] = object.__new__(cast("type[Struct]", frozen))
        for field in cls.FIELDS:
            object.__setattr__(shared, field.name, field.default_value())
    return shared


def _refuse_assignment(self: Struct, name: str, value: object) -> None:
    raise AttributeError(
        f"{type(self).__name__}.{name}: this default is shared; assign a new {type(self).__name__}"
    )
