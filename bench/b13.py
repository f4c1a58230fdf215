"""B13: how a broker grows with partitions and with connections."""

from __future__ import annotations

import resource
from pathlib import Path

from bench.figures import Figure
from bench.idle_connections import idle_connections
from bench.many_partitions import PARTITIONS_PER_TOPIC, open_partitions
from bench.pairs import KAFKA
from bench.session import Session
from bench.tables import Section, figures_table

TOPIC_COUNTS, QUICK_TOPIC_COUNTS = (1, 10, 50), (1,)
MAPPED_FILES_PER_PARTITION = 2

CONDITIONS = (
    "one broker with default settings; subjects alternate; median (95th percentile)",
    "partitions: spread over topics of 1,000, one record in each, clean stop; from the spawn until "
    "every partition answers ListOffsets with its record; resident set right after",
    "Apache Kafka keeps the log of every partition open and maps its two index files: where "
    "vm.max_map_count or the limit of open files is too low for that, it is left out",
    "connections: each asked ApiVersions once and then says nothing; memory: how much the resident "
    "set grew, over their number; produce: one 100-byte record 200 times a second, acks=1; flush "
    "policy: Millstream log.flush.policy=os, Apache Kafka its default",
)


def run(session: Session) -> list[Section]:
    """Run every part of B13 whose name `--only` leaves, on nodes of its own."""
    only = session.options.only
    figures: list[Figure] = []
    counts = QUICK_TOPIC_COUNTS if session.options.quick else TOPIC_COUNTS
    for count in counts:
        name = f"partitions {count * PARTITIONS_PER_TOPIC}"
        if only in name:
            found = open_partitions(session, count, refusals=refusals(count))
            figures += found
            session.say_figures(name, found)
    if only in "connections":
        found = idle_connections(session)
        figures += found
        session.say_figures("connections", found)
    return [figures_table("B13 · partitions and connections", figures)]


def refusals(topics: int) -> dict[str, str]:
    """Return why a subject cannot have so many topics of 1,000 partitions here, if one cannot."""
    partitions = topics * PARTITIONS_PER_TOPIC
    limit = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="utf-8"))
    _, open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    mapped = partitions * MAPPED_FILES_PER_PARTITION
    if mapped >= limit:
        return {KAFKA: f"{mapped} mapped index files, and vm.max_map_count is {limit}"}
    if partitions >= open_files:
        return {KAFKA: f"{partitions} open logs, and a process may have {open_files} files"}
    return {}
