"""Group commit: how many flushes there are, of what, and what a failed one means."""

from __future__ import annotations

import pytest
from tests.unit.runtime.log_site import CountingOffload, LogSite, Outcomes, append, write

from millstream.model.errors import ErrorCode, KafkaError


@pytest.fixture
def site() -> LogSite:
    return LogSite(offload=CountingOffload())


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


def rounds(site: LogSite) -> list[str]:
    assert isinstance(site.offload, CountingOffload)
    return site.offload.lanes


def test_the_writes_of_one_turn_of_the_loop_share_a_flush(
    site: LogSite, outcomes: Outcomes
) -> None:
    site.create("t", 3)
    for index in range(3):
        for _ in range(4):
            write(site.partition("t", index), outcomes)
    assert rounds(site) == []
    site.clock.settle()
    assert rounds(site) == ["flush /logs"]
    assert outcomes == ["ok"] * 12


def test_one_flush_at_a_time_and_the_next_takes_all_that_came(
    site: LogSite, outcomes: Outcomes
) -> None:
    site.create("t", 2)
    site.offload.held = True
    for round_ in range(3):
        write(site.partition("t", 0), outcomes, name=f"{round_} ")
        write(site.partition("t", 1), outcomes, name=f"{round_} ")
        site.clock.settle()
    assert len(rounds(site)) == 1
    site.offload.release()
    assert outcomes == ["0 ok"] * 2
    assert len(rounds(site)) == 2
    site.offload.release()
    assert outcomes[2:] == ["1 ok", "2 ok"] * 2
    site.clock.settle()
    assert len(rounds(site)) == 2


def test_directories_are_flushed_side_by_side(outcomes: Outcomes) -> None:
    site = LogSite("/one", "/two", offload=CountingOffload())
    site.create("t", 2)
    assert {site.directory_of("t", 0), site.directory_of("t", 1)} == {"/one", "/two"}
    site.offload.held = True
    for index in range(2):
        write(site.partition("t", index), outcomes, name=f"{site.directory_of('t', index)} ")
    site.clock.settle()
    assert sorted(rounds(site)) == ["flush /one", "flush /two"]
    site.offload.release("flush /two")
    assert outcomes == ["/two ok"]
    site.offload.release()


def test_a_flush_that_fails_is_final_for_its_directory_and_no_other(outcomes: Outcomes) -> None:
    site = LogSite("/one", "/two")
    site.create("t", 4)
    site.files.broken, site.files.below = {"sync", "sync_all"}, "/one"
    site.offload.held = True
    for index in range(4):
        partition = site.partition("t", index)
        write(partition, outcomes, name=f"{partition.log.log_directory} ")
    site.clock.settle()
    site.offload.release()
    assert sorted(outcomes) == ["/one KAFKA_STORAGE_ERROR"] * 2 + ["/two ok"] * 2
    assert site.failed_directories == ["/one"]
    site.files.broken = set()
    site.clock.settle()
    assert [each.high_watermark for each in site.partitions] == [1, 1]


def test_what_came_during_a_flush_that_fails_is_not_acknowledged_either(
    site: LogSite, outcomes: Outcomes
) -> None:
    site.create()
    site.offload.held = True
    write(site.partition(), outcomes)
    site.clock.settle()
    write(site.partition(), outcomes)
    site.files.broken = {"sync", "sync_all"}
    site.offload.release()
    site.clock.settle()
    assert outcomes == ["KAFKA_STORAGE_ERROR"] * 2
    assert len(rounds(site)) == 1


def test_a_topic_may_be_deleted_while_its_flush_runs(site: LogSite, outcomes: Outcomes) -> None:
    site.create("t")
    site.create("u")
    site.offload.held = True
    for name in ("t", "u"):
        write(site.partition(name), outcomes, name=f"{name} ")
    site.clock.settle()
    site.delete("t")
    assert outcomes == ["t UNKNOWN_TOPIC_OR_PARTITION"]
    site.create("t", topic_id=b"another id......")
    site.offload.release()
    assert outcomes[1:] == ["u ok"]
    assert site.failed_directories == []
    write(site.partition("t"), outcomes, name="new t ")
    site.clock.settle()
    site.offload.release()
    assert outcomes[2:] == ["new t ok"]


def test_a_topic_may_be_deleted_before_its_flush_begins(site: LogSite) -> None:
    site.create()
    append(site.partition(), b"a")
    site.delete()
    site.clock.settle()
    assert rounds(site) == []


def test_a_waiter_that_raises_stops_neither_its_round_nor_the_next(
    site: LogSite, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    site.create("t", 2)

    def fault(_: KafkaError | None) -> None:
        raise RuntimeError("a fault of ours")

    site.offload.held = True
    first = site.partition("t", 0)
    first.wait_for_commit(append(first, b"a").last_offset, fault)
    write(site.partition("t", 1), outcomes)
    site.clock.settle()
    write(site.partition("t", 1), outcomes)
    site.offload.release()
    assert "a fault of ours" in caplog.text
    assert outcomes == ["ok"]
    site.offload.release()
    assert outcomes == ["ok", "ok"]
    write(first, outcomes)
    site.clock.settle()
    site.offload.release()
    assert outcomes == ["ok", "ok", "ok"]


def test_nothing_is_acknowledged_that_a_stop_leaves_unflushed(
    site: LogSite, outcomes: Outcomes
) -> None:
    site.create()
    site.offload.held = True
    write(site.partition(), outcomes)
    site.clock.settle()
    write(site.partition(), outcomes)
    site.partitions.stop()
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER.name] * 2
    site.offload.release()
    site.clock.settle()
    site.offload.release()
    assert len(outcomes) == 2
