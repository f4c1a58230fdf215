"""The generic runtime with a small state machine: tasks that another broker has to carry out.

A task is recorded as begun, then a request goes to broker 2, and the answer is recorded as the end
of the task; a coordinator of transactions does the same with its markers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.unit.runtime.coordinator_site import Site

from millstream.coordinator.result import (
    BackgroundTask,
    CoordinatorRecord,
    Instant,
    OutboundRequest,
    Result,
    TopicChange,
    split_type,
)
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import LeaderEpoch
from millstream.model.topic import TopicId
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.coordinator_records import GroupMetadataKey, OffsetCommitValue
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.records.builder import BatchOptions
from millstream.runtime.coordinators.coordinator_runtime import CoordinatorRuntime
from millstream.runtime.coordinators.outlets import Outlets
from millstream.storage.log_appender import LogAppender

TOPIC = "__tasks"
TARGET = BrokerId(2)
_KEY_TYPE = 7
BEGUN, ENDED = 1, 2


class Tasks:
    """Knows which tasks have begun, and which have ended."""

    def __init__(self) -> None:
        self.tasks: dict[str, int] = {}
        self.changes: list[TopicChange] = []

    def begin(self, name: str) -> Result[str]:
        return Result("begun", [_record(name, BEGUN)], outbound=[self._request(name)])

    def _request(self, name: str) -> OutboundRequest:
        request = HeartbeatRequest(group_id=name, generation_id=0, member_id="")
        return OutboundRequest(
            TARGET, request, 1_000, lambda answer, _: self._answered(name, answer)
        )

    def _answered(self, name: str, answer: Response | KafkaError) -> Result[None]:
        if isinstance(answer, KafkaError):
            return Result(outbound=[self._request(name)])
        return Result(records=[_record(name, ENDED)])

    def work(self, name: str, work: Callable[[], object]) -> Result[str]:
        """Let a worker do something, and end the task with what it returns."""

        def worked(outcome: object, now: Instant) -> Result[None]:
            state = outcome if isinstance(outcome, int) else BEGUN
            return Result(records=[_record(name, state)])

        return Result("begun", tasks=[BackgroundTask(work, worked)])

    # What a driver asks

    next_deadline_ms: float | None = None

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        assert value is not None
        version, body = split_type(value)
        decoded = OffsetCommitValue.decode_body(version, body)
        key_body = split_type(key)[1]
        return CoordinatorRecord(_KEY_TYPE, GroupMetadataKey.decode_body(0, key_body), 1, decoded)

    def replay(
        self, record: CoordinatorRecord, *, record_offset: int, producer_id: int = -1
    ) -> None:
        assert isinstance(record.key, GroupMetadataKey)
        assert isinstance(record.value, OffsetCommitValue)
        self.tasks[record.key.group] = record.value.offset

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        raise AssertionError

    def expire(self, now: Instant) -> Result[None]:
        return Result()

    def postpone(self, by_ms: float) -> None:
        pass

    def topic_changed(self, change: TopicChange, now: Instant) -> Result[None]:
        self.changes.append(change)
        return Result()

    def on_loaded(self, now: Instant) -> Result[None]:
        begun = [name for name, state in self.tasks.items() if state == BEGUN]
        return Result(outbound=[self._request(name) for name in begun])

    def on_suspended(self, now: Instant) -> Result[None]:
        return Result()

    def on_unloaded(self) -> Result[None]:
        return Result()


def _record(name: str, state: int) -> CoordinatorRecord:
    value = OffsetCommitValue(offset=state, metadata="", commit_timestamp=0)
    return CoordinatorRecord(_KEY_TYPE, GroupMetadataKey(group=name), 1, value)


@dataclass
class Sent:
    """A request that was sent, and the cell for its answer."""

    name: str
    answer: Deferred[Response]


class TaskSite(Site):
    """One partition of tasks, and what was sent to broker 2."""

    def __init__(self, directory: Path, **topic_settings: str) -> None:
        settings = {name.replace("_", "."): value for name, value in topic_settings.items()}
        super().__init__(directory, topic_settings=settings, creates=False)
        self.sent: list[Sent] = []
        self.create(TOPIC, 1)
        self.runtime: CoordinatorRuntime[Tasks] = CoordinatorRuntime(
            TOPIC,
            lambda _: Tasks(),
            partitions=self.partitions,
            clock=self.clock,
            offload=self.offload,
            options=BatchOptions(),
            commit_timeout_ms=5_000,
            outlets=Outlets(self.clock, self._send),
        )
        self.runtime.start()

    def _send(self, broker_id: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        assert isinstance(request, HeartbeatRequest)
        assert (broker_id, timeout_ms) == (TARGET, 1_000)
        sent = Sent(request.group_id, Deferred())
        self.sent.append(sent)
        return sent.answer

    def begin(self, name: str) -> Deferred[str]:
        return self.runtime.write(0, lambda tasks, _: tasks.begin(name))

    def tasks(self) -> dict[str, int]:
        return self.runtime.read(0, lambda tasks, _: Result(dict(tasks.tasks))).result()

    def close(self) -> None:
        self.runtime.stop()
        super().close()


OpenSite = Callable[..., TaskSite]
ANSWER = HeartbeatResponse(error_code=0)


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[OpenSite]:
    sites: list[TaskSite] = []

    def open_(**settings: str) -> TaskSite:
        for site in sites:
            site.close()
        sites[:] = [TaskSite(tmp_path, **settings)]
        return sites[0]

    yield open_
    for site in sites:
        site.offload.held = False
        site.offload.release()
        site.close()


def test_a_request_is_sent_once_its_records_are_committed(open_site: OpenSite) -> None:
    site = open_site(flush_policy="ack")
    site.offload.held = True
    reply = site.begin("a")
    site.clock.settle()
    assert (reply.done, site.sent) == (False, [])
    site.offload.release()
    assert reply.result() == "begun"
    assert [each.name for each in site.sent] == ["a"]


def test_whoever_asked_hears_the_answer_before_anything_else_is_done(
    open_site: OpenSite,
) -> None:
    """The time of a commit is that until its answer: the markers come after it."""
    site = open_site()
    sent_by_then: list[int] = []
    site.begin("a").on_done(lambda _: sent_by_then.append(len(site.sent)))
    site.clock.settle()
    assert sent_by_then == [0]
    assert len(site.sent) == 1


def test_a_request_is_sent_though_the_commit_took_too_long_for_who_asked(
    open_site: OpenSite,
) -> None:
    site = open_site(flush_policy="ack")
    site.offload.held = True
    reply = site.begin("a")
    site.clock.advance(6_000)
    with pytest.raises(KafkaError, match="not committed in time"):
        reply.result()
    assert site.sent == []
    site.offload.release()
    assert [each.name for each in site.sent] == ["a"]


def test_an_answer_becomes_an_event_that_makes_records(open_site: OpenSite) -> None:
    site = open_site()
    site.begin("a")
    site.clock.settle()
    site.sent[0].answer.complete(ANSWER)
    site.clock.settle()
    assert site.tasks() == {"a": ENDED}
    site = open_site()
    assert site.tasks() == {"a": ENDED}
    assert site.sent == [], "nothing is owed"


def test_a_failure_becomes_an_event_that_may_ask_again(open_site: OpenSite) -> None:
    site = open_site()
    site.begin("a")
    site.clock.settle()
    site.sent[0].answer.fail(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
    site.clock.settle()
    assert [each.name for each in site.sent] == ["a", "a"]
    assert site.tasks() == {"a": BEGUN}


def test_a_failure_that_nobody_foresaw_becomes_an_event_too(
    open_site: OpenSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = open_site()
    site.begin("a")
    site.clock.settle()
    with caplog.at_level(logging.CRITICAL):
        site.sent[0].answer.fail(ValueError("a handler has a fault"))
    site.clock.settle()
    assert [each.name for each in site.sent] == ["a", "a"]


def test_who_cannot_be_told_keeps_nothing_from_the_others(
    open_site: OpenSite, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(_: object) -> None:
        raise ValueError("a handler has a fault")

    site = open_site()
    first, second = site.begin("a"), site.begin("b")
    first.on_done(fault)
    with caplog.at_level(logging.CRITICAL):
        site.clock.settle()
    assert (first.result(), second.result()) == ("begun", "begun")
    assert [each.name for each in site.sent] == ["a", "b"]


def test_a_failed_write_is_taken_back_whoever_cannot_be_told(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(_: object) -> None:
        raise ValueError("a handler has a fault")

    def refuse(*_args: object, **_options: object) -> None:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)

    site = open_site()
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
        patch.setattr(LogAppender, "append_as_leader", refuse)
        reply = site.begin("a")
        reply.on_done(fault)
        site.clock.settle()
    assert site.tasks() == {}
    site.begin("b")
    site.clock.settle()
    assert site.tasks() == {"b": BEGUN}


def test_what_the_log_says_is_owed_is_asked_for_after_a_restart(open_site: OpenSite) -> None:
    site = open_site()
    site.begin("a")
    site.clock.settle()
    before = site.sent[0]
    site = open_site()
    assert [each.name for each in site.sent] == ["a"]
    before.answer.complete(ANSWER)
    site.clock.settle()
    assert site.tasks() == {"a": BEGUN}, "an answer to the coordinator of before"


def test_an_answer_for_a_state_that_was_given_up_is_dropped(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = open_site()
    site.begin("a")
    site.clock.settle()

    def refuse(*_args: object, **_options: object) -> None:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)

    with monkeypatch.context() as patch:
        patch.setattr(LogAppender, "append_as_leader", refuse)
        site.begin("b")
        site.clock.settle()
    assert [each.name for each in site.sent] == ["a", "a"], "b was not sent, and a is owed still"
    site.sent[0].answer.complete(ANSWER)
    site.clock.settle()
    assert site.tasks() == {"a": BEGUN}
    site.sent[1].answer.complete(ANSWER)
    site.clock.settle()
    assert site.tasks() == {"a": ENDED}


def test_shards_hear_of_topics(open_site: OpenSite) -> None:
    site = open_site()
    site.begin("a")
    site.clock.settle()
    site = open_site()
    site.runtime.stop()
    site.offload.held = True
    site.runtime.start()
    image = site.create("t", 1, TopicId(bytes(16)))
    site.runtime.topic_changed(image, created=True)
    site.runtime.topic_changed(image, created=False)
    site.runtime.topic_deleted(image)
    site.offload.held = False
    site.offload.release()
    heard = site.runtime.read(0, lambda tasks, _: Result(list(tasks.changes))).result()
    assert [(each.name, each.deleted) for each in heard] == [("t", False), ("t", True)]


def test_shards_hear_of_a_topic_that_has_changed_and_not_of_its_leaders(
    open_site: OpenSite,
) -> None:
    site = open_site()
    site.begin("a")
    site.clock.settle()
    image = site.create("t", 1, TopicId(bytes(16)))
    site.runtime.topic_changed(image, created=True)
    led = replace(image.partitions[0], leader=BrokerId(2), leader_epoch=LeaderEpoch(7))
    site.runtime.topic_changed(replace(image, partitions=(led,)), created=False)
    site.runtime.topic_changed(replace(image, partitions=(led, led)), created=False)
    heard = site.runtime.read(0, lambda tasks, _: Result(list(tasks.changes))).result()
    assert [(each.created, each.deleted) for each in heard] == [(True, False), (False, False)]


def test_a_worker_does_what_takes_long(open_site: OpenSite) -> None:
    site = open_site()
    site.offload.held = True
    reply = site.runtime.write(0, lambda tasks, _: tasks.work("a", lambda: ENDED))
    site.clock.settle()
    assert reply.result() == "begun"
    assert site.tasks() == {}
    site.offload.held = False
    site.offload.release("coordinator-task")
    site.clock.settle()
    assert site.tasks() == {"a": ENDED}


def test_an_error_of_a_worker_is_handed_over(open_site: OpenSite) -> None:
    def fail() -> object:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    site = open_site()
    site.runtime.write(0, lambda tasks, _: tasks.work("a", fail))
    site.clock.settle()
    assert site.tasks() == {"a": BEGUN}


def test_what_a_worker_fails_with_as_nobody_foresaw_is_handed_over_too(
    open_site: OpenSite, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> object:
        raise ValueError("the work has a fault")

    site = open_site()
    with caplog.at_level(logging.CRITICAL):
        site.runtime.write(0, lambda tasks, _: tasks.work("a", fail))
        site.clock.settle()
    assert site.tasks() == {"a": BEGUN}


def test_a_state_machine_loaded_since_does_not_hear_of_a_worker(open_site: OpenSite) -> None:
    site = open_site()
    site.offload.held = True
    site.runtime.write(0, lambda tasks, _: tasks.work("a", lambda: ENDED))
    site.clock.settle()
    site.runtime.stop()
    site.runtime.start()
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert site.tasks() == {}
