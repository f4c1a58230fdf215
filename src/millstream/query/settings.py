"""What a query reads and how: source, formats of the topics, limit on rejected records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import ConfigError, MillstreamError
from millstream.spark.lakehouse.formats import check_options
from millstream.spark.lakehouse.reject_limit import RejectLimit
from millstream.spark.locations.location import Location

AUTO: Final = "auto"
ACCESS_LOG: Final = "access-log"
_OF_LOADS: Final = ("raw", "text", "json", "csv", "avro", "protobuf")
FORMATS: Final = (AUTO, *_OF_LOADS, ACCESS_LOG)


class QueryError(MillstreamError):
    """A query that cannot be answered; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFormat:
    """How the values of a topic are read, as in loads.

    ``kind`` is one of FORMATS; ``auto`` looks at the first records. ``schema_file`` pins the
    columns; a query only reads it.
    """

    kind: str = AUTO
    options: Mapping[str, str] = field(default_factory=dict)
    schema_file: Location | None = None

    def __post_init__(self) -> None:
        if self.kind not in FORMATS:
            raise ConfigError(f"a format is one of {', '.join(FORMATS)}, not {self.kind!r}")
        if self.kind == ACCESS_LOG and "pattern" in self.options:
            raise ConfigError("format access-log has its own pattern; text takes another one")
        if self.kind == AUTO and (self.options or self.schema_file):
            raise ConfigError("options of a format and a schema file need a format")
        if self.kind in _OF_LOADS:
            check_options(self.kind, self.options)
        if self.kind == "raw" and self.schema_file is not None:
            raise ConfigError("format raw has no schema file: its columns are always the same")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """One query's settings.

    ``source`` are options of ``format("millstream")`` without the topics: brokers, log directories,
    isolation. ``registry`` are settings ``schema.registry.…``: where the schemas are that records
    name by id. ``lateness_ms``: no record is stored behind one whose time is later by more than
    this; None: records may be late without limit, and conditions bound times from below only.
    """

    source: Mapping[str, str] = field(repr=False)
    format: TopicFormat = field(default_factory=TopicFormat)
    topic_formats: Mapping[str, TopicFormat] = field(default_factory=dict)
    max_rejects: RejectLimit = field(default_factory=RejectLimit)
    lateness_ms: int | None = None
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)

    def format_of(self, topic: str) -> TopicFormat:
        """Return the format of a topic."""
        return self.topic_formats.get(topic, self.format)
