"""The topics that a query names, as tables; a context manager that closes their connections."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from millstream.model.errors import ConfigError, ErrorCode, KafkaError
from millstream.query.formats import choose_format
from millstream.query.pushdown import TopicEnds
from millstream.query.settings import QueryError, QuerySettings
from millstream.query.table_names import TableNames
from millstream.query.topic_table import TopicTable
from millstream.spark.lakehouse.registered_columns import place_of_settings
from millstream.spark.options import Subscribe, SubscribePattern, load_source, parse_options
from millstream.spark.topics import open_topics

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OF_A_SUBSCRIPTION: Final = frozenset({"assign", "subscribe", "subscribepattern"})


class Tables:
    """What a query reads: each topic as it is now."""

    def __init__(self, settings: QuerySettings) -> None:
        """Connect. ConfigError for options that are wrong, ConnectionFailedError."""
        chosen = [name for name in settings.source if name.lower() in _OF_A_SUBSCRIPTION]
        if chosen:
            raise ConfigError(f"option {chosen[0]} is not for queries: they name their topics")
        self._settings = settings
        self._options = parse_options({**load_source(settings.source), "subscribePattern": ".*"})
        self._registry = place_of_settings(settings.registry)
        self._topics = open_topics(self._options)
        self.tables: dict[str, TopicTable] = {}

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of scans and of planning."""
        for table in self.tables.values():
            table.close()
        self._topics.close()

    def add(self, named: TableNames) -> None:
        """Add the topics among the names; QueryError for one that is neither a topic nor a file."""
        for name in named.names:
            if _TOPIC_NAME.fullmatch(name) and self._is_topic(name):
                self._add(name)
            elif name.lower() not in named.defined and not _is_file(name):
                self._refuse(name)

    def _add(self, name: str) -> None:
        same = [each for each in self.tables if each.lower() == name.lower()]
        if same:
            raise QueryError(
                f"topics {same[0]} and {name} differ in case alone, which SQL does not tell apart"
            )
        topics = self._topics
        subscription = Subscribe((name,))
        options = replace(self._options, subscription=subscription)
        topic_partitions = topics.topic_partitions(subscription)
        earliest = topics.earliest(topic_partitions)
        committed = options.kafka.read_committed
        latest = topics.latest(topic_partitions, read_committed=committed)
        try:
            wanted = self._settings.format_of(name)
            chosen = choose_format(wanted, topics, options, self._registry)
        except ConfigError as error:
            raise QueryError(f"topic {name}: {error}") from error
        self.tables[name] = TopicTable(
            name=name,
            ends=TopicEnds(earliest, latest),
            options=options,
            topics=topics,
            format=chosen,
            settings=self._settings,
        )

    def _is_topic(self, name: str) -> bool:
        try:
            return bool(self._topics.topic_partitions(Subscribe((name,))))
        except ConfigError:
            return False
        except KafkaError as error:
            if error.error is ErrorCode.INVALID_TOPIC_EXCEPTION:
                return False
            raise

    def _refuse(self, name: str) -> None:
        found = self._topics.topic_partitions(SubscribePattern(".*"))
        topics = sorted({each.topic for each in found})
        raise QueryError(f"there is no topic {name}{_near(name, topics)}")


def _near(name: str, topics: Iterable[str]) -> str:
    names = list(topics)
    by_lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    if near:
        return f"; did you mean {' or '.join(by_lower[each] for each in near)}?"
    if not names:
        return "; there are no topics"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"; topics: {', '.join(names[:5])}{more}"


def _is_file(name: str) -> bool:
    return "://" in name or "*" in name or "/" in name or os.path.exists(name)
