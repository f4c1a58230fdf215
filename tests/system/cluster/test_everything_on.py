"""A cluster with everything on, under a load that is checked, through all that befalls one.

TLS, SCRAM, rules, quotas, node ACLs in ZooKeeper (``secured_site``). Certificates expire and are
replaced, a password is rotated, a rule is taken away and given back, brokers are killed and
restarted in turn. Nothing acknowledged is lost, nothing is there twice, nobody reads what he may
not, and whom a change does not concern does not notice it.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from tests.system.cluster.secured_site import (
    IDS,
    REAUTHENTICATE_MS,
    SECRETS,
    SecuredCluster,
    allow,
    alter_broker,
    eventually,
    revoke,
    rule,
    set_password,
    until_in_sync,
)
from tests.system.cluster.watched import (
    PATIENCE_S,
    Member,
    Reader,
    Sender,
    Watched,
    Writer,
    anomalies,
)
from tests.waiting import wait_until

from millstream.cli.main import main
from millstream.client import Admin, Consumer, Producer, RecordMetadata
from millstream.client.core.consumer.errors import CommitFailedError, RebalanceInProgressError
from millstream.client.errors import (
    AbortableTransactionError,
    AuthenticationError,
    TimedOutError,
)
from millstream.history.checker import History, Outcome
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicPartition as Place

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

TOPIC, LEDGER = "numbers", "ledger"
PARTITIONS: Final = 3
LEADERS: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
LIFE_S: Final = 10
"""How long the certificates are valid that expire."""
DENIED: Final = KafkaError.TOPIC_AUTHORIZATION_FAILED


class OurSender(Writer):
    """Our producer, idempotent and with acks=all."""

    def __init__(self, settings: dict[str, Any], history: History, name: str) -> None:
        super().__init__(TOPIC, history, name, PARTITIONS)
        self._settings = settings

    def run(self) -> None:
        with Producer(self._settings, linger_ms=2, request_timeout_ms=5_000) as producer:
            for number in itertools.count():
                if self.stopped.wait(0.004):
                    break
                self._send(producer, self.sending(number), time.monotonic())
            producer.flush(100)

    def _send(self, producer: Producer, send: Any, sent: float) -> None:
        def tell(metadata: RecordMetadata | None, error: Exception | None) -> None:
            if metadata is not None:
                self.told(send, metadata.offset, sent)
            else:
                self.failures.append(error)

        producer.send(
            TOPIC, str(send.value).encode(), partition=send.partition[1], on_delivery=tell
        )


class OurMember(Reader):
    """Our consumer in a group; it commits what it has read."""

    def __init__(self, settings: dict[str, Any], history: History, group: str) -> None:
        super().__init__(TOPIC, history, group)
        self._settings = {**settings, "group.id": group, "auto.offset.reset": "earliest"}
        self.refusals: list[MillstreamError] = []

    def run(self) -> None:
        with Consumer[bytes, bytes](self._settings, enable_auto_commit=False) as consumer:
            consumer.subscribe([self.topic], listener=self)
            while not self.stopped.is_set():
                positions: dict[Place, int] = {}
                for each in consumer.poll(0.1):
                    self.saw(each.partition, each.offset, (each.value or b"").decode())
                    positions[each.topic_partition] = each.offset + 1
                self._commit(consumer, positions)

    def _commit(self, consumer: Consumer[bytes, bytes], positions: dict[Place, int]) -> None:
        if not positions:
            return
        for place, offset in positions.items():
            self.committing(place.partition, offset, time.monotonic())
        try:
            consumer.commit(positions)
        except (CommitFailedError, RebalanceInProgressError, TimedOutError):
            return
        for place, offset in positions.items():
            self.committed(place.partition, offset, time.monotonic())

    def on_partitions_assigned(self, partitions: frozenset[Place]) -> None:
        for each in partitions:
            self.began(each.partition, time.monotonic())

    def on_partitions_revoked(self, partitions: frozenset[Place]) -> None:
        """Every poll's records were committed before the next one."""

    def on_partitions_lost(self, partitions: frozenset[Place]) -> None:
        """Somebody else has them; what was read and not committed comes again."""


class Transactions(Watched):
    """Our transactional producer: ten values in each transaction, each fifth one is aborted."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self._settings = settings
        self.committed: list[bytes] = []
        self.aborted: list[bytes] = []

    def run(self) -> None:
        with Producer(
            self._settings, transactional_id="ledger-1", max_block_ms=60_000, linger_ms=2
        ) as producer:
            producer.init_transactions()
            for number in itertools.count():
                if self.stopped.wait(0.02):
                    return
                self._one(producer, number, [b"%d:%d" % (number, n) for n in range(10)])

    def _one(self, producer: Producer, number: int, values: list[bytes]) -> None:
        producer.begin_transaction()
        for n, value in enumerate(values):
            producer.send(LEDGER, value, partition=n % PARTITIONS)
        if number % 5 == 4:
            producer.abort_transaction()
            self.aborted += values
            return
        try:
            producer.commit_transaction()
        except AbortableTransactionError:
            producer.abort_transaction()
            self.aborted += values
        else:
            self.committed += values

    def wait_for_more(self, count: int = 3, at_most_s: float = PATIENCE_S) -> None:
        goal = len(self.committed) + 10 * count
        self.until(lambda: len(self.committed) >= goal, f"{count} more transactions", at_most_s)


class Story:
    """The cluster, its users, and the load."""

    def __init__(self, cluster: SecuredCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.history = History()
        self.throttled: list[float] = []
        self._make_users()
        self.admin = cluster.admin()
        wanted = {"min.insync.replicas": "2"}
        topics = [
            NewTopic(name, replica_assignment=LEADERS, num_partitions=PARTITIONS, config=wanted)
            for name in (TOPIC, LEDGER)
        ]
        for outcome in self.admin.create_topics(topics).values():
            outcome.result(60)
        until_in_sync(self.admin, TOPIC, LEDGER)
        bootstrap, history = cluster.bootstrap, self.history
        throttling = {"throttle_cb": lambda event: self.throttled.append(event.throttle_time)}
        self.sender = Sender(
            bootstrap,
            TOPIC,
            history,
            "librdkafka",
            PARTITIONS,
            {**cluster.of_user("writer"), **throttling},
        )
        reader = {**cluster.of_user("reader"), "topic.metadata.refresh.interval.ms": 1_000}
        # Bob has a certificate: nothing but the rule itself ends what he was once allowed.
        bob = {**cluster.of_certificate("bob"), "topic.metadata.refresh.interval.ms": 1_000}
        self.our_sender = OurSender(cluster.of_our_user("ours"), history, "ours")
        self.members = [Member(bootstrap, TOPIC, history, "readers", reader) for _ in range(2)]
        self.our_member = OurMember(cluster.of_our_user("reader"), history, "readers-ours")
        self.bob = Member(bootstrap, TOPIC, history, "bobs", bob)
        self.transactions = Transactions(cluster.of_our_user("ours"))
        for each in self.everybody:
            stack.enter_context(each)

    @property
    def writers(self) -> list[Writer]:
        return [self.sender, self.our_sender]

    @property
    def readers(self) -> list[Reader]:
        return [*self.members, self.our_member]

    @property
    def everybody(self) -> list[Watched]:
        return [*self.writers, *self.readers, self.bob, self.transactions]

    def _make_users(self) -> None:
        names = ("admin", "writer", "ours", "reader", "auditor")
        self.cluster.passwords = {name: f"{SECRETS}-{name}" for name in names}
        first = AdminClient(self.cluster.of_broker())
        for name, password in self.cluster.passwords.items():
            set_password(first, name, password)
        on_cluster = ("ALTER", "DESCRIBE", "CREATE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")
        allow(
            first,
            *(rule("admin", each, "BROKER", of="kafka-cluster") for each in on_cluster),
            rule("admin", "DESCRIBE", of="*"),
            rule("writer", "WRITE", of=TOPIC),
            rule("ours", "WRITE", of=TOPIC),
            rule("ours", "WRITE", of=LEDGER),
            rule("ours", "WRITE", "TRANSACTIONAL_ID", of="ledger-", prefix=True),
            rule("reader", "READ", of=TOPIC),
            rule("reader", "READ", "GROUP", of="readers", prefix=True),
            rule("CN=bob", "READ", of=TOPIC),
            rule("CN=bob", "READ", "GROUP", of="bobs"),
            rule("auditor", "READ", of="*"),
            rule("auditor", "READ", "GROUP", of="last-reader-of-", prefix=True),
        )
        for number in IDS:
            for name in names:
                wait_until(lambda: self.cluster.lets_in(number, name), f"{name} at {number}")  # noqa: B023

    def goes_on(self, at_most_s: float = PATIENCE_S) -> None:
        """Wait until everybody whom nothing is forbidden has got further."""
        for writer in [*self.writers, self.transactions]:
            writer.wait_for_more(at_most_s=at_most_s)
        seen = sum(each.read for each in self.members), self.our_member.read
        wait_until(
            lambda: sum(each.read for each in self.members) > seen[0] + 100,
            "the group reads on",
            at_most_s=at_most_s,
        )
        self.our_member.until(
            lambda: self.our_member.read > seen[1] + 100, "our member reads on", at_most_s
        )

    def high_watermarks(self) -> dict[int, int]:
        """Return where the partitions end."""
        auditor = self.cluster.of_user("auditor")
        consumer = LibrdkafkaConsumer({**auditor, "group.id": "last-reader-of-ends"})
        try:
            return {
                index: consumer.get_watermark_offsets(TopicPartition(TOPIC, index), 30)[1]
                for index in range(PARTITIONS)
            }
        finally:
            consumer.close()

    # --- what befalls it -------------------------------------------------------------------------

    def a_quota_is_set(self) -> None:
        assert not self.throttled
        self._set_quota("produce=2KB/s")
        wait_until(lambda: bool(self.throttled), "the writer is throttled")
        self._set_quota("produce=10MB/s")
        self.goes_on()

    def _set_quota(self, quota: str) -> None:
        settings = self.cluster.directory / "admin.properties"
        given = self.cluster.of_our_user("admin")
        settings.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        command = ["quota", "set", "--user", "writer", quota, "--command-config", str(settings)]
        assert main(command) == 0

    def a_rule_is_taken_away_and_given_back(self) -> None:
        self.bob.wait_for_more()
        reads = rule("CN=bob", "READ", of=TOPIC)
        failures = [list(each.failures) for each in self.writers]
        revoke(self.admin, reads)
        for number in IDS:
            eventually(lambda: self._is_denied(number), f"bob is denied by {number}")  # noqa: B023
        ends, polls = self.high_watermarks(), len(self.history.polls)
        self.goes_on()
        self.bob.until(lambda: self.bob.errors[DENIED] > 0, "bob is told")
        unauthorised = [
            each
            for each in self.history.polls[polls:]
            if each.process == self.bob.name and each.offset >= ends[each.partition[1]]
        ]
        assert not unauthorised
        for each in self.members:
            assert not each.errors[DENIED]
        assert failures == [each.failures for each in self.writers]
        allow(self.admin, reads)
        self.bob.wait_for_more()

    def _is_denied(self, number: int) -> bool:
        bob = self.cluster.of_certificate("bob", number)
        found = AdminClient({**bob, "log_level": 0}).list_topics(TOPIC, timeout=5)
        error = found.topics[TOPIC].error
        return error is not None and error.code() == DENIED

    def a_password_is_rotated(self) -> None:
        old, new = self.cluster.passwords["writer"], f"{SECRETS}-rotated"
        settings = {**self.cluster.of_user("writer"), "log_level": 0}
        stays = AdminClient(settings)
        assert TOPIC in stays.list_topics(timeout=20).topics
        set_password(self.admin, "writer", new)
        rotated = time.monotonic()
        self.sender.producer.set_sasl_credentials("writer", new)
        self.cluster.passwords["writer"] = new
        for number in IDS:
            wait_until(lambda: not self.cluster.lets_in(number, "writer", old), "old one refused")  # noqa: B023
            assert self.cluster.lets_in(number, "writer")
        with (
            Admin(self.cluster.of_our_user("writer", old)) as ours,
            pytest.raises(AuthenticationError),
        ):
            ours.list_topics()

        def is_shut_out() -> bool:
            try:
                stays.list_topics(timeout=2)
            except KafkaException:
                return True
            return False

        wait_until(is_shut_out, "who keeps the old password is shut out")
        wait_until(
            lambda: time.monotonic() > rotated + 2 * REAUTHENTICATE_MS / 1000,
            "each connection has authenticated again",
        )
        self.goes_on()

    def certificates_expire_and_are_replaced(self) -> None:
        """Connections that are open live on, those between brokers too.

        One that a busy machine has lost meanwhile (a client that authenticates again too late) can
        not be made anew while the certificates are expired, and whoever needs it waits for the
        next certificate. Then it is tried again: what always ends connections does so three times.
        """
        for attempt in range(3):
            settings = {number: self._admin_of(number) for number in IDS}
            short = self._certificates_expire(settings)
            survived = True
            try:
                self.goes_on(at_most_s=20)
            except AssertionError:
                survived = False
                if attempt == 2:
                    raise
                for number in IDS:  # the connections of ``settings`` may be gone too
                    self.cluster.issue(number, "clients", path=short[number])
                    self.cluster.hang_up([number])
                    wait_until(lambda: self._is_valid(number, "clients"), "a new one")  # noqa: B023
            self._certificates_are_replaced(settings)
            self.goes_on()
            if survived:
                return

    def _certificates_expire(self, settings: dict[int, AdminClient]) -> dict[int, Path]:
        """Those of clients' listeners by settings, those between brokers by files and SIGHUP.

        Returns the files of the former.
        """
        short = {number: self.cluster.directory / f"short-{number}.pem" for number in IDS}
        for number in IDS:
            self._install(number, "clients", short[number], settings[number])
        ends = [self._install(number, "brokers") for number in IDS]
        self.goes_on()
        wait_until(lambda: datetime.now(UTC) > max(ends), "the certificates have expired")
        for number in IDS:
            for listener in ("clients", "brokers"):
                with pytest.raises(ssl.SSLCertVerificationError, match="has expired"):
                    self._served(number, listener)
            assert not self.cluster.lets_in(number, "reader")
        return short

    def _certificates_are_replaced(self, settings: dict[int, AdminClient]) -> None:
        long = {number: self.cluster.directory / f"long-{number}.pem" for number in IDS}
        for number in IDS:
            self.cluster.issue(number, "clients", path=long[number])
            alter_broker(settings[number], number, KEY_STORE, str(long[number]))
            self.cluster.issue(number, "brokers")
            self.cluster.hang_up([number])
        for number in IDS:
            for listener in ("clients", "brokers"):
                wait_until(lambda: self._is_valid(number, listener), "a new certificate")  # noqa: B023
            assert self.cluster.lets_in(number, "reader")
            # And once more by a file that changes where it is.
            before = self._served(number, "clients").serial_number
            self.cluster.issue(number, "clients", path=long[number])
            self.cluster.hang_up([number])
            wait_until(
                lambda: self._served(number, "clients").serial_number != before,  # noqa: B023
                "the changed file is read",
            )

    def _admin_of(self, number: int) -> AdminClient:
        """Return a client with a connection to a broker that is open already."""
        one = {**self.cluster.of_user("admin"), "bootstrap.servers": self.cluster[number].bootstrap}
        admin = AdminClient(one)
        alter_broker(admin, number, KEY_STORE, str(self.cluster.key_store(number, "clients")))
        return admin

    def _install(
        self,
        number: int,
        listener: str,
        path: Path | None = None,
        admin: AdminClient | None = None,
    ) -> datetime:
        """Give a listener a certificate that soon expires; return when."""
        while True:
            ends = self.cluster.issue(number, listener, seconds=LIFE_S, path=path)
            if admin is not None:
                alter_broker(admin, number, KEY_STORE, str(path))
            self.cluster.hang_up([number])
            while datetime.now(UTC) < ends:
                if self._served(number, listener).not_valid_after_utc <= ends:
                    return ends
                time.sleep(0.05)

    def _served(self, number: int, listener: str) -> x509.Certificate:
        """Return the certificate that a new connection is shown."""
        broker = self.cluster[number]
        port = broker.port if listener == "clients" else broker.brokers_port
        context = ssl.create_default_context(cafile=str(self.cluster.authority.path))
        both = self.cluster.directory / f"served-{number}.pem"
        self.cluster.issue(number, listener, path=both)
        context.load_cert_chain(both)
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as secured,
        ):
            found = secured.getpeercert(binary_form=True)
        assert found is not None
        return x509.load_der_x509_certificate(found)

    def _is_valid(self, number: int, listener: str) -> bool:
        try:
            self._served(number, listener)
        except ssl.SSLCertVerificationError:
            return False
        return True

    def brokers_are_killed(self) -> None:
        known = self.admin.list_topics(timeout=30)
        leader = known.topics[TOPIC].partitions[0].leader
        for victim in (leader, known.controller_id):
            self.cluster[victim].kill()
            self.goes_on()
            self.cluster[victim].start()
            until_in_sync(self.admin, TOPIC, LEDGER)

    def brokers_are_restarted_in_turn(self) -> None:
        for number in IDS:
            self.cluster[number].stop()
            self.cluster[number].start()
            until_in_sync(self.admin, TOPIC, LEDGER)
        self.goes_on()


KEY_STORE: Final = "listener.name.clients.ssl.keystore.location"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path) as started:
        yield started


@pytest.mark.long
def test_a_cluster_with_everything_on(cluster: SecuredCluster) -> None:
    try:
        goes_through_everything(cluster)
    except BaseException as error:
        error.add_note(cluster.logs())
        raise


def goes_through_everything(cluster: SecuredCluster) -> None:
    with ExitStack() as stack:
        story = Story(cluster, stack)
        story.goes_on()
        nobody_else_reads_zookeeper(cluster)
        story.a_quota_is_set()
        story.a_rule_is_taken_away_and_given_back()
        story.a_password_is_rotated()
        story.certificates_expire_and_are_replaced()
        story.brokers_are_killed()
        story.brokers_are_restarted_in_turn()
        assert not story.bob.broken
        story.bob.wait_for_more()
    assert [each.failures for each in story.writers] == [[], []]
    auditor = cluster.of_user("auditor")
    found = anomalies(cluster.bootstrap, TOPIC, story.history, PARTITIONS, settings=auditor)
    assert not found
    open_ones = [s for s in story.history.sends.values() if s.outcome is not Outcome.ACKNOWLEDGED]
    assert not open_ones
    there = Counter(committed_values(cluster))
    assert there == Counter(story.transactions.committed)
    for broker in cluster.brokers.values():
        assert SECRETS not in broker.log
        assert "Traceback" not in broker.log
        assert "Principal = User:CN=broker" not in broker.log  # no broker was refused anything
        assert "Principal = User:reader" not in broker.log


def committed_values(cluster: SecuredCluster) -> list[bytes]:
    """Return what readers of committed records find in the ledger."""
    settings = cluster.of_our_user("auditor")
    found: list[bytes] = []
    with Consumer[bytes, bytes](settings, isolation_level="read_committed") as consumer:
        places = [each.topic_partition for each in consumer.partitions_for(LEDGER)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [record.value or b"" for record in consumer.poll(0.5)]
    return found


def nobody_else_reads_zookeeper(cluster: SecuredCluster) -> None:
    """Without the brokers' digest credentials cannot be read, and nothing can be changed."""
    stranger = KazooClient(hosts=cluster.zookeeper)
    stranger.start(20)
    try:
        with pytest.raises(NoAuthError):
            stranger.get("/config/users/writer")
        for path in ("/config/users/writer", "/kafka-acl/Topic", "/controller"):
            with pytest.raises(NoAuthError):
                stranger.set(path, b"")
    finally:
        stranger.stop()
        stranger.close()
