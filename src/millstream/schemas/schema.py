"""A registered schema, and what can be wrong with one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from millstream.model.errors import ConfigError, MillstreamError

SchemaKey: TypeAlias = int | UUID
"""What a record names its schema by: its id, or its GUID where it stands in a header."""


class SchemaType(StrEnum):
    """The language of a schema, under the registry's name."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class Reference:
    """An import of a schema: the name that it is imported by, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it is registered: its text, and what that imports."""

    kind: SchemaType
    text: str
    references: Sequence[Reference] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema under a subject."""

    subject: str
    version: int
    id: int
    schema: Schema


class UnknownSchemaError(MillstreamError):
    """The registry has no schema of that id, or no such subject or version. It says so itself."""


class InvalidSchemaError(MillstreamError):
    """A registered schema cannot be used: its text is wrong, or an import of it is not there."""


class RegistryAwayError(MillstreamError):
    """The registry cannot be asked now: no connection, no answer in time, an error of its own.

    It passes by itself. Nothing is known of the schema then, and no record may be judged by it.
    """


class RegistryRefusedError(ConfigError):
    """The registry refuses us, or is none: credentials, certificate, address."""


def named(key: SchemaKey) -> str:
    """Return how texts call a schema's id or GUID."""
    return f"schema id {key}" if isinstance(key, int) else f"schema GUID {key}"
