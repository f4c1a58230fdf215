"""The same operations under other segment sizes, index intervals and flush policies give the same
reads and look-ups.
"""

from __future__ import annotations

import random

import pytest
from tests.unit.runtime.log_site import LogSite, Outcomes
from tests.unit.runtime.logs.test_replica_mover import values
from tests.unit.storage.support import look_up_time

from millstream.records.batch import Batch
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partition_requests import delete_records_before

WAYS = (
    {"flush_policy": "ack"},
    {"flush_policy": "os", "internal_segment_bytes": "300", "index_interval_bytes": "0"},
    {"flush_policy": "interval", "flush_messages": "5", "internal_segment_bytes": "1500"},
    {"flush_policy": "ack", "segment_index_bytes": "36", "index_interval_bytes": "50"},
    {
        "flush_policy": "os",
        "internal_segment_bytes": "4000",
        "segment_ms": "20",
        "preallocate": "true",
    },
)
BASE_MS = 1_700_000_000_000


def operations(chance: random.Random) -> list[tuple[str, int]]:
    kinds = ["append"] * 12 + ["transaction", "epoch", "delete", "restart", "crash"]
    return [(chance.choice(kinds), chance.randrange(2**30)) for _ in range(80)]


def batch_of(number: int, sequence: int) -> Batch:
    chance = random.Random(number)
    options = BatchOptions()
    if chance.random() < 0.5:
        options = BatchOptions(producer_id=7, producer_epoch=0, base_sequence=sequence)
    builder = BatchBuilder(options)
    for _ in range(chance.randint(1, 4)):
        value = bytes(chance.randrange(256) for _ in range(chance.randint(0, 60)))
        builder.append(BASE_MS + chance.randint(0, 1000), None, value)
    return Batch(memoryview(bytearray(builder.build())))


class Run:
    """One way to keep the log."""

    def __init__(self, way: dict[str, str]) -> None:
        self.site = LogSite()
        self.way = way
        self.sequence = 0
        self.epoch = 0
        self.site.create("t", **way)

    @property
    def partition(self) -> Partition:
        return self.site.partition()

    def act(self, kind: str, number: int) -> None:
        site, partition, outcomes = self.site, self.partition, Outcomes()
        if kind in ("append", "transaction"):
            batch = batch_of(number, self.sequence)
            result = partition.append(batch, BASE_MS)
            if batch.producer_id >= 0:
                self.sequence += batch.count
            partition.wait_for_commit(result.last_offset, outcomes.note())
            site.clock.settle()
        elif kind == "epoch":
            self.epoch += 1
            site.show("t", epoch=self.epoch, **self.way)
        elif kind == "delete":
            log = partition.log
            span = partition.high_watermark - log.log_start_offset
            delete_records_before(partition, log.log_start_offset + number % (span // 4 + 1))
            site.log_manager.delete_old_segments(now_ms=BASE_MS)
        else:
            if kind == "restart":
                site.log_manager.close()
            else:  # a kill: the log start in a checkpoint is all that Kafka keeps of it, too
                site.log_manager.checkpoint_plan()()
            site.restart()

    def seen(self, chance: random.Random) -> list[object]:
        log = self.partition.log
        times = [BASE_MS + chance.randint(-5, 1010) for _ in range(12)]
        return [
            (log.log_start_offset, log.log_end_offset, self.partition.high_watermark),
            values(self.partition),
            [look_up_time(log, time) for time in times],
            # As in Kafka it can lie below a log start inside a segment, which segments decide.
            look_up_time(log, None) if log.log_start_offset == 0 else None,
            [log.epoch_for_offset(o) for o in range(log.log_start_offset, log.log_end_offset)],
            [(p.producer_id, p.last_sequence) for p in log.producers.active()],
        ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_way_reads_the_same(seed: int) -> None:
    script = operations(random.Random(seed))
    runs = [Run(way) for way in WAYS]
    for step, (kind, number) in enumerate(script):
        for run in runs:
            run.act(kind, number)
        if step % 8 == 0 or step == len(script) - 1:
            first, *others = [run.seen(random.Random(step)) for run in runs]
            for way, other in zip(WAYS[1:], others, strict=True):
                assert other == first, (way, step, kind)
    assert max(len(run.partition.log.segment_base_offsets) for run in runs) > 5
