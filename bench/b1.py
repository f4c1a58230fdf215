"""B1: produce and consume throughput of one broker."""

from __future__ import annotations

from bench.rows import client_rows, fsync_rows
from bench.session import Session
from bench.tables import Section, throughput_table

CONDITIONS = (
    "one broker, replication factor 1, plaintext, no compression, no keys; log and data of all "
    "subjects on one file system; page cache hot, a run's topic deleted after it",
    "raw load: batches encoded beforehand, acks=1, up to 5 requests in flight per connection, one "
    "partition per connection; answers checked for errors, end offsets checked after each run",
    "flush policy: Millstream log.flush.policy=os, Apache Kafka its default (both leave writing "
    "back to the system), except in the rows marked fsync",
    "fetched bytes are dropped by the kernel (MSG_TRUNC), except in the row marked read",
    "C client: librdkafka, one producer or consumer, 4 partitions, linger.ms=5, values of random "
    "bytes, otherwise its defaults; consumer queued.min.messages=1000000, fetch backoff 5 ms",
    "all subjects stay up for the whole run and take turns; medians, ratios pair by pair",
    "raw limit: a loop that receives and writes to one file; a loop that sends a file by sendfile",
)


def run(session: Session) -> list[Section]:
    """Run all rows of B1."""
    stage = session.stage
    raw = session.raw_results()
    fsync = session.run(fsync_rows(stage))
    client = session.run(client_rows(stage))
    return [
        throughput_table("B1 · raw load", raw),
        throughput_table("B1 · raw load, fsync before the answer", fsync),
        throughput_table("B1 · C client", client),
    ]
