"""Message classes: typed attributes in the source, slots and a compiled constructor at run time.

A message is a class whose attributes are fields::

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1, ignorable=True)

A field without a default must be given to the constructor. Nothing is compiled when a class is
made: constructors, decoders and encoders are made on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, cast, dataclass_transform

from millstream.protocol.fields import (
    MISSING,
    NO_UUID,
    Buffer,
    Field,
    array,
    bool_,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    records_,
    string,
    struct,
    topic_id_,
    uint16,
    uint32,
    uuid,
)

__all__ = ["NO_UUID", "Buffer", "Field", "Struct", "StructMeta"]


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
        cls.__init__ = compile_constructor(cls)  # type: ignore[method-assign]  # see above
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.FIELDS != self.FIELDS:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS)
        return f"{type(self).__name__}({values})"

    @classmethod
    def shared_default(cls) -> Struct:
        """Return the one instance with nothing but defaults; to assign to its fields is an error.

        Messages carry many structs that are seldom set (``current_leader`` of a fetched
        partition), so absent ones share an instance.
        """
        shared = _SHARED_DEFAULTS.get(cls)
        if shared is None:
            frozen = StructMeta(cls.__name__, (cls,), {"__setattr__": _refuse_assignment})
            made = object.__new__(cast("type[Struct]", frozen))
            for field in cls.FIELDS:
                object.__setattr__(made, field.name, field.default_value())
            # Another thread may have made one meanwhile: all have the first that is whole.
            shared = _SHARED_DEFAULTS.setdefault(cls, made)
        return shared


_SHARED_DEFAULTS: Final[dict[type[Struct], Struct]] = {}


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


def _refuse_assignment(self: Struct, name: str, value: object) -> None:
    raise AttributeError(
        f"{type(self).__name__}.{name}: this default is shared; assign a new {type(self).__name__}"
    )
