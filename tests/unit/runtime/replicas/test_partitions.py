"""The partitions that a broker keeps: found, opened, deleted, made again, lost with their disk."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.runtime.log_site import (
    OTHER_BROKER,
    LogSite,
    Outcomes,
    append,
    read,
    write,
)

from millstream.config.topic import TopicConfig
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.runtime.replicas.waiters import FetchWaiter
from millstream.storage.log import Log


@pytest.fixture
def site() -> LogSite:
    return LogSite()


def refusal(site: LogSite, name: str, index: int = 0) -> ErrorCode:
    assert site.partitions.find(name, index) is None
    with pytest.raises(KafkaError) as caught:
        site.partitions.get(name, index)
    return caught.value.error


def names(site: LogSite) -> list[str]:
    return [str(partition.topic_partition) for partition in site.partitions]


# Topics come and change


def test_a_topic_is_found_by_name_and_by_id(site: LogSite) -> None:
    image = site.create("t", 2)
    assert names(site) == ["t-0", "t-1"]
    assert site.partitions.by_name["t"] is site.partitions.by_id[image.topic_id]
    assert site.partitions.get("t", 1) is site.partitions.find("t", 1)


def test_what_is_not_there_is_refused_with_the_reason(site: LogSite) -> None:
    site.create("t")
    site.create("elsewhere", leader=OTHER_BROKER)
    for name, index in (("absent", 0), ("t", 1), ("t", -1)):
        assert refusal(site, name, index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(site, "elsewhere") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert names(site) == ["t-0"]


def test_more_partitions_come_beside_those_that_are_open(site: LogSite) -> None:
    site.create("t")
    first = site.partition("t")
    site.show("t", 3)
    assert names(site) == ["t-0", "t-1", "t-2"]
    assert site.partition("t") is first


def test_a_new_leader_epoch_and_new_settings_are_taken_over(site: LogSite) -> None:
    site.create("t", epoch=1)
    site.show("t", epoch=4, max_message_bytes="77")
    partition = site.partition("t")
    assert partition.leader_epoch == 4
    assert partition.limits.max_message_bytes == 77
    append(partition, b"a")
    assert partition.log.latest_epoch == 4


def test_changed_settings_reach_every_partition(site: LogSite) -> None:
    site.create("t", 2)
    image = site.show("t", 2, retention_ms="5")
    site.partitions.config_changed(image)
    assert [each.log.config.retention_ms for each in site.partitions] == [5, 5]


def test_records_are_there_after_a_restart(site: LogSite) -> None:
    site.create("t", flush_policy="os")
    append(site.partition("t"), b"a", b"b")
    before = read(site.partition("t"))
    site.restart()
    assert read(site.partition("t")) == before


# Topics go


def test_a_deleted_topic_answers_who_waits_and_renames_its_directory(site: LogSite) -> None:
    outcomes, woken = Outcomes(), list[bool]()
    image = site.create("t")
    partition = site.partition("t")
    site.offload.held = True
    write(partition, outcomes)
    FetchWaiter(
        site.clock, partitions=[partition], missing_bytes=1, wait_ms=500, on_woken=woken.append
    )
    site.delete("t")
    site.clock.settle()
    assert outcomes == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert woken == [False]
    assert image.topic_id not in site.partitions.by_id
    assert refusal(site, "t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not site.files.exists("/logs/t-0")
    assert [e.name for e in site.files.scan("/logs") if e.name.endswith("-delete")]


def test_a_topic_of_the_same_name_begins_anew(site: LogSite) -> None:
    old = site.create("t", flush_policy="os")
    append(site.partition("t"), b"a")
    site.delete("t")
    new = site.create("t", topic_id=b"another id......")
    partition = site.partition("t")
    assert (partition.topic_id, partition.log.log_end_offset) == (new.topic_id, 0)
    assert set(site.partitions.by_id) == {new.topic_id} != {old.topic_id}


@pytest.mark.parametrize("told", [True, False])
def test_a_log_of_a_topic_that_went_while_its_broker_started_is_in_nobodys_way(
    site: LogSite, told: bool
) -> None:
    """It was half deleted when the broker looked, so nobody has spoken of it; with luck somebody
    tells of the deletion before the next topic of the name comes.
    """
    old = site.create("t", flush_policy="os")
    append(site.partition("t"), b"a")
    site.metadata.remove("t")
    site.restart()
    if told:
        site.partitions.topic_deleted(replace(old, partitions=()))
    new = site.create("t", topic_id=b"another id......")
    partition = site.partition("t")
    assert (partition.topic_id, partition.log.log_end_offset) == (new.topic_id, 0)
    kept = [
        each.name.rpartition("-")[2] for each in site.files.scan("/logs") if "t-0." in each.name
    ]
    assert kept == ["delete" if told else "stray"]


def test_a_deletion_that_the_disk_refuses_takes_the_directory_offline() -> None:
    site = LogSite("/one", "/two")
    site.create("t", 2)
    site.create("u", 2)
    site.files.broken, site.files.below = {"rename"}, "/one"
    site.delete("t")
    assert site.failed_directories == ["/one"]
    assert refusal(site, "t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.log.log_directory for each in site.partitions] == ["/two"]
    assert not site.files.exists("/two/t-1")


# Disks fail


def test_a_disk_that_fails_takes_its_partitions_along_and_no_others() -> None:
    site = LogSite("/one", "/two")
    site.create("t", 4)
    outcomes = Outcomes()
    site.offload.held = True
    for partition in site.partitions:
        write(partition, outcomes, name=f"{partition.log.log_directory} ")
    site.files.broken, site.files.below = {"write"}, "/one"
    lost = next(each for each in site.partitions if each.log.log_directory == "/one")
    with pytest.raises(KafkaError):
        append(lost, b"a")
    assert outcomes == ["/one KAFKA_STORAGE_ERROR"] * 2
    assert refusal(site, "t", lost.topic_partition.partition) is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.failed_directories == ["/one"]
    assert len(names(site)) == 2
    site.offload.release()
    site.clock.settle()
    site.offload.release()
    assert outcomes[2:] == ["/two ok"] * 2


def test_who_is_told_of_a_failed_disk_finds_no_partition_of_it_any_more() -> None:
    site = LogSite()
    site.create("t", 2)
    site.offload.held = True
    found: list[bool] = []

    def look(_: KafkaError | None) -> None:
        found.append(any(site.partitions))

    for partition in site.partitions:
        partition.wait_for_commit(append(partition, b"a").last_offset, look)
    site.files.broken = {"write"}
    with pytest.raises(KafkaError):
        append(site.partition("t"), b"b")
    assert found == [False, False]


def test_a_topic_that_cannot_be_made_for_a_failing_disk_is_offline(site: LogSite) -> None:
    site.files.broken = {"mkdir", "create"}
    site.create("t")
    assert refusal(site, "t") is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.failed_directories == ["/logs"]


def test_a_partition_whose_epoch_cannot_be_noted_is_offline(site: LogSite) -> None:
    site.create("t")
    append(site.partition("t"), b"a")
    site.clock.settle()
    site.log_manager.close()
    site._open()
    site.files.broken = {"write", "create"}
    site.show("t", epoch=7)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        append(site.partition("t"), b"b")
    assert refusal(site, "t") is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.failed_directories == ["/logs"]


def test_a_partition_that_may_lie_on_a_failed_disk_is_not_made_anew() -> None:
    site = LogSite("/one", "/two")
    site.create("t", 2, flush_policy="os")
    (lost,) = [index for index in range(2) if site.directory_of("t", index) == "/one"]
    append(site.partition("t", lost), b"a")
    site.log_manager.close()
    site.files.broken, site.files.below = {"write", "rename", "read"}, "/one"
    site.restart()
    assert site.log_manager.offline_directories == ["/one"]
    assert site.failed_directories == []
    assert refusal(site, "t", lost) is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.log_manager.get(TopicPartition("t", lost)) is None
    assert site.partition("t", 1 - lost)
    site.show("t", 3)
    assert site.partition("t", 2).log.log_directory == "/two"


def test_a_stop_answers_everybody_who_waits(site: LogSite) -> None:
    outcomes = Outcomes()
    site.create("t", 2)
    for partition in site.partitions:
        write(partition, outcomes)
    site.partitions.stop()
    assert outcomes == ["NOT_LEADER_OR_FOLLOWER"] * 2


def test_a_log_that_is_not_open_yet_goes_with_its_topic(site: LogSite) -> None:
    """It was found at the start; the next topic of its name has to find room."""
    site.create("t")
    append(site.partition("t"), b"old")
    image = site.metadata.topic("t")
    assert image is not None
    site.metadata.remove("t")
    site.restart()
    site.partitions.topic_deleted(image)
    site.create("t", topic_id=b"another life....")
    assert site.partition("t").log.log_end_offset == 0


def test_settings_are_applied_where_they_changed(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of one partition comes with all of its topic, settings made anew included."""
    applied: list[Log] = []
    apply = Log.update_config

    def counted(self: Log, config: TopicConfig) -> None:
        applied.append(self)
        apply(self, config)

    site.create(count=5, max_message_bytes="1000")
    monkeypatch.setattr(Log, "update_config", counted)
    site.show(count=5, max_message_bytes="1000", epoch=1)
    assert applied == []
    image = site.show(count=5, max_message_bytes="2000", epoch=1)
    assert len(applied) == 5
    assert {partition.log.config for partition in site.partitions} == {image.config}
    site.partitions.config_changed(image)
    assert len(applied) == 5
