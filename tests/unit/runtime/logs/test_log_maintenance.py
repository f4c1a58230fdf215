"""The duties that come round: each at its time, off the loop where it takes long."""

from __future__ import annotations

import pytest
from tests.unit.runtime.log_site import CountingOffload, LogSite, append

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.runtime.logs.log_maintenance import MAX_PRODUCERS, LogMaintenance
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.storage.checkpoint import parse_offsets

HOUR_MS = 3_600_000


class Upkeep:
    """A site with its timers."""

    def __init__(self, max_producers: int = MAX_PRODUCERS, **settings: str) -> None:
        self.offload = CountingOffload()
        self.site = LogSite(offload=self.offload)
        self.config = DynamicConfig(
            BrokerConfig({key.replace("_", "."): text for key, text in settings.items()})
        )
        self.maintenance = LogMaintenance(
            self.site.clock,
            self.site.offload,
            self.config,
            self.site.log_manager,
            self.site.partitions,
            max_producers=max_producers,
        )
        self.maintenance.start()

    def starts(self) -> str:
        file = self.site.files.open("/logs/log-start-offset-checkpoint")
        return file.read_at(0, file.size()).decode()

    def checkpoint(self) -> str:
        path = "/logs/recovery-point-offset-checkpoint"
        if not self.site.files.exists(path):
            return ""
        file = self.site.files.open(path)
        return file.read_at(0, file.size()).decode()


def segments(site: LogSite) -> list[int]:
    return site.partition().log.segment_base_offsets


def test_retention_comes_first_soon_after_the_start() -> None:
    """A broker that is restarted often would never get to it."""
    upkeep = Upkeep(log_retention_check_interval_ms="60000", log_initial_task_delay_ms="2000")
    site = upkeep.site
    site.create(retention_ms="1000", flush_policy="os")
    append(site.partition(), b"old")
    site.clock.advance(2000)
    assert site.partition().log.log_start_offset == 1


@pytest.mark.parametrize("kind", ["", "start_"])
def test_checkpoints_come_as_often_as_the_most_frequent(kind: str) -> None:
    upkeep = Upkeep(**{f"log_flush_{kind}offset_checkpoint_interval_ms": "3000"})
    upkeep.site.create(flush_policy="os")
    append(upkeep.site.partition(), b"a")
    upkeep.site.clock.advance(2_999)
    assert not upkeep.checkpoint()
    upkeep.site.clock.advance(1)
    assert upkeep.checkpoint()


def test_retention_comes_round_at_its_interval() -> None:
    upkeep = Upkeep(log_retention_check_interval_ms="60000", log_initial_task_delay_ms="60000")
    site = upkeep.site
    site.create(retention_ms="1000", flush_policy="os")
    append(site.partition(), b"old")  # its timestamp lies in the past
    site.clock.advance(59_999)
    assert site.partition().log.log_start_offset == 0
    site.clock.advance(1)
    assert site.partition().log.log_start_offset == 1
    assert segments(site) == [1]


def test_an_interval_that_changes_holds_from_the_next_round_on() -> None:
    upkeep = Upkeep(log_retention_check_interval_ms="60000")
    site = upkeep.site
    site.create(retention_ms="1000", flush_policy="os")
    upkeep.config.update(
        of_all_brokers={"log.retention.check.interval.ms": "1000"}, of_this_broker={}
    )
    site.clock.advance(60_000)
    append(site.partition(), b"old")
    site.clock.advance(1000)
    assert site.partition().log.log_start_offset == 1


def test_deleted_files_are_removed_after_the_delay_and_off_the_loop() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    site.create("t", file_delete_delay_ms="5000")
    site.delete("t")
    site.clock.advance(4000)
    (left,) = [e.name for e in site.files.scan("/logs") if e.name.endswith("-delete")]
    site.offload.held = True
    site.clock.advance(2000)
    assert site.files.exists(f"/logs/{left}")
    site.offload.release("removal")
    assert not site.files.exists(f"/logs/{left}")


def test_a_removal_that_fails_takes_the_directory_offline_and_the_rest_goes_on() -> None:
    site = LogSite("/one", "/two")
    maintenance = LogMaintenance(
        site.clock, site.offload, DynamicConfig(BrokerConfig()), site.log_manager, site.partitions
    )
    maintenance.start()
    site.create("t", 2, file_delete_delay_ms="0")
    site.delete("t")
    site.files.broken, site.files.below = {"remove"}, "/one"
    site.clock.advance(1000)
    assert site.failed_directories == ["/one"]
    assert [e.name for e in site.files.scan("/two") if e.name.endswith("-delete")] == []


def test_checkpoints_are_written_off_the_loop_and_one_at_a_time() -> None:
    upkeep = Upkeep(log_flush_offset_checkpoint_interval_ms="60000")
    site = upkeep.site
    site.create()
    append(site.partition(), b"a", b"b")
    site.clock.settle()
    site.offload.held = True
    site.clock.advance(60_000)
    assert upkeep.checkpoint() == ""
    append(site.partition(), b"c")
    site.clock.advance(120_000)
    assert upkeep.offload.lanes.count("checkpoint") == 1
    site.offload.release("checkpoint")
    text = upkeep.checkpoint()
    assert parse_offsets(text) == {site.partition().topic_partition: 2}
    site.offload.release()
    site.clock.advance(60_000)
    site.offload.release()
    assert parse_offsets(upkeep.checkpoint()) == {site.partition().topic_partition: 3}


def test_a_topic_made_anew_does_not_begin_where_the_one_before_did() -> None:
    upkeep = Upkeep(log_flush_offset_checkpoint_interval_ms="60000")
    site = upkeep.site
    site.create()
    append(site.partition(), b"a", b"b", b"c", b"d")
    site.clock.settle()
    delete_records_before(site.partition(), 3)
    site.clock.advance(60_000)
    site.delete()
    site.create(topic_id=b"another topic id")
    site.clock.settle()
    append(site.partition(), b"e")
    site.clock.settle()
    assert site.partition().high_watermark == 1
    site.restart()
    assert site.partition().log.log_start_offset == 0
    assert site.partition().log.log_end_offset == 1


def test_what_a_kill_left_in_the_checkpoints_of_a_deleted_topic_goes_with_the_start() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    site.create()
    append(site.partition(), b"a", b"b", b"c", b"d")
    site.clock.settle()
    delete_records_before(site.partition(), 3)
    site.log_manager.checkpoint_plan()()
    upkeep.maintenance.stop()
    site.delete()
    site.restart()
    assert "t 0 3" in upkeep.starts()
    LogMaintenance(
        site.clock, site.offload, upkeep.config, site.log_manager, site.partitions
    ).start()
    site.clock.settle()
    assert "t 0 3" not in upkeep.starts()


def test_checkpoints_on_their_way_do_not_bring_back_what_was_deleted() -> None:
    upkeep = Upkeep(log_flush_offset_checkpoint_interval_ms="60000")
    site = upkeep.site
    site.create("t", 3)
    site.create("kept")
    site.offload.held = True
    site.clock.advance(60_000)
    site.delete()
    site.clock.settle()
    assert upkeep.offload.lanes.count("checkpoint") == 1
    site.offload.release("checkpoint")
    site.clock.settle()
    site.offload.release("checkpoint")
    assert upkeep.offload.lanes.count("checkpoint") == 2
    assert list(parse_offsets(upkeep.checkpoint())) == [site.partition("kept").topic_partition]


def test_a_checkpoint_that_fails_takes_the_directory_offline() -> None:
    upkeep = Upkeep(log_flush_offset_checkpoint_interval_ms="60000")
    upkeep.site.create()
    upkeep.site.files.broken = {"rename"}
    upkeep.site.clock.advance(60_000)
    assert upkeep.site.failed_directories == ["/logs"]
    upkeep.site.clock.advance(600_000)
    assert upkeep.site.failed_directories == ["/logs"]


def test_a_duty_that_fails_comes_round_again() -> None:
    site = LogSite("/one", "/two")
    config = DynamicConfig(BrokerConfig({"log.retention.check.interval.ms": "60000"}))
    LogMaintenance(site.clock, site.offload, config, site.log_manager, site.partitions).start()
    site.create("t", 2, retention_ms="1000", flush_policy="os")
    for partition in site.partitions:
        append(partition, b"old")
    site.files.broken, site.files.below = {"rename"}, "/one"
    site.clock.advance(120_000)
    assert site.failed_directories == ["/one"]
    assert [each.log.log_start_offset for each in site.partitions] == [1]


def test_flushes_by_time_come_round() -> None:
    upkeep = Upkeep()
    site = upkeep.site
    site.create(flush_policy="interval", flush_messages="1000", flush_ms="5000")
    site.clock.advance(1000)
    append(site.partition(), b"a")
    site.clock.advance(4000)
    assert site.partition().log.recovery_point == 0
    site.clock.advance(2000)
    assert site.partition().log.recovery_point == 1


@pytest.mark.slow
def test_producers_are_forgotten_when_their_time_is_over() -> None:
    upkeep = Upkeep(producer_id_expiration_check_interval_ms="600000")
    site = upkeep.site
    site.create()
    append(site.partition(), b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    site.clock.advance(23 * HOUR_MS)
    assert len(site.partition().log.producers.entries()) == 1
    site.clock.advance(2 * HOUR_MS)
    assert len(site.partition().log.producers.entries()) == 0


def test_too_many_producers_are_forgotten_where_they_are_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upkeep = Upkeep(max_producers=20)
    site = upkeep.site
    site.create("t", 2, flush_policy="os")
    quiet, busy = site.partitions
    for producer_id in range(4):
        append(quiet, b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    for producer_id in (*range(30), 0):
        sequence = 1 if producer_id == 0 and busy.log.log_end_offset > 0 else 0
        append(busy, b"a", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    site.clock.advance(10_000)
    assert len(quiet.log.producers.entries()) == 4
    left = [producer.producer_id for producer in busy.log.producers.active()]
    assert 0 in left
    assert left == [0, *range(31 - len(left), 30)]
    assert len(left) + 4 <= 20
    assert caplog.text.count("forgetting the oldest") == 1


def test_after_a_stop_nothing_comes_round() -> None:
    upkeep = Upkeep(log_retention_check_interval_ms="60000")
    site = upkeep.site
    site.create(retention_ms="1000", flush_policy="os")
    append(site.partition(), b"old")
    upkeep.maintenance.stop()
    site.clock.advance(HOUR_MS)
    assert site.partition().log.log_start_offset == 0
