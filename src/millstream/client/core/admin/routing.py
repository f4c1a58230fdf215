"""Routing of requests to the controller, a leader, a coordinator or a broker, and retries.

Temporary errors (``TRANSIENT`` codes, broken connections) are retried for up to
``default.api.timeout.ms``, only for the items concerned, after leaders, controller and coordinators
have been looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar, cast

from millstream.client.core.admin.outcome import Outcome, Outcomes
from millstream.client.core.loop import ClientLoop
from millstream.client.core.network import CoordinatorType, Network
from millstream.client.core.settings import AdminSettings
from millstream.client.core.waiting import backoff_ms, sleep, within
from millstream.client.errors import TRANSIENT, BrokerError, ConnectionFailedError
from millstream.client.metadata import Metadata, brokers_of, read_metadata
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

K = TypeVar("K")
P = TypeVar("P")
T = TypeVar("T")
R = TypeVar("R", bound=Response)

Asking = Coroutine[Deferred[Any], None, Mapping[K, Outcome[T]]]
"""An outstanding request for the outcomes of some items."""
Ask = Callable[[list[K]], Asking[K, T]]
"""Sends a request for some items and returns their outcomes."""


class Routing:
    """The base class of the operations."""

    def __init__(self, loop: ClientLoop, settings: AdminSettings) -> None:
        self.loop = loop
        self.settings = settings
        self.network = Network(loop, settings)

    @property
    def timeout_ms(self) -> int:
        """The time-out that is sent to brokers."""
        return int(self.settings.request_timeout_ms)

    def close(self) -> None:
        """Close every connection."""
        self.network.close()

    # --- metadata --------------------------------------------------------------------------------

    async def metadata(self, topics: Iterable[str] | None = ()) -> Metadata:
        """Request metadata of the cluster and these topics, or with None of every topic."""
        return read_metadata(await self._metadata(topics))

    async def _metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response = await self.ask_any(request, MetadataResponse)
        if response.error_code:
            raise BrokerError(ErrorCode.of(response.error_code), "metadata")
        self.network.update_brokers(brokers_of(response), response.controller_id)
        return response

    async def by_leader(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, BrokerError]]:
        """Group partitions by the broker that leads them; those without one have an error."""
        wanted = list(topic_partitions)
        # The rows of the response as they are: there may be ten thousand of them.
        response = await self._metadata(dict.fromkeys(each.topic for each in wanted))
        known = {
            topic.name: (topic, {row.partition_index: row.leader_id for row in topic.partitions})
            for topic in response.topics
        }
        leaders: dict[int, list[TopicPartition]] = {}
        failed: dict[TopicPartition, BrokerError] = {}
        for topic_partition in wanted:
            topic, leader_of = known[topic_partition.topic]
            leader = leader_of.get(topic_partition.partition)
            if topic.error_code == 0 and leader is not None and leader >= 0:
                leaders.setdefault(leader, []).append(topic_partition)
                continue
            error = ErrorCode.of(topic.error_code)
            if error is ErrorCode.NONE:
                is_there = leader is not None
                error = (
                    ErrorCode.LEADER_NOT_AVAILABLE
                    if is_there
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            failed[topic_partition] = BrokerError(error, str(topic_partition))
        return leaders, failed

    # --- one request -----------------------------------------------------------------------------

    async def ask_any(self, request: Request, answer: type[R]) -> R:
        """Send a request to any broker; retry, perhaps with another one, while connections fail."""

        async def ask(_: list[None]) -> Mapping[None, Outcome[R]]:
            return {None: Outcome(cast(R, await self.network.send_any(request)))}

        response = (await self.each([None], ask))[None].get()
        assert isinstance(response, answer)
        return response

    async def ask_controller(self, request: Request, answer: type[R]) -> R:
        """Send a request to the controller, without retry."""
        response = await self.network.send_to_controller(request)
        assert isinstance(response, answer)
        return response

    async def ask_coordinator(
        self,
        key: str,
        request: Request,
        answer: type[R],
        *,
        kind: CoordinatorType = CoordinatorType.GROUP,
        max_version: int | None = None,
    ) -> R:
        """Send a request to the coordinator of a group or transactional id, without retry."""
        response = await self.network.send_to_coordinator(
            key, kind, request, max_version=max_version
        )
        assert isinstance(response, answer)
        return response

    async def ask_broker(self, broker_id: int, request: Request, answer: type[R]) -> R:
        """Send a request to one broker, without retry; BrokerError BROKER_NOT_AVAILABLE for an
        unknown id.
        """
        if broker_id not in self.network.brokers:
            await self.metadata()
        if broker_id not in self.network.brokers:
            raise BrokerError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {broker_id}"
            )
        return await self.network.call(broker_id, request, answer)

    # --- items -----------------------------------------------------------------------------------

    async def each(
        self,
        items: Iterable[K],
        ask: Ask[K, T],
        *,
        coordinator_of: Callable[[K], str] | None = None,
    ) -> Outcomes[K, T]:
        """Request items until each has a final outcome, or the time-out has passed.

        Raises errors that concern all of them: UnsupportedVersionError, and ConnectionFailedError
        if the time-out has passed without any outcome.
        """
        if isinstance(items, str | bytes):
            # As a collection a string would be its characters, perhaps other topics or groups.
            raise TypeError(f"expected a list of names, not a single text: [{items!r}]")
        settings = self.settings
        wait = settings.default_api_timeout_ms
        deadline = self.loop.now_ms() + wait
        pending = list(items)
        outcomes: Outcomes[K, T] = Outcomes()
        attempts = 0
        reason: ConnectionFailedError | BrokerError | None = None
        while pending:
            failure: ConnectionFailedError | BrokerError | None = None
            left = deadline - self.loop.now_ms()
            about = f"the cluster, {wait:.0f} ms in all (default.api.timeout.ms)"
            try:
                asking = within(
                    self.loop, spawn(ask(pending)), left, about, where=self.network.whereabouts
                )
                outcomes.update(await asking)
            except (ConnectionFailedError, BrokerError) as error:
                if isinstance(error, BrokerError) and error.error not in TRANSIENT:
                    raise
                # The earlier error is more informative than the time-out.
                is_late = self.loop.now_ms() >= deadline
                failure = reason = reason if reason is not None and is_late else error
            if failure is None:
                pending = [item for item in pending if passes(outcomes[item].error)]
            pause = backoff_ms(
                self.loop, attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms
            )
            if self.loop.now_ms() + pause >= deadline or attempts >= settings.retries:
                if failure is not None and not outcomes:
                    raise failure
                break
            if pending:
                attempts += 1
                self._look_up_anew(pending, coordinator_of)
                await sleep(self.loop, pause)
        return outcomes

    async def each_broker(
        self,
        broker_ids: Iterable[int],
        ask: Callable[[int, list[int]], Asking[int, T]],
    ) -> Outcomes[int, T]:
        """Send a request to several brokers at once; each is its own item."""

        async def ask_some(pending: list[int]) -> dict[int, Outcome[T]]:
            return await self.apart({each: [each] for each in pending}, ask)

        return await self.each(broker_ids, ask_some)

    async def apart(
        self, parts: Mapping[P, list[K]], ask: Callable[[P, list[K]], Asking[K, T]]
    ) -> dict[K, Outcome[T]]:
        """Send requests to several brokers at once, each for its items.

        An error of one broker fails its own items; an exception is raised if no broker could be
        reached, or if one does not support the request.
        """
        waiting = [(items, spawn(ask(part, items))) for part, items in parts.items()]
        found: dict[K, Outcome[T]] = {}
        unreachable: ConnectionFailedError | None = None
        answered = not waiting
        for items, answer in waiting:
            try:
                found.update(await answer)
                answered = True
            except ConnectionFailedError as error:
                unreachable = error
                refused = BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error))
                found.update(dict.fromkeys(items, Outcome(None, refused)))
            except KafkaError as error:
                answered = True
                found.update(dict.fromkeys(items, Outcome(None, error)))
        if unreachable is not None and not answered:
            raise unreachable
        return found

    def _look_up_anew(self, pending: list[K], coordinator_of: Callable[[K], str] | None) -> None:
        if coordinator_of is not None:
            for item in pending:
                self.network.forget_coordinator(coordinator_of(item), CoordinatorType.GROUP)
        else:
            # The controller may have changed; leaders are looked up for each attempt.
            self.network.controller_id = -1


def passes(error: KafkaError | None) -> bool:
    """Return True for a temporary error."""
    return error is not None and error.error in TRANSIENT
