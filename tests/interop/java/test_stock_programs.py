"""Programs of the stock Java client on a broker of ours.

Kafka's TransactionalMessageCopier, its VerifiableConsumer in groups with our members, and
KafkaShareConsumer with every kind of acknowledgement.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.clients.heartbeat_stories import BROKER_SETTINGS
from tests.interop.clients.mixed_group import Member, Ours, OursByHeartbeats
from tests.interop.clients.test_our_consumer import share_a_group
from tests.interop.kafka_cluster import JavaTool, KafkaUnavailableError, kafka_jars
from tests.waiting import wait_until

from millstream.client import Admin, Consumer, Producer, TopicPartition
from millstream.client.core.admin.configs import Change, Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
VERIFIABLE = "org.apache.kafka.tools.VerifiableConsumer"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
PARTITIONS = 3
RECORDS = 1_500


@pytest.fixture(scope="module")
def java() -> JavaTool:
    try:
        return JavaTool(kafka_jars())
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS) as process:
        yield process


def create(broker: BrokerProcess, *topics: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=PARTITIONS) for name in topics]).get_all()


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=500) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def committed_values(broker: BrokerProcess, topic: str) -> Counter[str]:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: Counter[str] = Counter()
    with Consumer[bytes, bytes](
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed"
    ) as consumer:
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)

        def is_read() -> bool:
            found.update((each.value or b"").decode() for each in consumer.poll(0.5))
            return all(consumer.position(place) >= ends[place] for place in places)

        wait_until(is_read, "the end of the topic")
    return found


def copier(
    broker: BrokerProcess, source: str, target: str, name: str, *options: str
) -> Sequence[str]:
    return (
        *(
            "--broker-list",
            broker.bootstrap,
            "--consumer-group",
            source,
            "--transactional-id",
            name,
        ),
        *("--input-topic", source, "--output-topic", target, "--transaction-size", "50"),
        *options,
    )


def test_the_copier_with_random_aborts(
    java: JavaTool, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    source, target = new_topic(), new_topic()
    create(broker, source, target)
    fill(broker, source, RECORDS)
    for partition in range(PARTITIONS):
        options = ("--input-partition", str(partition), "--enable-random-aborts")
        done = java.run(COPIER, *copier(broker, source, target, f"copier-{partition}", *options))
        assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
        last = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
        assert last["totalProcessed"] == RECORDS // PARTITIONS
    assert committed_values(broker, target) == Counter(map(str, range(RECORDS)))


def test_copiers_of_one_group_of_which_one_is_killed(
    java: JavaTool, group_broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Its successor has the same transactional id, ends what it left open, and goes on."""
    broker = group_broker
    source, target = new_topic(), new_topic()
    create(broker, source, target)
    fill(broker, source, RECORDS)
    options = ("--input-partition", "-1", "--group-mode", "--use-group-metadata")
    command = java.command(COPIER, *copier(broker, source, target, "copier", *options))
    with (tmp_path / "first.out").open("wb") as out, subprocess.Popen(command, stdout=out) as first:
        try:

            def has_begun() -> bool:
                return '"totalProcessed":50,' in (tmp_path / "first.out").read_text()

            wait_until(has_begun, "the first transactions")
        finally:
            first.kill()
    done = java.run(COPIER, *copier(broker, source, target, "copier", *options))
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    assert committed_values(broker, target) == Counter(map(str, range(RECORDS)))


class JavaMember(Member):
    """Kafka's VerifiableConsumer."""

    def options(self) -> Sequence[str]:
        return ("--session-timeout", "6000", "--assignment-strategy", RANGE)

    def read(self) -> None:
        command = JavaTool(kafka_jars()).command(
            VERIFIABLE,
            *("--bootstrap-server", self.bootstrap, "--topic", self.topic),
            *("--group-id", self.group, *self.options()),
        )
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            self.process = process
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    self.take(json.loads(line))

    def take(self, event: dict[str, object]) -> None:
        partitions = event.get("partitions", [])
        assert isinstance(partitions, list)
        match event["name"]:
            case "partitions_assigned":
                self.has |= {each["partition"] for each in partitions}
            case "partitions_revoked":
                self.has -= {each["partition"] for each in partitions}
            case "records_consumed":
                for each in partitions:
                    offsets = range(each["minOffset"], each["maxOffset"] + 1)
                    self.note((each["partition"], offset) for offset in offsets)

    def stop(self) -> None:
        self.process.terminate()
        super().stop()


class JavaMemberByHeartbeats(JavaMember):
    """By the consumer protocol (KIP-848)."""

    def options(self) -> Sequence[str]:
        return ("--group-protocol", "consumer", "--group-remote-assignor", self.strategy)


@pytest.mark.parametrize(
    "kinds",
    [
        [JavaMemberByHeartbeats, OursByHeartbeats, JavaMemberByHeartbeats],
        [OursByHeartbeats, JavaMember, JavaMemberByHeartbeats],
        [JavaMember, OursByHeartbeats, Ours],
    ],
    ids=["consumer", "both", "upgrade"],
)
def test_a_group_of_java_and_ours(
    java: JavaTool,
    group_broker: BrokerProcess,
    new_topic: Callable[[], str],
    kinds: list[type[Member]],
) -> None:
    share_a_group(group_broker.bootstrap, new_topic(), "range", kinds)


def test_every_acknowledgement_of_a_share_consumer(
    java: JavaTool, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    create(broker, topic)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        change = Change("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({Resource(ResourceType.GROUP, topic): [change]}).get_all()
    fill(broker, topic, 300)
    program = str(Path(__file__).with_name("ShareWorker.java"))
    done = java.run(program, broker.bootstrap, topic, topic, "300")
    assert done.returncode == 0, done.stderr
    by_word: dict[str, Counter[tuple[int, int]]] = {}
    for line in done.stdout.splitlines():
        word, number, count = line.split()
        by_word.setdefault(word, Counter())[int(number), int(count)] += 1

    def once(numbers: Sequence[int], *, again: Sequence[int] = ()) -> Counter[tuple[int, int]]:
        return Counter((number, 2 if number in again else 1) for number in numbers)

    released, renewed, rejected = (
        [number for number in range(300) if number % 10 == digit] for digit in (3, 5, 7)
    )
    accepted = [number for number in range(300) if number not in rejected]
    word_of = {"release": released, "renew": renewed, "reject": rejected}
    assert {each: by_word[each] for each in word_of} == {
        each: once(numbers) for each, numbers in word_of.items()
    }
    assert by_word["accept"] == once(accepted, again=released)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        offsets = admin.list_share_group_offsets([topic])[topic].get()
    assert {each.lag for each in offsets.values()} == {0}
