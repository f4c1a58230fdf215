"""The options of `format("millstream")` for writing, and the columns that rows must have.

Columns, as those of the stock connector: ``value`` (string or binary) has to be there; ``key``
(string or binary), ``headers`` (array<struct<key string, value binary>>), ``topic`` (string) and
``partition`` (int) may. The option ``topic`` replaces the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql.types import StructType

from millstream.client.core.producer.core import read_producer_settings
from millstream.client.core.settings import ProducerSettings
from millstream.model.errors import ConfigError
from millstream.spark.locations.location import Location, parse_location
from millstream.spark.options import check_known
from millstream.spark.schema import COLUMN_TYPES, HEADERS
from millstream.spark.security_options import security_settings

_KAFKA_PREFIX: Final = "kafka."
_TEXT: Final = ("string", "binary")
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    HEADERS: (COLUMN_TYPES[HEADERS],),
}
_FIXED: Final[Mapping[str, str]] = {
    "key.serializer": "keys are binary or text",
    "value.serializer": "values are binary or text",
    "enable.idempotence": "the sink is idempotent always",
    "interceptor.classes": "the sink runs no interceptors",
    "partitioner.class": "the column partition says where a row goes",
    "transactional.id": "the sink names its transactions itself",
}
_KNOWN: Final = frozenset(each.name.replace("_", ".") for each in fields(ProducerSettings))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a write."""

    producer: Mapping[str, str] = field(repr=False)
    """Settings of the producer, under Kafka's names; they hold secrets."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those of them that protect connections."""
    topic: str | None = None
    exactly_once: bool = True
    """A micro-batch is written in transactions, and once."""
    state_directory: Location | None = None
    """The directory of a streaming query's journal, inside its checkpoint."""
    columns: frozenset[str] = field(default_factory=frozenset)


def parse_sink_options(
    options: Mapping[str, str], schema: StructType, *, streaming: bool
) -> SinkOptions:
    """Read the options; ConfigError names the option or the column that is wrong."""
    given = {name.lower(): text for name, text in options.items()}
    check_known(options, {"exactlyonce": "exactlyOnce"})
    producer = _producer_settings(options)
    security = security_settings(_of_kafka(options))
    producer |= security
    topic = given.get("topic", "").strip() or None
    exactly_once = given.get("exactlyonce", "true").strip().lower()
    if exactly_once not in ("true", "false"):
        raise ConfigError(f"option exactlyOnce takes true or false, not {exactly_once!r}")
    once = streaming and exactly_once == "true"
    if once and producer.get("acks", "all").strip() not in ("all", "-1"):
        raise ConfigError(
            f"option kafka.acks={producer['acks']} cannot be exactly once: it takes all "
            "(option exactlyOnce=false does without)"
        )
    _check_producer(producer, once=once)
    return SinkOptions(
        producer=producer,
        security=security,
        topic=topic,
        exactly_once=once,
        state_directory=_state_directory(given) if once else None,
        columns=_check_columns(schema, topic),
    )


def _of_kafka(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name.lower().removeprefix(_KAFKA_PREFIX): text
        for name, text in options.items()
        if name.lower().startswith(_KAFKA_PREFIX)
    }


def _producer_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the producer; those that only the Java client has are ignored."""
    found: dict[str, str] = {}
    for name, text in options.items():
        if not name.lower().startswith(_KAFKA_PREFIX):
            continue
        setting = name.lower().removeprefix(_KAFKA_PREFIX)
        if setting in _FIXED:
            raise ConfigError(f"option {name} is not supported: {_FIXED[setting]}")
        if setting in _KNOWN:
            found[setting] = text.strip()
    if not found.get("bootstrap.servers"):
        raise ConfigError("option kafka.bootstrap.servers is missing")
    return found


def _check_producer(producer: Mapping[str, str], *, once: bool) -> None:
    """Raise ConfigError on the driver for settings that each task's producer would refuse."""
    idempotent = {"enable.idempotence": "true"} if once else {}
    try:
        read_producer_settings({**producer, **idempotent}, {})
    except ConfigError as error:
        raise ConfigError(f"option kafka.{error}") from None


def _check_columns(schema: StructType, topic: str | None) -> frozenset[str]:
    found = {each.name: each.dataType.simpleString() for each in schema.fields}
    if "value" not in found:
        raise ConfigError("rows need a column value")
    if topic is None and "topic" not in found:
        raise ConfigError("rows need a column topic, or the write the option topic")
    for name, kind in found.items():
        expected = _TYPES.get(name)
        if expected is not None and kind not in expected:
            raise ConfigError(f"column {name} is {kind}; it has to be {' or '.join(expected)}")
    return frozenset(found) & frozenset(_TYPES)


def _state_directory(given: Mapping[str, str]) -> Location:
    """Return a directory inside the query's checkpoint: a local or mounted one, or one in an object
    store, whose keys are those of the environment.
    """
    checkpoint = given.get("checkpointlocation", "").strip()
    if not checkpoint:
        raise ConfigError(
            "option checkpointLocation is missing: a replayed micro-batch is known by it "
            "(option exactlyOnce=false does without)"
        )
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file") and "://" not in checkpoint:
        raise ConfigError(f"option checkpointLocation: {checkpoint} names no bucket")
    # An executor's working directory is another one: the path is made absolute here.
    path = unquote(parts.path) if parts.scheme == "file" else checkpoint
    try:
        return parse_location(path) / "millstream-sink"
    except ConfigError as error:
        raise ConfigError(
            f"option checkpointLocation: {error}; exactly once needs a directory that the "
            f"driver can write "
            "to (option exactlyOnce=false does without)"
        ) from None
