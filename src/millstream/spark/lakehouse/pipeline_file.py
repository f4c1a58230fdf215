"""``pipeline.toml``: several loads in one file. Pure.

::

    [source]                              # the default of every load
    "kafka.bootstrap.servers" = "127.0.0.1:9092"

    [load.access]                         # the name is the app id
    topic = "access"
    to = "delta:lake/access"
    format = "text"
    format_options = { pattern = "access_log" }
    event_time = "time"
    follow = true
    freshness = "5s"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from millstream.config.quantities import parse_duration_ms, parse_size
from millstream.model.errors import ConfigError
from millstream.schemas.settings import URL as REGISTRY_URL
from millstream.spark.lakehouse.partitioning import parse_partition_by
from millstream.spark.lakehouse.reject_limit import parse_reject_limit
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.sorting import parse_sort_by
from millstream.spark.lakehouse.table import parse_table_name
from millstream.spark.locations.location import Location, parse_location
from millstream.spark.options import check_no_end, parse_options

_TEXT: Final = (str,)
_QUANTITY: Final = (str, int)
_KEYS: Final[Mapping[str, tuple[type, ...]]] = {
    "topic": _TEXT,
    "pattern": _TEXT,
    "to": _TEXT,
    "format": _TEXT,
    "format_options": (dict,),
    "mode": _TEXT,
    "key": (str, list),
    "registry": (dict,),
    "schema": _TEXT,
    "event_time": _TEXT,
    "partition_column": _TEXT,
    "partition_by": _TEXT,
    "sort_by": _TEXT,
    "follow": (bool,),
    "freshness": _QUANTITY,
    "file_size": _QUANTITY,
    "batch_size": _QUANTITY,
    "dead_letters": (bool,),
    "max_rejects": _QUANTITY,
    "dead_letters_topic": _TEXT,
    "maintain_every": _QUANTITY,
    "group": _TEXT,
    "source": (dict,),
    "storage_options": (dict,),
    "table_properties": (dict,),
}
"""Every key of a load, and its TOML type."""
_TOML_TYPES: Final = {
    str: "a text",
    int: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def read_pipeline(
    path: Path, defaults: Mapping[str, str] = {}, registry: Mapping[str, str] = {}
) -> dict[str, LoadSettings]:
    """Return the loads of a file by name; ConfigError names the file, the load and the key.

    ``defaults`` are options of the source, and ``registry`` settings of the schema registry, that
    count where the file does not give them.

    Paths in it are relative to the file.
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    loads = content.get("load")
    unknown = set(content) - {"load", "registry", "source"}
    if unknown:
        raise ConfigError(
            f"{path}: unknown table [{sorted(unknown)[0]}]; tables: registry, source, load.*"
        )
    if not isinstance(loads, dict) or not loads:
        raise ConfigError(f"{path}: no [load.NAME]")
    common = content.get("source", {})
    if not isinstance(common, dict):
        raise ConfigError(f"{path}: source has to be a table: [source]")
    schemas = content.get("registry", {})
    if not isinstance(schemas, dict):
        raise ConfigError(f"{path}: registry has to be a table: [registry]")
    schemas = {**registry, **_registry(_texts(schemas), path.parent)}
    found = {}
    for name, value in loads.items():
        try:
            settings = _load(name, value, {**defaults, **common}, path.parent)
            found[name] = replace(settings, registry={**schemas, **settings.registry})
        except ConfigError as error:
            raise ConfigError(f"{path}: load.{name}: {error}") from None
    _check_tables(path, found)
    return found


def _load(
    name: str, value: Mapping[str, Any], common: Mapping[str, Any], base: Path
) -> LoadSettings:
    _check_keys(value)
    if ("topic" in value) == ("pattern" in value):
        raise ConfigError("exactly one of topic and pattern is needed")
    if "to" not in value:
        raise ConfigError("to is missing: the table, such as delta:PATH")
    subscribed = (
        {"subscribe": value["topic"]}
        if "topic" in value
        else {"subscribePattern": value["pattern"]}
    )
    source = {**_texts(common), **_texts(value.get("source", {})), **subscribed}
    storage_options = _texts(value.get("storage_options", {}))
    settings = LoadSettings(
        source=source,
        table=parse_table_name(value["to"], base, storage_options),
        app_id=name,
        format=value.get("format", "raw"),
        format_options=_paths(_texts(value.get("format_options", {})), base),
        mode=value.get("mode", "append"),
        key=_names(value.get("key", [])),
        registry=_registry(_texts(value.get("registry", {})), base),
        schema_file=parse_location(value["schema"], base, storage_options)
        if "schema" in value
        else None,
        event_time=value.get("event_time"),
        partition_column=value.get("partition_column", "date"),
        partition_by=parse_partition_by(value["partition_by"]) if "partition_by" in value else (),
        sort_by=parse_sort_by(value["sort_by"]) if "sort_by" in value else (),
        table_properties=_texts(value.get("table_properties", {})),
        follow=value.get("follow", False),
        dead_letters=value.get("dead_letters", True),
        dead_letters_topic=value.get("dead_letters_topic"),
        group_id=value.get("group"),
    )
    if "freshness" in value:
        settings = replace(
            settings, freshness_ms=_read(parse_duration_ms, "freshness", value["freshness"])
        )
    if "maintain_every" in value:
        every_ms = _read(parse_duration_ms, "maintain_every", value["maintain_every"])
        settings = replace(settings, maintain_every_ms=every_ms)
    if "max_rejects" in value:
        try:
            limit = parse_reject_limit(str(value["max_rejects"]))
        except ConfigError as error:
            raise ConfigError(f"max_rejects: {error}") from None
        settings = replace(settings, max_rejects=limit)
    if "file_size" in value:
        settings = replace(settings, file_bytes=_read(parse_size, "file_size", value["file_size"]))
    if "batch_size" in value:
        settings = replace(
            settings, batch_bytes=_read(parse_size, "batch_size", value["batch_size"])
        )
    check_no_end(parse_options(source, streaming=True))
    return settings


def _check_keys(value: object) -> None:
    if not isinstance(value, dict):
        raise ConfigError("a load is a table: [load.NAME]")
    for key, each in value.items():
        if key not in _KEYS:
            raise ConfigError(f"unknown key {key}; keys are {', '.join(sorted(_KEYS))}")
        if type(each) not in _KEYS[key]:
            wanted = " or ".join(_TOML_TYPES[kind] for kind in _KEYS[key])
            raise ConfigError(f"{key} has to be {wanted}, not {each!r}")


def _names(value: str | list[Any]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _texts(value: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(each).lower() if isinstance(each, bool) else str(each)
        for name, each in value.items()
    }


def _paths(options: dict[str, str], base: Path) -> dict[str, str]:
    if "definition" in options:
        options["definition"] = str(base / Path(options["definition"]).expanduser())
    if "schema_id" in options:
        parts = [part.partition("=") for part in options["schema_id"].split(",")]
        options["schema_id"] = ",".join(
            number + equals + (str(base / Path(path.strip()).expanduser()) if equals else "")
            for number, equals, path in parts
        )
    return options


def _registry(settings: dict[str, str], base: Path) -> dict[str, str]:
    url = settings.get(REGISTRY_URL)
    if url is not None and "://" not in url:
        settings[REGISTRY_URL] = str(base / Path(url).expanduser())
    return settings


def _read(parse: Callable[[str], int], key: str, text: object) -> int:
    try:
        return parse(str(text))
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def _check_tables(path: Path, loads: Mapping[str, LoadSettings]) -> None:
    """Refuse two loads of different kinds or columns into one directory."""
    seen: dict[Location, str] = {}
    for name, settings in loads.items():
        other = seen.setdefault(settings.table.path, name)
        if other != name and loads[other].table.kind != settings.table.kind:
            raise ConfigError(f"{path}: load.{name} and load.{other} name one directory")
