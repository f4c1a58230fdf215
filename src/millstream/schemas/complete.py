"""A schema together with everything that it imports. Pure.

A reference names a subject and a version; what is registered there may have references itself. The
name of a reference is what the importing text calls it: a full name in Avro, a path in Protobuf, a
URI in JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.schemas.schema import InvalidSchemaError, Reference, Schema, SchemaType

_MOST_IMPORTS: Final = 1_000
_DEEPEST: Final = 100

Lookup = Callable[[Reference], Schema]
"""Returns what a reference names; UnknownSchemaError if there is none."""


@dataclass(frozen=True, slots=True)
class Import:
    """A schema that another one imports, under the name that it is imported by."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class CompleteSchema:
    """A schema that needs nothing further. ``imports`` come before those that import them."""

    kind: SchemaType
    text: str
    imports: Sequence[Import] = field(default=())


def complete(schema: Schema, lookup: Lookup) -> CompleteSchema:
    """Return a schema with its imports.

    InvalidSchemaError where imports go round in a circle, are of another kind, or one name means
    two texts; the errors of ``lookup``.
    """
    imports: dict[str, Import] = {}

    def add(references: Sequence[Reference], inside: tuple[Reference, ...]) -> None:
        for each in references:
            if each in inside:
                raise InvalidSchemaError(f"the schema {each.subject} imports itself")
            if len(inside) >= _DEEPEST:
                raise InvalidSchemaError(f"imports of imports, more than {_DEEPEST} deep")
            found = lookup(each)
            if found.kind is not schema.kind:
                raise InvalidSchemaError(
                    f"the schema imports {each.subject}, which is {found.kind} and not "
                    f"{schema.kind}"
                )
            known = imports.get(each.name)
            if known is not None:
                if known.text != found.text:
                    raise InvalidSchemaError(f"two schemas are imported as {each.name}")
                continue
            add(found.references, (*inside, each))
            imports[each.name] = Import(each.name, found.text)
            if len(imports) > _MOST_IMPORTS:
                raise InvalidSchemaError(f"more than {_MOST_IMPORTS} schemas are imported")

    add(schema.references, ())
    return CompleteSchema(schema.kind, schema.text, tuple(imports.values()))
