"""The registry as everybody asks it: each id once in a process, imports included.

:class:`SchemaRegistry` puts a source (`http`, `file`, or schemas at hand) behind `known`. Threads
may share it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, TypeAlias

from millstream.model.errors import MillstreamError
from millstream.schemas.complete import CompleteSchema, complete
from millstream.schemas.known import Known
from millstream.schemas.schema import (
    InvalidSchemaError,
    Reference,
    Registered,
    Schema,
    SchemaKey,
    UnknownSchemaError,
    named,
)
from millstream.schemas.settings import RegistrySettings


class SchemaSource(Protocol):
    """Something that has schemas. UnknownSchemaError if it has not this one; RegistryAwayError and
    RegistryRefusedError if it cannot be asked.
    """

    def schema(self, key: SchemaKey) -> Schema:
        """Return the schema of an id or a GUID."""

    def version(self, subject: str, version: int | None) -> Registered:
        """Return a version of a subject, None for the newest."""


@dataclass(frozen=True)
class StaticSchemas:
    """Schemas at hand: those of a file, or of an option. Goes to executors as it is."""

    by_key: Mapping[SchemaKey, Schema] = field(default_factory=dict, repr=False)
    by_subject: Mapping[str, Mapping[int, Registered]] = field(default_factory=dict, repr=False)
    place: str = "the schema file"

    def schema(self, key: SchemaKey) -> Schema:
        """Return the schema of an id or a GUID; UnknownSchemaError."""
        if key not in self.by_key:
            raise UnknownSchemaError(f"{named(key)} is not in {self.place}")
        return self.by_key[key]

    def version(self, subject: str, version: int | None) -> Registered:
        """Return a version of a subject, None for the newest; UnknownSchemaError."""
        versions = self.by_subject.get(subject, {})
        if not versions or (version is not None and version not in versions):
            raise UnknownSchemaError(f"{_version(subject, version)} is not in {self.place}")
        return versions[max(versions) if version is None else version]


RegistryPlace: TypeAlias = RegistrySettings | StaticSchemas
"""What executors are told, from which :func:`open_registry` makes a registry there."""


class SchemaRegistry:
    """Schemas by id, GUID or subject, complete with their imports."""

    def __init__(self, source: SchemaSource, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock_s = clock_s
        self._known: Known[CompleteSchema, MillstreamError] = Known()
        self._versions: Known[Registered, MillstreamError] = Known()
        self._lock = threading.Lock()

    def schema(self, key: SchemaKey) -> CompleteSchema:
        """Return the schema of an id or a GUID, asked for once.

        UnknownSchemaError if there is none; InvalidSchemaError if an import of it is not there;
        RegistryAwayError and RegistryRefusedError if the registry cannot be asked.
        """
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                return found
            refusal = self._known.refusal(key, self._clock_s())
            if refusal is not None:
                raise refusal
            try:
                found = self._completed(self._source.schema(key))
            except (UnknownSchemaError, InvalidSchemaError) as error:
                self._known.add_refusal(key, error, self._clock_s())
                raise
            self._known.add(key, found)
            return found

    def newest(self, subject: str) -> tuple[Registered, CompleteSchema]:
        """Return the newest version of a subject, asked for each time; UnknownSchemaError."""
        with self._lock:
            registered = self._source.version(subject, None)
            return registered, self._completed(registered.schema)

    def _completed(self, schema: Schema) -> CompleteSchema:
        try:
            return complete(schema, self._imported)
        except UnknownSchemaError as error:
            raise InvalidSchemaError(f"an import is missing: {error}") from None

    def _imported(self, reference: Reference) -> Schema:
        key = (reference.subject, reference.version)
        found = self._versions.get(key)
        if found is None:
            found = self._source.version(*key)
            self._versions.add(key, found)
        return found.schema


def registry_place(settings: RegistrySettings) -> RegistryPlace:
    """Return what executors are told: of a file its content, which they may not have."""
    if not settings.is_file:
        return settings
    from millstream.schemas.file import read_schemas

    return read_schemas(settings.addresses[0])


def open_registry(place: RegistryPlace) -> SchemaRegistry:
    """Return the registry; one in a process for the same settings, so each id is asked for once."""
    if isinstance(place, StaticSchemas):
        return SchemaRegistry(place)
    return _opened(place)


@lru_cache(maxsize=16)
def _opened(settings: RegistrySettings) -> SchemaRegistry:
    if settings.is_file:
        from millstream.schemas.file import read_schemas

        return SchemaRegistry(read_schemas(settings.addresses[0]))
    from millstream.schemas.http import HttpSource

    return SchemaRegistry(HttpSource(settings))


def _version(subject: str, version: int | None) -> str:
    return f"subject {subject}" if version is None else f"version {version} of subject {subject}"
