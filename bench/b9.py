"""B9: recovery after a kill, compaction, and what a look-up costs in a long log."""

from __future__ import annotations

from bench.compaction import compaction, latency
from bench.figures import Figure
from bench.lookup import lookups, lookups_by_time
from bench.recovery import kills, recovery
from bench.session import Session
from bench.tables import Section, figures_table

CONDITIONS = (
    "one broker, replication factor 1, default settings unless told; subjects alternate or follow "
    "one another; median (95th percentile)",
    "recovery: broker.session.timeout.ms of 1 s, for Kafka waits for it; 4 partitions, batches of "
    "16 KB with 1-KB records; SIGKILL, the recovery points "
    "removed so that every byte is read, the logs written back and dropped from the page cache; "
    "from the spawn of the process until ListOffsets tells every end; cat the same way",
    "kill: the same log and load, flush policy: Millstream log.flush.policy=os, Apache Kafka its "
    "default; recovery points are noted every 5 s (log.flush.offset.checkpoint.interval.ms) and "
    "100 MB are written after the last; SIGKILL, the logs written back and dropped from the page "
    "cache",
    "compaction: one partition of random keys in segments of 64 MB, written with "
    "cleanup.policy=delete; from the change to compact until cleaner-offset-checkpoint reaches the "
    "active segment, backoff of 100 ms included; CPU time of the whole process in between",
    "p99: one 100-byte record 200 times a second, acks=1, from when each request was due, while a "
    "stream of 5,000 keyed 1-KB records a second goes to a compacted topic of 2-MB segments, with "
    "log.cleaner.enable true and false; flush policy: Millstream log.flush.policy=os, Apache Kafka "
    "its default",
    "look-up: segments of 8 batches of 4 KB; every file was opened before; one connection, one "
    "request at a time; in process: Log.read of one batch",
    "by time: a log of 1-MB segments with batches of 1 KB and an index entry for each, "
    "LogAppendTime, closed cleanly, dropped from the page cache, opened anew; the steady produce "
    "of p99 for 10 s, then for 10 s beside 20 ListOffsets a second, the last moment first and "
    "random ones after it",
)

PARTS = (
    ("recovery", recovery),
    ("kill", kills),
    ("compaction", compaction),
    ("p99", latency),
    ("look-up", lookups),
    ("by time", lookups_by_time),
)


def run(session: Session) -> list[Section]:
    """Run every part of B9 whose name `--only` leaves, on nodes of its own."""
    figures: list[Figure] = []
    for name, part in PARTS:
        if session.options.only in name:
            found = part(session)
            figures += found
            session.say_figures(name, found)
    return [figures_table("B9 · recovery, compaction and look-up", figures)]
