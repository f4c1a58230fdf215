"""The cleaner beside a live broker: what it takes up, when it lets go, what it remembers."""

from __future__ import annotations

import pytest
from tests.unit.runtime.log_site import CountingOffload, LogSite
from tests.unit.storage.cleaning_support import keyed_batch

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.model.topic import TopicPartition
from millstream.records.batch import iter_batches
from millstream.records.record import read_records
from millstream.runtime.logs.cleaner_throttle import CleanerThrottle
from millstream.runtime.logs.log_cleaner import LogCleaner
from millstream.runtime.logs.log_maintenance import LogMaintenance
from millstream.storage.checkpoint import parse_offsets
from millstream.storage.cleanable import CleaningAbortedError
from millstream.storage.environment import LogEnvironment

T0 = TopicPartition("t", 0)
SMALL = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "600",
    "flush_policy": "os",
    "min_cleanable_dirty_ratio": "0.5",
}


class Cleaned:
    """A site with its cleaner."""

    def __init__(self, *directories: str, **settings: str) -> None:
        self.offload = CountingOffload()
        self.site = LogSite(*directories, offload=self.offload)
        self.config = DynamicConfig(
            BrokerConfig(
                {"log.cleaner.dedupe.buffer.size": "1000000"}
                | {key.replace("_", "."): text for key, text in settings.items()}
            )
        )
        self.new_cleaner()

    def new_cleaner(self) -> None:
        self.cleaner = LogCleaner(
            self.site.clock,
            self.site.offload,
            self.config,
            log_manager=self.site.log_manager,
            environment=LogEnvironment(file_system=self.site.files),
            on_storage_error=self.site.partitions.storage_failed,
        )

    def write(self, name: str = "t", index: int = 0, count: int = 30, keys: int = 3) -> None:
        partition = self.site.partition(name, index)
        for n in range(count):
            batch = keyed_batch([(b"k%d" % (n % keys), b"v%d" % n * 10)])
            partition.append(batch, self.site.clock.now_ms())

    def offsets(self, name: str = "t", index: int = 0) -> list[int]:
        log = self.site.partition(name, index).log
        found: list[int] = []
        offset = 0
        while offset < log.log_end_offset:
            read = log.reader.read(
                offset, max_bytes=1 << 20, upper_bound_offset=log.log_end_offset,
                min_one_batch=True,
            )  # fmt: skip
            assert read.records is not None
            for batch in iter_batches(read.records.read()):
                found += [record.offset for record in read_records(batch)]
                offset = batch.next_offset
        return found

    def checkpoint(self, directory: str = "/logs") -> dict[TopicPartition, int]:
        path = f"{directory}/cleaner-offset-checkpoint"
        if not self.site.files.exists(path):
            return {}
        file = self.site.files.open(path)
        return parse_offsets(file.read_at(0, file.size()).decode())


def test_a_dirty_log_is_cleaned_and_the_checkpoint_says_how_far() -> None:
    cleaned = Cleaned()
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.cleaner.start()
    cleaned.site.clock.settle()
    active = cleaned.site.partition().log.segment_base_offsets[-1]
    offsets = cleaned.offsets()
    assert len([offset for offset in offsets if offset < active]) <= 3
    assert offsets[-1] == 29
    assert cleaned.checkpoint() == {T0: active}
    assert "cleaner 0" in cleaned.offload.lanes


def test_only_compacted_topics_and_only_when_it_is_worth_it() -> None:
    cleaned = Cleaned(log_cleaner_backoff_ms="1000")
    cleaned.site.create("plain", internal_segment_bytes="600", flush_policy="os")
    cleaned.site.create("t", **SMALL)
    cleaned.write("plain")
    cleaned.write(keys=30)
    cleaned.cleaner.start()
    cleaned.site.clock.settle()
    first = cleaned.checkpoint()
    assert set(first) == {T0}
    assert len(cleaned.offsets("plain")) == 30
    cleaned.write(count=8)  # less than half of the log is dirty now
    cleaned.site.clock.advance(1000)
    assert cleaned.checkpoint() == first
    cleaned.write(count=40)
    cleaned.site.clock.advance(1000)
    assert cleaned.checkpoint()[T0] > first[T0]


def test_the_dirtiest_goes_first_and_lanes_work_side_by_side() -> None:
    cleaned = Cleaned(log_cleaner_threads="2")
    cleaned.site.create("t", 3, **SMALL)
    for index, count in enumerate((30, 30, 30)):
        cleaned.write(index=index, count=count)
    cleaned.offload.held = True
    cleaned.cleaner.start()
    assert len(cleaned.cleaner.busy) == 2
    cleaned.offload.held = False
    for _ in range(50):
        cleaned.offload.release()
        cleaned.site.clock.settle()
    assert not cleaned.cleaner.busy
    assert len(cleaned.checkpoint()) == 3


def test_a_pause_aborts_and_a_resume_lets_it_go_on() -> None:
    cleaned = Cleaned(log_cleaner_backoff_ms="1000")
    cleaned.site.create(**SMALL)
    cleaned.write()
    before = cleaned.offsets()
    cleaned.offload.held = True
    cleaned.cleaner.start()
    assert T0 in cleaned.cleaner.busy
    paused = cleaned.cleaner.abort_and_pause(T0)
    assert not paused.done
    cleaned.offload.release()
    assert paused.done
    assert cleaned.offsets() == before
    cleaned.offload.held = False
    cleaned.site.clock.advance(1000)
    assert cleaned.offsets() == before
    cleaned.cleaner.resume(T0)
    cleaned.site.clock.advance(1000)
    assert len(cleaned.offsets()) < len(before)


def test_a_log_that_is_cut_while_it_is_cleaned_stays_as_it_was_cut() -> None:
    cleaned = Cleaned()
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.offload.held = True
    cleaned.cleaner.start()
    cleaned.offload.release()  # the map is built
    log = cleaned.site.partition().log
    log.truncation.truncate_to(9, now_ms=cleaned.site.clock.now_ms())
    for _ in range(5):
        cleaned.offload.release()
    assert not cleaned.cleaner.busy
    assert cleaned.offsets() == list(range(9))
    assert cleaned.checkpoint() == {}
    names = [entry.name for entry in cleaned.site.files.scan(log.directory)]
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_topic_that_is_compacted_no_more_keeps_what_the_cleaner_has_not_replaced(
    steps: int,
) -> None:
    cleaned = Cleaned()
    cleaned.site.create(**SMALL)
    cleaned.write()
    before = cleaned.offsets()
    cleaned.offload.held = True
    cleaned.cleaner.start()
    for _ in range(steps):
        cleaned.offload.release()
    cleaned.site.show(**SMALL | {"cleanup_policy": "delete"})
    if steps < 2:
        assert cleaned.offsets() == before
    reached = cleaned.offsets()
    for _ in range(30):
        cleaned.offload.release()
    assert not cleaned.cleaner.busy
    assert cleaned.offsets() == reached
    assert not cleaned.cleaner.uncleanable
    names = [entry.name for entry in cleaned.site.files.scan("/logs/t-0")]
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def test_a_truncation_takes_the_checkpoint_back() -> None:
    cleaned = Cleaned(log_cleaner_backoff_ms="1000")
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.cleaner.start()
    cleaned.site.clock.settle()
    log = cleaned.site.partition().log
    assert cleaned.cleaner.first_dirty_offset(T0) == log.segment_base_offsets[-1]
    log.truncation.truncate_to(10, now_ms=cleaned.site.clock.now_ms())
    assert cleaned.cleaner.first_dirty_offset(T0) == 10


def test_a_truncation_takes_the_checkpoint_back_on_disk_before_the_log_grows_again() -> None:
    cleaned = Cleaned(log_cleaner_backoff_ms="1000")
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.cleaner.start()
    cleaned.site.clock.settle()
    log = cleaned.site.partition().log
    assert cleaned.checkpoint()[T0] > 10
    log.truncation.truncate_to(10, now_ms=cleaned.site.clock.now_ms())
    cleaned.write(count=40)
    cleaned.site.restart()
    cleaned.new_cleaner()
    assert cleaned.checkpoint()[T0] == 10
    cleaned.offload.held = True
    cleaned.cleaner.start()
    assert cleaned.cleaner.first_dirty_offset(T0) == 10, "what was written since is not clean"


def test_a_topic_made_anew_is_dirty_on_disk_before_anything_is_written_to_it() -> None:
    cleaned = Cleaned(log_cleaner_backoff_ms="1000")
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.cleaner.start()
    cleaned.site.clock.settle()
    assert cleaned.checkpoint()[T0] > 0
    cleaned.site.delete()
    cleaned.site.create(topic_id=b"another topic id", **SMALL)
    cleaned.write(count=40)
    cleaned.site.restart()
    cleaned.new_cleaner()
    cleaned.offload.held = True
    cleaned.cleaner.start()
    assert not cleaned.cleaner.first_dirty_offset(T0)


def test_a_topic_made_anew_under_the_same_name_is_dirty_from_its_start() -> None:
    cleaned = Cleaned()
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.cleaner.start()
    cleaned.site.clock.settle()
    cleaned.site.delete()
    assert cleaned.cleaner.first_dirty_offset(T0) is None
    cleaned.site.create(topic_id=b"another topic id", **SMALL)
    assert cleaned.cleaner.first_dirty_offset(T0) is None
    cleaned.site.clock.advance(60_000)
    assert cleaned.checkpoint() == {}, "the next start would believe it"


def test_a_topic_deleted_while_it_is_cleaned() -> None:
    cleaned = Cleaned()
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.offload.held = True
    cleaned.cleaner.start()
    cleaned.offload.release()
    cleaned.site.delete()
    for _ in range(5):
        cleaned.offload.release()
    assert not cleaned.cleaner.busy
    assert cleaned.site.failed_directories == []


@pytest.mark.parametrize("steps", [0, 1])
def test_a_topic_made_anew_while_the_one_before_is_cleaned_gets_nothing_of_it(steps: int) -> None:
    """What lies there as ``.cleaned`` tells a start that the next replacement is unfinished."""
    cleaned = Cleaned()
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.offload.held = True
    cleaned.cleaner.start()
    for _ in range(steps):
        cleaned.offload.release()
    cleaned.site.delete()
    cleaned.site.create(topic_id=b"another topic id", **SMALL)
    cleaned.write()
    for _ in range(5):
        cleaned.offload.release()
    assert not cleaned.cleaner.busy
    assert cleaned.offsets() == list(range(30))
    names = [entry.name for entry in cleaned.site.files.scan("/logs/t-0")]
    assert not [name for name in names if name.endswith(".cleaned")]


def test_a_log_that_moves_is_left_alone_and_takes_its_checkpoint_along() -> None:
    cleaned = Cleaned("/one", "/two", log_cleaner_backoff_ms="1000")
    site = cleaned.site
    site.create(**SMALL)
    cleaned.write()
    cleaned.cleaner.start()
    site.clock.settle()
    done = cleaned.cleaner.first_dirty_offset(T0)
    cleaned.write(count=60)
    log = site.partition().log
    elsewhere = "/two" if log.log_directory == "/one" else "/one"
    future = site.log_manager.future_logs.create(log, elsewhere, now_ms=site.clock.now_ms())
    before = cleaned.offsets()
    site.clock.advance(5000)
    assert cleaned.offsets() == before
    site.log_manager.future_logs.pop(T0)
    future.abandon()
    assert cleaned.cleaner.first_dirty_offset(T0) == done
    site.clock.advance(1000)
    assert len(cleaned.offsets()) < len(before)


def test_the_checkpoint_is_read_at_the_start_unless_it_lies_beyond_the_log() -> None:
    cleaned = Cleaned()
    cleaned.site.create("t", 2, **SMALL)
    cleaned.write()
    file = cleaned.site.files.open("/logs/cleaner-offset-checkpoint", create=True)
    file.write_at(0, b"0\n3\nt 0 7\nt 1 5\ngone 0 1\n")
    cleaned.cleaner.start()
    assert cleaned.cleaner.first_dirty_offset(TopicPartition("t", 1)) is None
    cleaned.site.clock.settle()
    assert cleaned.offsets()[0] > 7, "keys of the clean part were superseded"
    assert set(cleaned.checkpoint()) == {T0}


def test_what_is_gone_is_taken_out_of_the_file_at_the_start() -> None:
    cleaned = Cleaned()
    file = cleaned.site.files.open("/logs/cleaner-offset-checkpoint", create=True)
    file.write_at(0, b"0\n1\ngone 0 1\n")
    cleaned.cleaner.start()
    assert cleaned.checkpoint() == {}


def test_a_damaged_log_is_not_tried_again_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cleaned = Cleaned(log_cleaner_backoff_ms="1000")
    cleaned.site.create("t", 2, **SMALL)
    cleaned.write(index=0)
    cleaned.write(index=1)
    file = cleaned.site.files.open("/logs/t-0/00000000000000000000.log")
    file.write_at(70, b"\xff\xff\xff")
    cleaned.cleaner.start()
    cleaned.site.clock.advance(5000)
    assert set(cleaned.checkpoint()) == {TopicPartition("t", 1)}
    assert len([r for r in caplog.records if "cannot be compacted" in r.getMessage()]) == 1


def test_a_disk_that_fails_takes_its_directory_offline() -> None:
    cleaned = Cleaned()
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.site.files.broken = {"sync"}
    cleaned.cleaner.start()
    cleaned.site.clock.settle()
    assert cleaned.site.failed_directories == ["/logs"]
    assert not cleaned.cleaner.busy


def test_stopping_waits_for_what_is_under_way() -> None:
    cleaned = Cleaned()
    cleaned.site.create(**SMALL)
    cleaned.write()
    cleaned.offload.held = True
    cleaned.cleaner.start()
    stopped = cleaned.cleaner.stop()
    assert not stopped.done
    cleaned.offload.release()
    assert stopped.done
    cleaned.site.clock.advance(60_000)
    assert not cleaned.cleaner.busy


def test_retention_leaves_a_log_alone_while_segments_are_replaced() -> None:
    cleaned = Cleaned()
    site = cleaned.site
    site.create(**{**SMALL, "cleanup_policy": "compact,delete", "retention_ms": "1"})
    maintenance = LogMaintenance(
        site.clock,
        site.offload,
        cleaned.config,
        site.log_manager,
        site.partitions,
        busy=lambda: cleaned.cleaner.busy,
    )
    cleaned.write()
    maintenance.start()
    cleaned.offload.held = True
    cleaned.cleaner.start()
    interval_ms = cleaned.config.current.log_retention_check_interval_ms
    site.clock.advance(interval_ms)
    assert site.partition().log.log_start_offset == 0
    for _ in range(30):
        cleaned.offload.release()
    cleaned.cleaner.stop()
    site.clock.advance(interval_ms)
    assert site.partition().log.log_start_offset > 0


def test_the_throttle_keeps_all_threads_together_to_its_rate() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    throttle = CleanerThrottle(lambda: 1000.0, monotonic=lambda: now[0], sleep=sleep)
    for _ in range(5):
        throttle.take(500, lambda: None)
    assert now[0] == pytest.approx(2.0)
    with pytest.raises(CleaningAbortedError):
        throttle.take(500, _abort)


def _abort() -> None:
    raise CleaningAbortedError("enough")
