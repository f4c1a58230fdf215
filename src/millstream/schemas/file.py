"""A file that maps ids to schemas, instead of a registry.

::

    {"schemas": [
      {"id": 7, "file": "order.avsc", "subject": "orders-value", "version": 2,
       "references": [{"name": "com.acme.Address", "subject": "address", "version": 1}]},
      {"id": 3, "schema": {"type": "record", …}, "subject": "address", "version": 1},
      {"id": 9, "type": "PROTOBUF", "file": "order.proto", "guid": "2d6b…"}]}

``type`` is AVRO unless given. The schema is a file, relative to this one, or stands in ``schema``,
as a text or as JSON. ``subject`` (with ``version``, 1 unless given) is needed for what others
import, and for what the columns of a new table come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from millstream.model.errors import ConfigError
from millstream.schemas.registry import StaticSchemas
from millstream.schemas.schema import Reference, Registered, Schema, SchemaKey, SchemaType

_KEYS: Final = frozenset(
    {"id", "guid", "type", "schema", "file", "subject", "version", "references"}
)


def read_schemas(path: str) -> StaticSchemas:
    """Return the schemas of a file; ConfigError names the file and what is wrong with it."""
    file = Path(path).expanduser()
    try:
        value: Any = json.loads(file.read_text(encoding="utf-8"))
        entries = value["schemas"]
        by_key: dict[SchemaKey, Schema] = {}
        by_subject: dict[str, dict[int, Registered]] = {}
        for each in entries:
            _add(each, file.parent, by_key, by_subject)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'{file} is no file of schemas, which is {{"schemas": [{{"id": 7, …}}]}}: {error!r}'
        ) from None
    return StaticSchemas(by_key, by_subject, str(file))


def _add(
    entry: Mapping[str, Any],
    directory: Path,
    by_key: dict[SchemaKey, Schema],
    by_subject: dict[str, dict[int, Registered]],
) -> None:
    unknown = set(entry) - _KEYS
    if unknown:
        raise ConfigError(f"unknown key {sorted(unknown)[0]}; keys are {', '.join(sorted(_KEYS))}")
    number = entry["id"]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 31:
        raise ConfigError(f"a schema id is a number, not {number!r}")
    if number in by_key:
        raise ConfigError(f"there are two schemas of id {number}")
    schema = Schema(
        SchemaType(entry.get("type", "AVRO")),
        _text(entry, directory),
        tuple(
            Reference(each["name"], each["subject"], int(each["version"]))
            for each in entry.get("references", ())
        ),
    )
    by_key[number] = schema
    if "guid" in entry:
        by_key[UUID(entry["guid"])] = schema
    if "subject" in entry:
        subject, version = str(entry["subject"]), int(entry.get("version", 1))
        versions = by_subject.setdefault(subject, {})
        if version in versions:
            raise ConfigError(f"there are two schemas of version {version} of subject {subject}")
        versions[version] = Registered(subject, version, number, schema)


def _text(entry: Mapping[str, Any], directory: Path) -> str:
    if ("schema" in entry) == ("file" in entry):
        raise ConfigError(f"the schema of id {entry['id']} is given as schema or as file, once")
    if "schema" in entry:
        value = entry["schema"]
        return value if isinstance(value, str) else json.dumps(value)
    path = directory / Path(entry["file"]).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"schema id {entry['id']}: {path}: {error.strerror}") from None
