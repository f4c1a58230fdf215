"""The client's metadata: topic ids, partitions, their leaders and leader epochs.

It comes from Metadata responses, which are requested for a new topic, by
:meth:`MetadataView.request_update`, and every ``metadata.max.age.ms``; and from the leader hints in
errors of Produce and Fetch (KIP-951). Two rules keep stale metadata from replacing newer (Kafka:
``Metadata.updateLatestMetadata``): a leader epoch never goes back while the topic keeps its id, and
a topic with another id was recreated, so that everything known about it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.client.core.loop import TimerHandle
from millstream.client.core.network import Network
from millstream.client.core.waiting import Signal, backoff_ms, within
from millstream.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ClosedError,
    TimedOutError,
)
from millstream.client.metadata import Broker, Partition, Topic, read_metadata
from millstream.client.settings import Address
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_WAITED_FOR: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Temporary errors of a topic that is being created."""

_FIRST_BY_ID: Final = 12

NO_LEADER: Final = -1

_LONGEST_NAME: Final = 8_000
"""Characters; the names of requests take up to 32767 bytes."""


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The leader of a partition, according to a broker that is not (KIP-951)."""

    topic_partition: TopicPartition
    leader: int
    leader_epoch: int


class MetadataView:
    """The latest metadata of topics. Everything here runs on the client's loop."""

    def __init__(
        self, network: Network, *, create_topics: bool = True, topic_idle_ms: float = float("inf")
    ) -> None:
        self.version = 0
        """The count of changes, to detect new metadata."""
        self.cluster_id: str | None = None
        self._network = network
        self._loop = network.loop
        self._settings = network.settings
        self._create_topics = create_topics
        self._topic_idle_ms = topic_idle_ms
        self._topics: dict[str, Topic] = {}
        self._names: dict[TopicId, str] = {}
        self._wanted: dict[str, float] = {}
        self._all_wanted = False
        self._changed = Signal()
        self._listeners: list[Callable[[], None]] = []
        self._recreated: list[Callable[[str], None]] = []
        self._refused: list[Callable[[AuthenticationError], None]] = []
        self.refusal: AuthenticationError | None = None
        """Why the last request was not made at all; None again once another one begins."""
        self._update: Deferred[None] | None = None
        self._next: Deferred[None] | None = None
        self._is_asking = False
        self._attempts = 0
        self._timer: TimerHandle | None = None
        self._succeeded_at_ms = self._loop.now_ms()
        self._next_at_ms = 0.0
        """Before this no request follows the last one, unless a new topic is wanted."""
        self._closed = False

    # --- what is known ---------------------------------------------------------------------------

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics known, by name, also those with an error. Not to be changed."""
        return self._topics

    def known(self, name: str) -> Topic | None:
        """Return a topic without an error if it is known; sends no request."""
        topic = self._topics.get(name)
        return topic if topic is not None and topic.error is ErrorCode.NONE else None

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """Return a partition if it is known."""
        topic = self.known(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def leader(self, topic_partition: TopicPartition) -> int:
        """Return the id of the broker that leads a partition, −1 when that is not known."""
        partition = self.partition(topic_partition)
        return NO_LEADER if partition is None else partition.leader

    def topic_id(self, name: str) -> TopicId:
        """Return a topic's id, all zero if the brokers do not return it."""
        topic = self._topics.get(name)
        return ZERO_TOPIC_ID if topic is None else topic.topic_id

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the name of the topic that has this id now."""
        return self._names.get(topic_id)

    # --- asking ----------------------------------------------------------------------------------

    async def topic(self, name: str, timeout_ms: float | None = None) -> Topic:
        """Return a topic; waits while it is unknown, being created, or without any leader.

        Raises BrokerError for permanent errors, and once ``timeout_ms`` (else
        ``request.timeout.ms``) have passed without the topic; TimedOutError if no broker answered
        at all; AuthenticationError at once.
        """
        loop = self._loop
        wait = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = loop.now_ms() + wait
        self.want([name])
        while True:
            topic = self._topics.get(name)
            if topic is not None and topic.error is ErrorCode.NONE:
                return topic
            if topic is not None and topic.error not in _WAITED_FOR:
                del self._topics[name]
                raise BrokerError(topic.error, f"topic {name!r}")
            left = deadline - loop.now_ms()
            if left <= 0:
                raise self._missing(name, wait)
            self.request_update()
            try:
                await within(loop, self._changed.wait(), left, "metadata")
            except TimedOutError:
                raise self._missing(name, wait) from None
            if self._closed:
                raise ClosedError("the client was closed")
            if self.refusal is not None:
                raise self.refusal

    async def names_of(self, topic_ids: Iterable[TopicId]) -> dict[TopicId, str]:
        """Ask a broker for the names of topics; one that does not exist is left out.

        Nothing is found at brokers that cannot be asked by id (Metadata before version 12).
        """
        node_id = self._network.least_loaded()
        version = await self._network.version_for(node_id, MetadataRequest)
        if version < _FIRST_BY_ID:
            return {}
        rows = [MetadataRequestTopic(topic_id=each, name=None) for each in topic_ids]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        response = await self._network.call(node_id, request, MetadataResponse)
        return {
            topic.topic_id: topic.name
            for topic in response.topics
            if topic.name and not topic.error_code
        }

    def want(self, names: Iterable[str]) -> None:
        """Keep these topics up to date; new ones are requested at once.

        BrokerError, before any request, for an illegal topic name.
        """
        now = self._loop.now_ms()
        missing = False
        for name in check_names(names):
            missing = missing or name not in self._wanted
            self._wanted[name] = now
        if missing:
            self.request_update()
            if not self._closed:
                self._loop.call_soon(self._start)

    def want_only(self, names: Iterable[str]) -> None:
        """Keep these topics up to date and no others."""
        chosen = check_names(names)
        self._wanted = {name: at for name, at in self._wanted.items() if name in set(chosen)}
        self.want(chosen)

    def want_all(self, *, wanted: bool = True) -> None:
        """Keep every topic of the cluster up to date, or stop to."""
        if wanted and not self._all_wanted:
            self._all_wanted = wanted
            self.request_update()
        self._all_wanted = wanted

    def used(self, name: str) -> None:
        """Mark a topic as used: one that is unused for long is no longer updated."""
        self._wanted[name] = self._loop.now_ms()

    def request_update(self) -> Deferred[None]:
        """Request metadata soon; the Deferred completes with the next response to a later request.

        Requests are at least ``retry.backoff.ms`` apart, but for a new topic: who learns from a
        response that a partition still has no leader requests the next one at once. Failures of
        brokers are retried: it fails only if the client is closed, or cannot authenticate.
        """
        if self._is_asking:
            # The outstanding response may be older than what the caller has seen.
            if self._next is None:
                self._next = Deferred()
            return self._next
        if self._update is None:
            self._update = Deferred()
            self._attempts = 0
            if self._closed:
                self._update.fail(ClosedError("the client was closed"))
            else:
                self._start_in(self._next_at_ms - self._loop.now_ms())
        return self._update

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every change."""
        self._listeners.append(listener)

    def on_recreated(self, listener: Callable[[str], None]) -> None:
        """Call ``listener(name)`` when a topic has been deleted and created again."""
        self._recreated.append(listener)

    def on_refused(self, listener: Callable[[AuthenticationError], None]) -> None:
        """Call ``listener(error)`` when the client cannot authenticate; nothing is asked again
        before the next :meth:`request_update`.
        """
        self._refused.append(listener)

    def close(self) -> None:
        """Stop updating; waiting calls fail with ClosedError."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        waiting = [each for each in (self._update, self._next) if each is not None]
        self._update = self._next = None
        for each in waiting:
            if not each.done:
                each.fail(ClosedError("the client was closed"))
        self._changed.notify()

    # --- hints -----------------------------------------------------------------------------------

    def apply_hints(self, hints: Iterable[LeaderHint], endpoints: Iterable[Broker] = ()) -> bool:
        """Apply the leaders in an error response; return True if one of them was new (KIP-951)."""
        brokers = {each.broker_id: each for each in endpoints}
        news = False
        for hint in hints:
            partition = self.partition(hint.topic_partition)
            known = hint.leader in brokers or hint.leader in self._network.brokers
            if partition is None or not known or hint.leader_epoch <= partition.leader_epoch:
                continue
            if hint.leader in brokers:
                self._network.add_broker(brokers[hint.leader])
            self._replace(replace(partition, leader=hint.leader, leader_epoch=hint.leader_epoch))
            news = True
        if news:
            self._announce()
        return news

    def _replace(self, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        topic = self._topics[topic_partition.topic]
        partitions = list(topic.partitions)
        partitions[topic_partition.partition] = partition
        self._topics[topic_partition.topic] = replace(topic, partitions=tuple(partitions))

    # --- updates ---------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._closed and self._update is not None and not self._is_asking:
            self._is_asking = True
            self.refusal = None
            spawn(self._ask())

    async def _ask(self) -> None:
        self._drop_idle()
        names = None if self._all_wanted else list(self._wanted)
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=self._create_topics)
        try:
            response = await self._network.send_any(request)
            assert isinstance(response, MetadataResponse)
            self._check(response)
        except (ClientError, KafkaError) as error:
            self._is_asking = False
            self._failed(error)
            return
        self._is_asking = False
        if not self._closed:
            self._take(response, names)

    def _check(self, response: MetadataResponse) -> None:
        error = ErrorCode.of(response.error_code)
        if error is ErrorCode.REBOOTSTRAP_REQUIRED:
            self._network.rebootstrap()
        if error is not ErrorCode.NONE:
            raise BrokerError(error, "metadata")
        if not response.brokers:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster names no broker")

    def _failed(self, error: ClientError | KafkaError) -> None:
        if self._closed or isinstance(error, ClosedError):
            return
        if isinstance(error, AuthenticationError):
            self._refuse(error)
            return
        settings = self._settings
        silent_ms = self._loop.now_ms() - self._succeeded_at_ms
        trigger_ms = settings.metadata_recovery_rebootstrap_trigger_ms
        if settings.metadata_recovery_strategy == "rebootstrap" and silent_ms >= trigger_ms:
            self._network.rebootstrap()
            self._succeeded_at_ms = self._loop.now_ms()
        self._wait_and_start()

    def _refuse(self, error: AuthenticationError) -> None:
        self.refusal = error
        waiting = [each for each in (self._update, self._next) if each is not None]
        self._update = self._next = None
        for each in waiting:
            each.fail(error)
        for listener in list(self._refused):
            listener(error)
        self._changed.notify()

    def _wait_and_start(self) -> None:
        settings = self._settings
        pause = backoff_ms(
            self._loop, self._attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms
        )
        self._attempts += 1
        self._start_in(pause)

    def _start_in(self, delay_ms: float) -> None:
        if delay_ms <= 0:
            self._loop.call_soon(self._start)
        else:
            self._set_timer(delay_ms, self._start)

    def _set_timer(self, delay_ms: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._loop.now_ms() + delay_ms, callback)

    def _take(self, response: MetadataResponse, names: Sequence[str] | None) -> None:
        metadata = read_metadata(response)
        self.cluster_id = metadata.cluster_id
        self._succeeded_at_ms = self._loop.now_ms()
        self._next_at_ms = self._succeeded_at_ms + self._settings.retry_backoff_ms
        self._network.update_brokers(metadata.brokers, metadata.controller_id)
        recreated = [name for name, topic in metadata.topics.items() if self._merge(name, topic)]
        if names is None:
            for name in set(self._topics) - set(metadata.topics):
                del self._topics[name]
        self._names = {
            topic.topic_id: name
            for name, topic in self._topics.items()
            if topic.topic_id != ZERO_TOPIC_ID
        }
        for name in recreated:
            for listener in self._recreated:
                listener(name)
        self._finish()

    def _finish(self) -> None:
        update, self._update, self._next = self._update, self._next, None
        unsettled = any(
            self._topics[name].error in _WAITED_FOR or self._lacks_leader(name)
            for name in self._wanted
            if name in self._topics
        )
        if self._update is not None or unsettled:
            self._update = self._update or Deferred()
            self._wait_and_start()
        else:
            self._attempts = 0
            self._set_timer(self._settings.metadata_max_age_ms, self._refresh)
        self._announce()
        if update is not None and not update.done:
            update.complete(None)

    def _refresh(self) -> None:
        self.request_update()

    def _announce(self) -> None:
        self.version += 1
        for listener in list(self._listeners):
            listener()
        self._changed.notify()

    def _merge(self, name: str, topic: Topic) -> bool:
        """Apply a topic's metadata; return True if it has another id than before."""
        old = self._topics.get(name)
        if topic.error is not ErrorCode.NONE:
            if old is None or old.error is not ErrorCode.NONE or topic.error in _GONE:
                self._topics[name] = replace(topic, topic_id=self.topic_id(name))
            return False
        ids_known = old is not None and ZERO_TOPIC_ID not in (old.topic_id, topic.topic_id)
        recreated = ids_known and old is not None and old.topic_id != topic.topic_id
        if old is not None and not recreated and old.error is ErrorCode.NONE:
            topic = _keep_newest(old, topic)
        self._topics[name] = topic
        return recreated

    def _lacks_leader(self, name: str) -> bool:
        return any(each.leader == NO_LEADER for each in self._topics[name].partitions)

    def _drop_idle(self) -> None:
        oldest = self._loop.now_ms() - self._topic_idle_ms
        for name in [name for name, at in self._wanted.items() if at < oldest]:
            del self._wanted[name]
            self._topics.pop(name, None)

    def _missing(self, name: str, waited_ms: float) -> BrokerError | TimedOutError:
        topic = self._topics.get(name)
        about = f"topic {name!r} was not there after {waited_ms:.0f} ms"
        if topic is not None:
            return BrokerError(topic.error, about)
        return TimedOutError(f"{about}: no broker answered ({self._network.whereabouts()})")


_GONE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)


def _keep_newest(old: Topic, new: Topic) -> Topic:
    """Return the new description, with the old row where its leader epoch is newer."""
    known = {each.topic_partition: each for each in old.partitions}
    rows = tuple(
        known[each.topic_partition]
        if each.topic_partition in known
        and each.leader_epoch < known[each.topic_partition].leader_epoch
        and each.leader_epoch >= 0
        else each
        for each in new.partitions
    )
    return replace(new, partitions=rows)


def check_names(names: Iterable[str]) -> list[str]:
    """Return the names; BrokerError for one that cannot be encoded in a request.

    It would make every later Metadata request fail. The brokers check whether names are legal
    otherwise.
    """
    chosen = list(names)
    for name in chosen:
        if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _is_utf8(name):
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r:.80} is not the name of a topic"
            )
    return chosen


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def broker_of(node_id: int, host: str, port: int, rack: str | None) -> Broker:
    """Return a broker from the fields of an answer."""
    return Broker(node_id, Address(host, port), rack)
