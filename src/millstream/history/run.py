"""A load with faults on a cluster, and the judgement of its history."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from millstream.client import Admin, Consumer
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.topics import NewTopic
from millstream.history.checker import (
    Anomaly,
    GroupOffset,
    Kind,
    Outcome,
    PartitionKey,
    Send,
    Step,
    Value,
    find_gone,
    find_moved_back,
    find_torn,
    judge,
)
from millstream.history.faults import Fault, Faults
from millstream.history.load import (
    Asking,
    Client,
    Reading,
    Record,
    Sending,
    Settings,
    Transacting,
    text_of,
)
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.topic import TopicPartition

_FINAL_S: Final = 180.0
"""How long everything may take to be readable in the end: transactions that their producers left
open time out meanwhile.
"""
_PAUSE_S: Final = 0.5
_WARM_UP_S: Final = 60.0
_CATCH_UP_S: Final = 60.0
_TRANSACTION_TIMEOUT_MS: Final = 30_000
_CLEAN_UP_S: Final = 10.0
_IS_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND})


T = TypeVar("T")


class HistoryError(MillstreamError):
    """The run tells nothing: the load did not work, or not all could be read in the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is done. Settings are those of the Java client."""

    settings: Settings
    """Of the administrator, with ``bootstrap.servers``."""
    producing: Settings
    """Of the producers, with ``bootstrap.servers``; what the plan says comes before them."""
    reading: Settings
    """Of the consumers, likewise."""
    topic: str | None = None
    """None has one made, and deleted in the end."""
    partitions: int = 3
    replication_factor: int = -1
    producers: int = 2
    readers: int = 2
    seconds: float = 60.0
    rate: float = 200.0
    """Records a second of each producer."""
    acks: str = "all"
    is_idempotent: bool = True
    is_transactional: bool = False
    faults: Sequence[str] = ()
    fault_every_s: float = 15.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came out."""

    plan: Plan
    topic: str
    seconds: float
    sent: int
    acknowledged: int
    refused: int
    unknown: int
    read: int
    duplicates: int
    """Values that stand more than once, whether that is allowed or not."""
    longest_gap_s: float
    """The longest time in which some partition acknowledged nothing."""
    committed: int = 0
    aborted: int = 0
    faults: Sequence[Fault] = ()
    anomalies: Sequence[Anomaly] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    """What clients were told meanwhile, and how often; no anomaly by itself."""

    @property
    def counts(self) -> Counter[Kind]:
        """Return the anomalies by kind."""
        return Counter(each.kind for each in self.anomalies)


def run(plan: Plan, tell: Callable[[str], None] = lambda _: None) -> Result:
    """Run a load with its faults, read everything in the end, and judge.

    HistoryError when nothing was acknowledged, a client broke, or the end cannot be read.
    """
    token = uuid.uuid4().hex[:8]
    topic = plan.topic or f"millstream-history-{token}"
    try:
        with Admin(plan.settings) as admin:
            if plan.topic is None:
                wanted = NewTopic(topic, plan.partitions, plan.replication_factor)
                admin.create_topics([wanted])[topic].get()
            partitions = _until(lambda: _partition_count(admin, topic))
            record = Record(topic, partitions, _group(topic, token), f"{token}:")
            begins = _until(lambda: _ends(admin, record))
            _begin_there(admin, record, begins)
        return _run(plan, record, begins, tell)
    except (KeyboardInterrupt, SystemExit):
        tell("stopped before the end: nothing is judged")
        raise
    finally:
        _delete(plan, topic, _group(topic, token), tell)


def _group(topic: str, token: str) -> str:
    return f"{topic}-{token}"


def _run(
    plan: Plan,
    record: Record,
    begins: Mapping[TopicPartition, int],
    tell: Callable[[str], None],
) -> Result:
    producers, readers = _producers(plan, record), _readers(plan, record)
    faults = Faults(plan.faults, plan.fault_every_s, _told(plan, record.topic))
    with ExitStack() as readers_stack, _stopped_together([*producers, *readers]):
        for each in readers:
            readers_stack.enter_context(each)
        with ExitStack() as producers_stack:
            for each in producers:
                producers_stack.enter_context(each)
            _warm_up(record, [*producers, *readers])
            began = time.monotonic()
            tell(f"{record.topic}: faults and load for {plan.seconds:g} s")
            with faults:
                _wait(began + plan.seconds, [*producers, *readers], lambda: False)
            loaded = time.monotonic()
        tell("the last records are read")
        _wait(time.monotonic() + _CATCH_UP_S, readers, lambda: _has_caught_up(record))
    tell("everything is read")
    final = _read_all(plan, record, begins)
    return _judged(plan, record, [*producers, *readers], faults, final, began, loaded)


@contextmanager
def _stopped_together(clients: Sequence[Client]) -> Iterator[None]:
    """Where the block fails or is interrupted, all clients come to their end at the same time."""
    try:
        yield
    except BaseException:
        for each in clients:
            each.stopped.set()
        raise


def _warm_up(record: Record, clients: Sequence[Client]) -> None:
    """Wait until each partition has acknowledged something and the readers read."""
    readers = [each for each in clients if isinstance(each, Reading)]

    def works() -> bool:
        acknowledged = {partition for partition, _ in tuple(record.acknowledgements)}
        return len(acknowledged) == record.partitions and (
            not readers or any(each.read for each in readers)
        )

    # With acks=0 nobody acknowledges anything: the load runs all the same.
    _wait(time.monotonic() + _WARM_UP_S, clients, works)


def _wait(until: float, clients: Sequence[Client], is_done: Callable[[], bool]) -> None:
    """Wait until so late, or until it is done; HistoryError when a client breaks."""
    while time.monotonic() < until and not is_done():
        for each in clients:
            if each.broken is not None:
                raise HistoryError(f"{each.name} broke: {each.broken!r}")
        time.sleep(0.1)


def _has_caught_up(record: Record) -> bool:
    """Tell whether the readers have read all that was acknowledged."""
    last: dict[PartitionKey, int] = {}
    for send in record.history.sends.values():
        if send.outcome is Outcome.ACKNOWLEDGED:
            last[send.partition] = max(last.get(send.partition, -1), send.offset)
    read: dict[PartitionKey, int] = {}
    for poll in record.history.polls:
        read[poll.partition] = max(read.get(poll.partition, -1), poll.offset)
    return all(read.get(place, -1) >= offset for place, offset in last.items())


def _told(plan: Plan, topic: str) -> dict[str, str]:
    """Return what commands find in their environment; a broker would read MILLSTREAM_…."""
    servers = str(plan.settings["bootstrap.servers"])
    return {"CHECK_BOOTSTRAP_SERVERS": servers, "CHECK_TOPIC": topic}


def _until(look: Callable[[], T], at_most_s: float = 30.0) -> T:
    """Return what a look answers; a cluster that is not ready is asked again."""
    deadline = time.monotonic() + at_most_s
    while True:
        try:
            return look()
        except MillstreamError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)


def _partition_count(admin: Admin, topic: str) -> int:
    return len(admin.describe_topics([topic])[topic].get().partitions)


def _ends(
    admin: Admin, record: Record, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    places = [TopicPartition(record.topic, each) for each in range(record.partitions)]
    found = admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=read_committed)
    return {place: 0 if end is None else end.offset for place, end in found.get_all().items()}


def _begin_there(admin: Admin, record: Record, begins: Mapping[TopicPartition, int]) -> None:
    """Have the group begin where the run does, not at what was in the topic before."""
    if not any(begins.values()):
        return
    now = time.monotonic()
    _until(lambda: admin.alter_group_offsets(record.group, begins).get_all())
    for place, offset in begins.items():
        for step in (Step.SENT, Step.ACKNOWLEDGED):
            key = record.place(place.partition)
            record.history.group_offsets.append(GroupOffset(record.group, key, offset, step, now))


def _producers(plan: Plan, record: Record) -> list[Client]:
    settings: dict[str, object] = {
        "linger.ms": 5,
        "request.timeout.ms": 5_000,
        "delivery.timeout.ms": 60_000,
        "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
        **plan.producing,
        "acks": plan.acks,
        "enable.idempotence": plan.is_idempotent or plan.is_transactional,
    }
    names = [f"p{number}" for number in range(plan.producers)]
    if plan.is_transactional:
        return [Transacting(name, record, settings, plan.rate) for name in names]
    return [Sending(name, record, settings, plan.rate, once=plan.is_idempotent) for name in names]


def _readers(plan: Plan, record: Record) -> list[Client]:
    settings: dict[str, object] = {
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 1_000,
        **plan.reading,
        **_CONSUMING,
        "group.id": record.group,
        "isolation.level": _isolation(plan),
    }
    return [
        *(
            Reading(f"r{number}", record, settings, has_markers=plan.is_transactional)
            for number in range(plan.readers)
        ),
        Asking(record, plan.settings),
    ]


_CONSUMING: Final[Settings] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
}


def _isolation(plan: Plan) -> str:
    return "read_committed" if plan.is_transactional else "read_uncommitted"


def _read_all(
    plan: Plan, record: Record, begins: Mapping[TopicPartition, int]
) -> dict[PartitionKey, dict[int, Value]]:
    """Return what the partitions hold of this run, once no transaction is open any more."""
    deadline = time.monotonic() + _FINAL_S
    while True:
        try:
            with Admin(plan.settings) as admin:
                ends, stable = _ends(admin, record), _ends(admin, record, read_committed=True)
                if ends != stable:
                    raise HistoryError("a transaction stays open")
            return _read_to(plan, record, begins, ends, deadline)
        except MillstreamError as error:
            if time.monotonic() >= deadline:
                raise HistoryError(f"{record.topic} cannot be read to its end: {error}") from error
            time.sleep(_PAUSE_S)


def _read_to(
    plan: Plan,
    record: Record,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    deadline: float,
) -> dict[PartitionKey, dict[int, Value]]:
    settings = {
        **plan.reading,
        **_CONSUMING,
        "auto.offset.reset": "none",
        "isolation.level": _isolation(plan),
    }
    found: dict[PartitionKey, dict[int, Value]] = {
        record.place(each.partition): {} for each in begins
    }
    with Consumer[bytes, bytes](settings) as consumer:
        consumer.assign(begins)
        for place, offset in begins.items():
            consumer.seek(place, min(offset, ends[place]))
        while any(consumer.position(place) < end for place, end in ends.items()):
            if time.monotonic() >= deadline:
                raise HistoryError(f"{record.topic} has not been read to its end in time")
            for each in consumer.poll(0.5):
                value = text_of(each.value)
                if record.is_own(value):
                    found[record.place(each.partition)][each.offset] = value
    return found


def _judged(
    plan: Plan,
    record: Record,
    clients: Sequence[Client],
    faults: Faults,
    final: Mapping[PartitionKey, Mapping[int, Value]],
    began: float,
    loaded: float,
) -> Result:
    sends = list(record.history.sends.values())
    outcomes = Counter(each.outcome for each in sends)
    acknowledged = outcomes[Outcome.ACKNOWLEDGED]
    if not acknowledged and plan.acks != "0":
        own = [each for each in record.errors if each.startswith("p")]
        told = (own or record.errors or ["no error was told"])[-1]
        raise HistoryError(f"nothing was acknowledged: {told}")
    found = judge(record.history, final)
    found += find_gone(record.history, final)
    found += find_moved_back(record.ends)
    found += find_torn(
        ([send.value for send in sends] for sends in record.transactions if _may_be_there(sends)),
        final,
    )
    times = Counter(value for values in final.values() for value in values.values())
    return Result(
        plan=plan,
        topic=record.topic,
        seconds=round(loaded - began, 3),
        sent=len(sends),
        acknowledged=acknowledged,
        refused=outcomes[Outcome.REFUSED],
        unknown=outcomes[Outcome.OPEN],
        read=sum(each.read for each in clients if isinstance(each, Reading)),
        duplicates=sum(number > 1 for number in times.values()),
        longest_gap_s=round(longest_gap(record, began, loaded), 3),
        committed=sum(each.committed for each in clients if isinstance(each, Transacting)),
        aborted=sum(each.aborted for each in clients if isinstance(each, Transacting)),
        faults=tuple(faults.done),
        anomalies=tuple(found),
        errors=dict(Counter(record.errors).most_common()),
    )


def _may_be_there(sends: Sequence[Send]) -> bool:
    return any(each.outcome is not Outcome.REFUSED for each in sends)


def longest_gap(record: Record, began: float, ended: float) -> float:
    """Return the longest time in which some partition acknowledged nothing."""
    gaps = [0.0]
    for partition in range(record.partitions):
        times = sorted(at for index, at in record.acknowledgements if index == partition)
        around = [began, *(each for each in times if began <= each <= ended), ended]
        gaps += [later - earlier for earlier, later in itertools.pairwise(around)]
    return max(gaps)


def _delete(plan: Plan, topic: str, group: str, tell: Callable[[str], None]) -> None:
    """Delete the group, and the topic where the run made it; tell what is left.

    A cluster that is away keeps them. A member that has not come to its end yet leaves the group
    in some seconds.
    """
    wanted: list[tuple[str, str]] = [("group", group)]
    if plan.topic is None:
        wanted.append(("topic", topic))
    reason: MillstreamError | None = None
    deadline = time.monotonic() + _CLEAN_UP_S
    try:
        with Admin({**plan.settings, "default.api.timeout.ms": int(_CLEAN_UP_S * 1000)}) as admin:
            while wanted:
                for kind, name in tuple(wanted):
                    reason = _deleted(admin, kind, name)
                    if reason is None:
                        wanted.remove((kind, name))
                if not wanted or time.monotonic() >= deadline:
                    break
                time.sleep(_PAUSE_S)
    except MillstreamError as error:
        reason = error
    if wanted:
        names = " and ".join(f"{kind} {name}" for kind, name in wanted)
        tell(f"{names}: not deleted: {reason}")


def _deleted(admin: Admin, kind: str, name: str) -> MillstreamError | None:
    """Delete a topic or a group; return why it is still there."""
    delete = admin.delete_topics if kind == "topic" else admin.delete_groups
    error = delete([name])[name].error
    if isinstance(error, KafkaError) and error.error in _IS_GONE:
        return None
    return error
