"""Closed segments reach the disk by themselves, beside everything else."""

from __future__ import annotations

import pytest
from tests.unit.runtime.log_site import CountingOffload, LogSite, Outcomes, append, read, write
from tests.unit.runtime.logs.test_log_maintenance import Upkeep

from millstream.model.errors import StorageError
from millstream.runtime.logs import closed_segments
from millstream.runtime.logs.closed_segments import LOGS_OF_A_ROUND
from millstream.runtime.replicas.partition import Partition
from millstream.storage.checkpoint import parse_offsets

SMALL = {"internal_segment_bytes": "600", "index_interval_bytes": "100", "flush_policy": "os"}


def fill(site: LogSite, index: int = 0, records: int = 40) -> list[int]:
    """Append until several segments are closed; return where segments begin."""
    partition = site.partition("t", index)
    append_many(partition, records)
    return partition.log.segment_base_offsets


def recovery_point(site: LogSite, index: int = 0) -> int:
    return site.partition("t", index).log.recovery_point


def test_what_is_closed_is_flushed_and_checkpointed() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    site.create("t", **SMALL)
    bases = fill(site)
    assert recovery_point(site) == 0
    site.clock.advance(1_000)
    assert recovery_point(site) == bases[-1]
    assert list(parse_offsets(upkeep.checkpoint()).values()) == [bases[-1]]


def test_after_a_kill_the_active_segment_alone_is_read() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    site.create("t", **SMALL)
    bases = fill(site)
    active = site.partition().log.local.active.size
    site.clock.advance(1_000)
    site.restart()
    kept = site.partition().log
    assert kept.segment_base_offsets == bases
    assert kept.recovery_report.scanned_bytes == active


def test_a_flush_of_closed_segments_holds_up_nobody() -> None:
    """It has a lane of its own: appends, reads and flushes of other writes go on."""
    upkeep = Upkeep()
    site, outcomes = upkeep.site, Outcomes()
    site.create("t", **SMALL)
    site.create("u", flush_policy="ack")
    fill(site)
    site.offload.held = True
    site.clock.advance(1_000)
    assert "flush closed /logs" in upkeep.offload.lanes
    append(site.partition(), b"more")
    assert read(site.partition(), 40)
    write(site.partition("u"), outcomes, b"acknowledged")
    site.clock.settle()
    site.offload.release("flush /logs")
    assert outcomes == ["ok"]
    assert recovery_point(site) == 0, "the other flush still runs"
    site.offload.release()
    assert recovery_point(site) > 0


def test_one_round_at_a_time_takes_a_few_logs() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    count = LOGS_OF_A_ROUND + 3
    site.create("t", count, **SMALL)
    bases = [fill(site, index)[-1] for index in range(count)]
    site.offload.held = True
    site.clock.advance(5_000)
    assert rounds_of(upkeep.offload) == 1
    site.offload.release("flush closed")
    assert rounds_of(upkeep.offload) == 2
    flushed = [index for index in range(count) if recovery_point(site, index)]
    assert len(flushed) == LOGS_OF_A_ROUND, "the others wait for the next round"
    site.offload.held = False
    site.offload.release()
    site.clock.advance(10_000)
    assert [recovery_point(site, index) for index in range(count)] == bases


def rounds_of(offload: CountingOffload) -> int:
    return offload.lanes.count("flush closed /logs")


def test_a_disk_that_fails_is_found_out() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    site.create("t", **SMALL)
    fill(site)
    site.files.broken = {"sync"}
    site.clock.advance(1_000)
    assert site.failed_directories == ["/logs"]
    site.clock.advance(5_000)
    assert site.failed_directories == ["/logs"]


def test_a_log_that_moved_while_it_waited_is_left_to_the_round_of_its_new_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a disk that fails there would take the directory offline that it came from."""
    monkeypatch.setattr(closed_segments, "LOGS_OF_A_ROUND", 1)
    site = LogSite("/one", "/two")
    site.log_manager.placement.cordoned = frozenset({"/two"})
    site.create("t", 2, **SMALL)
    for index in range(2):
        fill(site, index)
    failures: list[StorageError] = []
    flusher = closed_segments.ClosedSegmentFlusher(
        site.offload, on_flushed=lambda: None, on_storage_error=failures.append
    )
    site.offload.held = True
    flusher.look(site.partitions)
    first, moved = (site.partition("t", index).log for index in range(2))
    moved.local.directory.moved("/two", "t-1")
    site.offload.held = False
    site.offload.release()
    assert first.recovery_point > 0
    assert (moved.recovery_point, failures) == (0, [])


def test_a_log_that_was_cut_meanwhile_is_flushed_again() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    site.create("t", **SMALL)
    bases = fill(site)
    site.offload.held = True
    site.clock.advance(1_000)
    log = site.partition().log
    log.truncation.truncate_to(bases[1] + 1, now_ms=site.clock.now_ms())
    site.offload.held = False
    site.offload.release()
    assert recovery_point(site) == 0
    again = fill(site)
    site.clock.advance(1_000)
    assert recovery_point(site) == again[-1]


def test_nothing_is_flushed_while_a_move_holds_flushes() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    site.create("t", **SMALL)
    bases = fill(site)
    site.partition().flushes.hold()
    site.clock.advance(1_000)
    assert recovery_point(site) == 0
    site.partition().flushes.release()
    site.clock.advance(1_000)
    assert recovery_point(site) == bases[-1]


def test_a_log_that_is_gone_before_its_round_is_left_alone() -> None:
    """Its files have other names by now: to miss them is no error of the disk."""
    upkeep = Upkeep()
    site = upkeep.site
    site.create("t", LOGS_OF_A_ROUND, **SMALL)
    site.create("u", **SMALL)
    for index in range(LOGS_OF_A_ROUND):
        fill(site, index)
    append_many(site.partition("u"))
    gone = site.partition("u").log
    site.offload.held = True
    site.clock.advance(1_000)
    site.delete("u")
    site.offload.held = False
    site.offload.release()
    site.clock.advance(1_000)
    assert gone.recovery_point == 0
    assert site.failed_directories == []


def append_many(partition: Partition, records: int = 40) -> None:
    for each in range(records):
        append(partition, b"%d" % each * 20)
