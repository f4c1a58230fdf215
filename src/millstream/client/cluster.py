"""The cluster for one task of a Spark executor: leaders, and a connection to each broker.

A task of Spark reads one range after the other and nothing else, on one thread that is often
busy in the JVM. For this `Fetcher` (``fetch``), on a loop that its caller turns, costs less than a
consumer (decisions 0053 and 0095): no thread, no groups, responses read into the same memory.
Everything but reading is done by ``Producer``, ``Consumer`` and ``Admin``. Used by one
thread at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar
from weakref import WeakSet

from millstream.client.blocking_loop import BlockingLoop
from millstream.client.closing import Closing
from millstream.client.connection import Connection
from millstream.client.errors import TRANSIENT, ConnectionFailedError, raise_for
from millstream.client.metadata import Broker, Metadata, Partition, Topic, read_metadata
from millstream.client.settings import Address, ClientSettings, parse_bootstrap_servers
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

T = TypeVar("T")

_open: Final[WeakSet[Cluster]] = WeakSet()
"""The clusters of this process that are not closed."""
_opening: Final = threading.Lock()


def out_of_reach() -> list[Address] | None:
    """Return the brokers that clusters of this process cannot connect to, while it is tried; None
    if no cluster knows, because none is open, or none has connected yet. From any thread.
    """
    with _opening:
        found = list(_open)
    away = {address for each in found for address in each.unreachable()}
    if away or any(each.is_connected for each in found):
        return sorted(away, key=str)
    return None


class Cluster(Closing):
    """Connections and metadata of one cluster; a context manager that closes them.

    Metadata of topics is cached until :meth:`forget`; :meth:`retrying` calls that if a response
    shows that it is out of date.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._loop = BlockingLoop(security=settings.security)
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Broker] = {}
        self._topics: dict[str, _Known] = {}
        self._failing: dict[Address, None] = {}
        with _opening:
            _open.add(self)

    @classmethod
    def at(cls, bootstrap_servers: str, *, client_id: str = "millstream") -> Cluster:
        """Return the cluster of ``host:port,…`` with default settings."""
        addresses = parse_bootstrap_servers(bootstrap_servers)
        return cls(ClientSettings(bootstrap_servers=addresses, client_id=client_id))

    # --- metadata --------------------------------------------------------------------------------

    def metadata(
        self, topics: Iterable[str] | None = None, *, create_missing: bool = False
    ) -> Metadata:
        """Request metadata of the cluster and these topics, or of every topic.

        A topic that does not exist is in the result, with its error. With ``create_missing`` the
        broker creates it if its settings allow that.
        """
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create_missing)
        response = self.any_connection().call(request, MetadataResponse)
        raise_for(response.error_code, "metadata")
        metadata = read_metadata(response)
        self._brokers = dict(metadata.brokers)
        self._topics |= {name: _Known.of(topic) for name, topic in metadata.topics.items()}
        return metadata

    def topic(self, name: str, *, create_missing: bool = False) -> Topic:
        """Return a topic that exists; KafkaError otherwise. Waits for leaders to be elected."""
        known = self._topics.get(name)
        if known is not None and known.is_usable:
            return known.topic

        def ask() -> Topic:
            topic = self.metadata([name], create_missing=create_missing).topics[name]
            creating = create_missing and topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if creating or not _has_leaders(topic):
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} has no leader")
            if topic.error is not ErrorCode.NONE:
                raise KafkaError(topic.error, f"topic {name!r}")
            return topic

        return self.retrying(ask)

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """Return a partition that exists and has a leader; KafkaError otherwise."""
        topic = self.topic(topic_partition.topic)
        partition = self._topics[topic.name].partitions.get(topic_partition)
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name!r} has {len(topic.partitions)} partitions, "
                f"no partition {topic_partition.partition}",
            )
        return partition

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[int, list[TopicPartition]]]:
        """Group partitions by the id of the broker that leads them."""
        groups: dict[int, list[TopicPartition]] = {}
        for topic_partition in partitions:
            groups.setdefault(self.partition(topic_partition).leader, []).append(topic_partition)
        return list(groups.items())

    def forget(self) -> None:
        """Drop the cached metadata, so that it is requested again when needed."""
        self._topics.clear()

    # --- connections -----------------------------------------------------------------------------

    def any_connection(self) -> Connection:
        """Return a connection to the first broker that answers, trying open ones before new ones.

        ConnectionFailedError if none of the known brokers does.
        """
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        failures: list[ConnectionFailedError] = []
        known = [broker.address for broker in self._brokers.values()]
        for address in dict.fromkeys([*known, *self.settings.bootstrap_servers]):
            try:
                found = self._connect(address)
            except ConnectionFailedError as error:
                failures.append(error)
            else:
                self._failing.clear()  # nobody waits for those that were tried before it
                return found
        raise failures[-1]

    def connection_to(self, broker_id: int) -> Connection:
        """Return the shared connection to a broker, for one call after the other.

        KafkaError BROKER_NOT_AVAILABLE for an unknown id.
        """
        return self._connect(self._address_of(broker_id))

    def dedicated_connection_to(self, broker_id: int, *, overwrites: bool = False) -> Connection:
        """Return a new connection, which the caller may keep requests in flight on, and closes.

        ``overwrites``: see :class:`Connection`.
        """
        return Connection(
            self._address_of(broker_id), self.settings, self._loop, overwrites=overwrites
        )

    def _address_of(self, broker_id: int) -> Address:
        if broker_id not in self._brokers:
            self.metadata([])
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {broker_id}")
        return broker.address

    def controller(self) -> Connection:
        """Return a connection to the broker that takes administrative requests."""
        controller_id = self.metadata([]).controller_id
        if controller_id not in self._brokers:
            return self.any_connection()
        return self.connection_to(controller_id)

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            try:
                connection = Connection(address, self.settings, self._loop)
            except ConnectionFailedError:
                self._failing[address] = None
                raise
            self._connections[address] = connection
        self._failing.pop(address, None)
        return connection

    @property
    def is_connected(self) -> bool:
        """True while a connection is open. From any thread."""
        return any(each.is_open for each in list(self._connections.values()))

    def unreachable(self) -> list[Address]:
        """Return the brokers that cannot be connected to, while it is tried. From any thread."""
        return list(self._failing)

    # --- trying again ----------------------------------------------------------------------------

    def retrying(self, operation: Callable[[], T]) -> T:
        """Run ``operation`` until it succeeds, for as long as one request may take.

        Errors in ``TRANSIENT`` and connections that broke after they were established are retried;
        the cached leaders are dropped in between.
        """
        deadline = time.monotonic() + self.settings.request_timeout_ms / 1000
        has_failed = False
        while True:
            reached = bool(self._connections)
            try:
                done = operation()
            except ConnectionFailedError:
                if not reached or time.monotonic() > deadline:
                    raise
            except KafkaError as error:
                if error.error not in TRANSIENT or time.monotonic() > deadline:
                    raise
            else:
                if has_failed:  # and not where this is a step of what goes on failing
                    self._failing.clear()
                return done
            has_failed = True
            self.forget()
            time.sleep(self.settings.retry_backoff_ms / 1000)

    # --- closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection."""
        with _opening:
            _open.discard(self)
        self._failing.clear()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._loop.close_transports()


@dataclass(frozen=True, slots=True)
class _Known:
    """A topic, looked through once: who reads many partitions asks for each of them often."""

    topic: Topic
    is_usable: bool
    """There is no error, and each partition has a leader."""
    partitions: Mapping[TopicPartition, Partition]

    @classmethod
    def of(cls, topic: Topic) -> _Known:
        return cls(
            topic,
            topic.error is ErrorCode.NONE and _has_leaders(topic),
            {each.topic_partition: each for each in topic.partitions},
        )


def _has_leaders(topic: Topic) -> bool:
    return all(partition.leader >= 0 for partition in topic.partitions)
