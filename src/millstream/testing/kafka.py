"""A broker or a cluster for tests: real brokers in processes of their own, and what a test does to
them.

``with start_kafka() as kafka:`` is all of it outside pytest; `millstream.testing.plugin` makes the
fixtures.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.coordinator.group.partitioner import group_partition
from millstream.model.errors import ErrorCode
from millstream.model.topic import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from millstream.testing.broker import Broker
from millstream.testing.broker_settings import settings_of_broker, settings_of_cluster
from millstream.testing.clock import Clock
from millstream.testing.errors import TestBrokerError
from millstream.testing.host_process import HostedProcess, HostProcess, wait_for
from millstream.testing.requests import Recording, recorded
from millstream.testing.rules import Requests, Rules
from millstream.testing.security import PASSWORD, USER, Security

if TYPE_CHECKING:
    from millstream.client.admin import Admin
    from millstream.client.consumer import Consumer
    from millstream.client.producer import Producer
    from millstream.testing.frames import Frame

STORE: Final = "store"
"""Stands for the metadata store where brokers are cut."""

_MOVE_TIMEOUT_S: Final = 60.0
_LOOK_S: Final = 0.01


class Kafka:
    """One or several brokers that live as long as this object, see :func:`start_kafka`.

    Every method may be called from any thread; from asyncio, the few that wait for long
    (``clock.advance``, ``start``, ``move_leader``) belong into ``asyncio.to_thread``.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, object] | None = None,
        security: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
    ) -> None:
        """Start. TestBrokerError with the end of a log where a broker does not start."""
        if brokers < 1:
            raise TestBrokerError("a cluster has one broker at least")
        self.security = Security(security, users or {USER: PASSWORD})
        self.is_bent = False
        """True once a fault was made or time was advanced: the plug-in gives such brokers to no
        other test.
        """
        self.namespace = ""
        """Put before the names that ``topic`` and ``group`` are given."""
        self.clock = Clock(self)
        self.rules = Rules(self._watch)
        self._given = {name: str(value) for name, value in (settings or {}).items()}
        self._recordings: list[Recording] = []
        self._cuts: set[frozenset[int | str]] = set()
        self._admin: Admin | None = None
        self._is_closed = False
        self._store: HostedProcess | None = None
        self.brokers: list[Broker] = []
        self.host = HostProcess(is_cluster=brokers > 1, decide=self._decide)
        try:
            self.directory = self.host.directory
            self._start(brokers)
        except BaseException:
            self.close()
            raise

    # --- where it is -----------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Where clients connect: HOST:PORT of each broker, with commas between them."""
        return ",".join(each.bootstrap for each in self.brokers)

    def broker(self, broker_id: int) -> Broker:
        """Return a broker by its id, from 0."""
        for each in self.brokers:
            if each.id == broker_id:
                return each
        ids = ", ".join(str(each.id) for each in self.brokers)
        raise TestBrokerError(f"there is no broker {broker_id}; there are {ids}")

    def client_settings(
        self, library: str = "confluent", *, user: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return what a client is made with, with TLS and a user where the brokers ask for them.

        ``library``: "confluent" (librdkafka), "kafka-python", "aiokafka", "millstream" or "java".
        """
        return self.security.client_settings(library, self.bootstrap, self.directory, user) | more

    # --- topics, groups, clients -----------------------------------------------------------------

    def name(self, name: str) -> str:
        """Return a name in the namespace of this test."""
        return f"{self.namespace}.{name}" if self.namespace else name

    def group(self, name: str = "group") -> str:
        """Return the id of a group in the namespace of this test."""
        return self.name(name)

    def topic(
        self,
        name: str = "topic",
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic in the namespace of this test, unless it is there, and return its name."""
        from millstream.client.core.admin.topics import NewTopic

        whole = self.name(name)
        topic = NewTopic(
            name=whole,
            partitions=partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            configs={key: str(value) for key, value in (settings or {}).items()},
        )
        error = self.admin.create_topics([topic])[whole].error
        if error is None:
            # The broker that is asked next may hear of it later than the one that has answered.
            deadline_s = time.monotonic() + _MOVE_TIMEOUT_S
            while self.leader(whole) < 0 and time.monotonic() < deadline_s:
                time.sleep(_LOOK_S)
        elif error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
        return whole

    def forget_topics(self) -> None:
        """Delete the topics of the namespace."""
        if self.namespace:
            beginning = f"{self.namespace}."
            found = [each for each in self.admin.list_topics() if each.startswith(beginning)]
            self.admin.delete_topics(found)

    @property
    def admin(self) -> Admin:
        """An administrator (``millstream.client.Admin``) that is closed with the brokers."""
        if self._admin is None:
            from millstream.client.admin import Admin

            self._admin = Admin(
                self.client_settings("millstream"), client_id="millstream-testing-admin"
            )
        return self._admin

    def producer(self, **settings: Any) -> Producer:
        """Return a producer (``millstream.client.Producer``); the caller closes it."""
        from millstream.client.producer import Producer

        return Producer(self.client_settings("millstream"), **settings)

    def consumer(self, *topics: str, **settings: Any) -> Consumer[Any, Any]:
        """Return a consumer (``millstream.client.Consumer``) that reads topics from the beginning,
        in a group of this test; the caller closes it.
        """
        from millstream.client.consumer import Consumer

        given = {"group_id": self.group(), "auto_offset_reset": "earliest"} | settings
        consumer: Consumer[Any, Any] = Consumer(self.client_settings("millstream"), **given)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    # --- requests --------------------------------------------------------------------------------

    def next(
        self,
        *apis: str,
        count: int = 1,
        client_id: str | None = None,
        broker: int | None = None,
        where: Callable[[Any], object] | None = None,
    ) -> Requests:
        """Select the next ``count`` requests of these APIs; then say what happens to them::

            kafka.next("Produce", count=2).fail("NOT_LEADER_OR_FOLLOWER")

        ``client_id`` is a pattern for client ids (``orders-*``), ``broker`` the id of a broker, and
        ``where`` a function of the request's body. Each of them restricts the selection.
        """
        return Requests(self.rules, apis, count, client_id, broker, where)

    def every(
        self,
        *apis: str,
        client_id: str | None = None,
        broker: int | None = None,
        where: Callable[[Any], object] | None = None,
    ) -> Requests:
        """Select all requests until the rule is removed; arguments as in :meth:`next`."""
        return Requests(self.rules, apis, None, client_id, broker, where)

    @contextlib.contextmanager
    def record(self) -> Iterator[Recording]:
        """Record all requests of clients while the block runs::

        with kafka.record() as requests:
            ...
        requests.expect("OffsetCommit", 1, client_id="orders-*")
        """
        recording = Recording(self._sync)
        self._recordings.append(recording)
        self._watch()
        try:
            yield recording
        finally:
            self._sync()
            self._recordings.remove(recording)
            recording.stop()
            self._watch()

    # --- leaders and coordinators ----------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition; −1 while there is none, or none is known."""
        found = self.admin.describe_partitions([topic]).get(TopicPartition(topic, partition))
        return -1 if found is None else found.leader

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Make a broker the leader of a partition, of which it has to be a replica in sync."""
        self.broker(to)
        place = TopicPartition(topic, partition)
        found = self.admin.describe_partitions([topic])[place]
        if to not in found.replicas:
            raise TestBrokerError(
                f"broker {to} is no replica of {place}; its replicas are {list(found.replicas)}"
            )
        order = [to, *(each for each in found.replicas if each != to)]
        self.admin.alter_partition_reassignments({place: order}).get_all()
        deadline_s = time.monotonic() + _MOVE_TIMEOUT_S
        while self.leader(topic, partition) != to:
            error = self.admin.elect_leaders([place])[place].error
            if time.monotonic() > deadline_s:
                raise TestBrokerError(f"broker {to} does not become leader of {place}: {error}")
            time.sleep(_LOOK_S)

    def coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> int:
        """Return the broker that coordinates a group or a transactional id."""
        topic, partition = self._coordinated(group, transactional_id)
        return self.leader(topic, partition)

    def move_coordinator(
        self, *, to: int, group: str | None = None, transactional_id: str | None = None
    ) -> None:
        """Make a broker the coordinator of a group or of a transactional id that has been used: the
        leader of its partition of the internal topic is moved, and others with it.
        """
        topic, partition = self._coordinated(group, transactional_id)
        self.move_leader(topic, partition, to=to)

    def _coordinated(self, group: str | None, transactional_id: str | None) -> tuple[str, int]:
        if (group is None) == (transactional_id is None):
            raise TestBrokerError("give a group or a transactional_id")
        topic = GROUP_METADATA_TOPIC if group is not None else TRANSACTION_STATE_TOPIC
        found = [each for each in self._internal() if each.topic == topic]
        if not found:
            raise TestBrokerError(f"there is no {topic} yet: nothing was coordinated so far")
        return topic, group_partition(group or transactional_id or "", len(found))

    def _internal(self) -> list[TopicPartition]:
        names = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
        there = [each for each in self.admin.list_topics(include_internal=True) if each in names]
        return list(self.admin.describe_partitions(there)) if there else []

    # --- cuts ------------------------------------------------------------------------------------

    def cut(self, one: int, other: int | str) -> None:
        """Cut a broker from another one, or from the store (``STORE``), both ways. Nothing is
        refused or lost: data that is sent waits until the cut is healed or a time-out expires.
        """
        self._refuse_without_cluster()
        self.broker(one)
        if other != STORE:
            if one == other or not isinstance(other, int):
                raise TestBrokerError("a broker is cut from another one, or from STORE")
            self.broker(other)
        self.is_bent = True
        self._cuts.add(frozenset((one, other)))
        self._tell_all()

    def isolate(self, broker_id: int) -> None:
        """Cut a broker from all others and from the store; clients still reach it."""
        for each in self.brokers:
            if each.id != broker_id:
                self.cut(broker_id, each.id)
        self.cut(broker_id, STORE)

    def heal(self, one: int | None = None, other: int | str | None = None) -> None:
        """Heal one cut, those of one broker, or all."""
        self._cuts = {
            each
            for each in self._cuts
            if (one is not None and one not in each) or (other is not None and other not in each)
        }
        self._tell_all()

    @property
    def store(self) -> HostedProcess:
        """The process of the metadata store that the brokers of a cluster share."""
        if self._store is None:
            raise TestBrokerError("a single broker keeps its metadata itself")
        return self._store

    def pause_store(self) -> None:
        """Stop the process of the metadata store with SIGSTOP."""
        self.is_bent = True
        self.host.signal(self.store, signal.SIGSTOP)

    def resume_store(self) -> None:
        """Let the metadata store go on."""
        self.host.signal(self.store, signal.SIGCONT)

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill everything and remove every file. Closing twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._admin is not None:
            self._admin.close()
        self.host.close()

    def __enter__(self) -> Kafka:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- within ----------------------------------------------------------------------------------

    def _refuse_without_cluster(self) -> None:
        if len(self.brokers) < 2:
            raise TestBrokerError("a single broker cannot be cut from another one: start several")

    def _start(self, count: int) -> None:
        for index in range(count):
            directory = self.directory / f"broker-{index}"
            directory.mkdir()
            self.brokers.append(Broker(self, index, directory, self._settings_of))
        if count > 1:
            self._store = HostedProcess("store", self.directory / "store.log")
            self.host.start(self._store, "keeper", directory=str(self._store_directory))
            self._store.wait_listening()
        for each in self.brokers:
            each.begin()
        for each in self.brokers:
            each.finish_start()

    @property
    def _store_directory(self) -> Path:
        return self.directory / "store"

    def _settings_of(self, broker: Broker) -> dict[str, str]:
        settings = settings_of_broker(
            broker.id, broker.directory, port=broker.port, protocol=self.security.protocol
        )
        if len(self.brokers) > 1:
            settings |= settings_of_cluster(len(self.brokers), self._store_directory)
        return settings | self.security.broker_settings(self.directory) | self._given

    def _decide(self, process: HostedProcess, frame: Frame) -> None:
        """Take what a broker tells, on the thread that decides."""
        broker_id = int(process.name.split()[-1])
        if frame["event"] != "shown":
            for recording in tuple(self._recordings):
                recording.take(broker_id, frame)
            return
        verdict = self.rules.decide(recorded(broker_id, frame))
        if process.channel is not None:
            process.channel.send({"do": "decided", "number": frame["number"], **verdict})

    def _watch(self) -> None:
        """Tell all brokers which requests they show; in force when this returns."""
        answers = [(each, self._watch_one(each)) for each in self.brokers]
        for broker, answer in answers:
            if answer is not None:
                with _unless_ended(broker):
                    wait_for(answer, f"broker {broker.id} does not take the rule")

    @property
    def watched(self) -> dict[str, Any]:
        """Which requests brokers show, and whether they tell of all."""
        return {"keys": self.rules.keys, "records": bool(self._recordings)}

    def _watch_one(self, broker: Broker) -> Future[Any] | None:
        if not broker.is_running or broker.process.channel is None:
            return None
        answer = broker.process.channel.ask("watch", **{"with": self.watched})
        return None if broker.process.is_paused else answer

    def _sync(self) -> None:
        """Return once what brokers have told so far has been taken."""
        for each in self.brokers:
            if each.is_running and not each.process.is_paused:
                with _unless_ended(each):
                    each.process.call("ping")
        self.host.drain()

    def tell(self, broker: Broker) -> None:
        """Tell a broker that was started or resumed what is in force."""
        self._watch_one(broker)
        self._tell_all()

    def _tell_all(self) -> None:
        if len(self.brokers) < 2:
            return
        for each in self.brokers:
            if each.is_running and not each.process.is_paused and each.process.endpoints_known:
                with _unless_ended(each):
                    each.process.call("cut", **{"with": self.cut_of(each)})

    def cut_of(self, broker: Broker) -> dict[str, Any]:
        """Return what a broker is cut from: addresses, and whether the store."""
        others = {other for cut in self._cuts if broker.id in cut for other in cut - {broker.id}}
        addresses = [
            (host, port)
            for each in self.brokers
            if each.id in others and each.was_started
            for _, host, port in each.process.endpoints
        ]
        return {"addresses": addresses, "store": STORE in others}


@contextlib.contextmanager
def _unless_ended(broker: Broker) -> Iterator[None]:
    """Let what a broker was asked fail where the broker ends just then."""
    try:
        yield
    except TestBrokerError:
        if not broker.process.ended.wait(1.0):
            raise


def start_kafka(
    brokers: int = 1,
    *,
    settings: Mapping[str, object] | None = None,
    security: str = "PLAINTEXT",
    users: Mapping[str, str] | None = None,
) -> Kafka:
    """Start brokers and return them: close them, or use them as a context manager.

    ``settings`` are broker settings under Kafka's names; ``security`` is a protocol of Kafka's for
    clients, with ``users`` (name to password) where it has SASL.
    """
    return Kafka(brokers, settings=settings, security=security, users=users)


def namespace_of(text: str) -> str:
    """Return a text as the beginning of a topic's name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:120]
