"""`millstream.testing` with one broker: rules, recordings, time, disk, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from tests.waiting import wait_until

from millstream.client.core.admin.offsets import EARLIEST
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.find_coordinator import FindCoordinatorResponse
from millstream.testing import Kafka, TestBrokerError, start_kafka

pytestmark = [pytest.mark.system, pytest.mark.filterwarnings("ignore:.*_text is deprecated")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with start_kafka() as kafka:
        yield kafka


def produce(kafka: Kafka, topic: str, value: bytes, **settings: object) -> None:
    producer = confluent_kafka.Producer(kafka.client_settings("confluent") | settings)
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def values(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    with kafka.consumer(topic, group_id=f"{topic}-reader") as consumer:
        found: list[bytes] = []
        while len(found) < count:
            found += [bytes(each.value or b"") for each in consumer.poll(1_000)]
    return found


def test_rules_decide_about_requests_of_unchanged_clients(broker: Kafka) -> None:
    topic = broker.topic("ruled")
    with broker.record() as requests:
        with broker.next("Produce", count=2, client_id="app-*").fail("NOT_ENOUGH_REPLICAS") as rule:
            produce(broker, topic, b"1", **{"client.id": "other"})
            assert rule.times == 0
            produce(broker, topic, b"2", **{"client.id": "app-1", "retry.backoff.ms": 10})
            assert rule.times == 2
        lost = broker.next("Produce").lose_answer()
        produce(broker, topic, b"3", **{"enable.idempotence": True, "retry.backoff.ms": 10})
        assert lost.times == 1
        late = broker.next("Produce", where=lambda body: body.acks == 1).delay(0.05)
        produce(broker, topic, b"4", **{"acks": 1})
        assert late.times == 1
        dropped = broker.next("Metadata", client_id="dropped").drop()
        admin = AdminClient(broker.client_settings("confluent") | {"client.id": "dropped"})
        with pytest.raises(confluent_kafka.KafkaException):
            admin.list_topics(timeout=0.5)
        dropped.wait()
    assert values(broker, topic, 4) == [b"1", b"2", b"3", b"4"]
    requests.expect("Produce", 3, client_id="app-1")
    requests.expect("Produce", 1, where=lambda body: body.acks == 1)
    first = requests.all("Produce", client_id="app-1")[0]
    assert first.answer.responses[0].partition_responses[0].error_code == 19
    requests.expect_order("ApiVersions", "Metadata", "InitProducerId", "Produce")
    with pytest.raises(AssertionError, match="expected 9 Produce request") as failed:
        requests.expect("Produce", 9)
    assert "from 'app-1' to broker 0" in str(failed.value)
    with pytest.raises(TestBrokerError, match="there is no API 'Prodduce'"):
        requests.expect("Prodduce")


def test_an_answer_is_made_by_the_test(broker: Kafka) -> None:
    """Other clients of Python, one of them on asyncio, with a coordinator that moves to and fro."""
    import kafka as kafka_python  # it warns when it is imported

    topic = broker.topic("answered")
    seen: list[str] = []

    def answer(request: object) -> FindCoordinatorResponse | None:
        seen.append(str(request))
        return None

    rule = broker.next("FindCoordinator").answer(answer)
    broken = broker.next("ListOffsets").answer(lambda _: 1 // 0)  # type: ignore[arg-type, return-value]
    moved = broker.next("OffsetCommit").fail("NOT_COORDINATOR")

    async def send_and_read() -> bytes:
        settings = broker.client_settings("aiokafka")
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"async")
        async with aiokafka.AIOKafkaConsumer(
            topic, **settings, group_id="g-async", auto_offset_reset="earliest"
        ) as consumer:
            record = await consumer.getone()
            await consumer.commit()
        return bytes(record.value)

    assert asyncio.run(send_and_read()) == b"async"
    consumer = kafka_python.KafkaConsumer(
        topic,
        **broker.client_settings("kafka-python"),
        group_id="g-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    assert next(consumer).value == b"async"
    consumer.close()
    assert "FindCoordinator" in seen[0]
    assert moved.times == 1
    with pytest.raises(ZeroDivisionError):
        broken.remove()
    broker.rules.failures.clear()
    rule.remove()


def test_time_passes_when_the_test_says_so() -> None:
    """Retention of a week, and the session of a member that says nothing, within a moment."""
    with start_kafka() as kafka:
        topic = kafka.topic("old", settings={"retention.ms": 604_800_000})
        for _ in range(5):
            produce(kafka, topic, bytes(10_000))
        with kafka.consumer(topic, group_id="g") as consumer:
            assert consumer.poll(20_000)
            kafka.clock.advance(minutes=30)
            with kafka.record() as requests:
                wait_until(
                    lambda: bool(consumer.poll(100) or requests.all("JoinGroup")),
                    "the member of an expired session joins again",
                )
        place = TopicPartition(topic, 0)

        def first() -> int:
            found = kafka.admin.list_offsets({place: EARLIEST})[place].get()
            assert found is not None
            return found.offset

        assert first() == 0
        kafka.clock.advance(days=8)
        kafka.clock.advance(minutes=10)
        wait_until(lambda: first() == 5, "all records are older than a week")
        assert kafka.is_bent
        kafka.broker(0).restart()
        assert kafka.clock.ahead.days == 8
        produce(kafka, topic, b"new")
        with pytest.raises(TestBrokerError, match="time passes forwards"):
            kafka.clock.advance(hours=-1)


def test_disks_and_processes_fail() -> None:
    with start_kafka(settings={"log.flush.policy": "ack"}) as kafka:
        broker = kafka.broker(0)
        topic = kafka.topic("t")
        broker.disk.slow(flush=0.2)
        produce(kafka, topic, b"slow")
        broker.disk.heal()
        broker.pause()
        with pytest.raises(TestBrokerError, match="is paused"):
            kafka.clock.advance(seconds=1)
        broker.resume()
        broker.disk.full()
        producer = confluent_kafka.Producer(
            kafka.client_settings("confluent") | {"message.timeout.ms": 2_000}
        )
        errors: list[object] = []
        producer.produce(topic, b"lost", on_delivery=lambda error, _: errors.append(error))
        assert broker.wait_ended() == 1
        broker.wait_for_log("log directory offline")
        producer.flush(30)
        assert errors
        assert errors[0] is not None
        with pytest.raises(TestBrokerError, match="does not run"):
            broker.process.call("ping")
        broker.disk.heal()
        port = broker.port
        broker.start()
        assert broker.port == port
        produce(kafka, topic, b"after")
        broker.kill()
        broker.start()
        assert values(kafka, topic, 2) == [b"slow", b"after"]
        with pytest.raises(TestBrokerError, match="cannot be cut from another one"):
            kafka.cut(0, 1)


@pytest.mark.parametrize("security", ["SASL_SSL", "SSL"])
def test_listeners_with_users_and_tls(security: str) -> None:
    import kafka as kafka_python  # it warns when it is imported

    with start_kafka(security=security, users={"ann": "a-secret"}) as kafka:
        topic = kafka.topic("t")
        with kafka.record() as requests:
            produce(kafka, topic, b"1", **{"client.id": "librdkafka"})
        who = requests.all("Produce")[0].principal
        assert who == ("User:ann" if security == "SASL_SSL" else "User:ANONYMOUS")
        with kafka_python.KafkaProducer(**kafka.client_settings("kafka-python")) as producer:
            producer.send(topic, b"2").get(30)

        async def send() -> None:
            settings = kafka.client_settings("aiokafka")
            async with aiokafka.AIOKafkaProducer(**settings) as producer:
                await producer.send_and_wait(topic, b"3")

        asyncio.run(send())
        assert values(kafka, topic, 3) == [b"1", b"2", b"3"]


KILLED = """
import sys, time
from millstream.testing import start_kafka
kafka = start_kafka(brokers=2)
kafka.topic("t")
kafka.broker(1).pause()
print(kafka.directory, kafka.brokers[0].port, kafka.host.process_id, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("whom", ["the test", "the test and the host"])
def test_nothing_is_left_when_the_test_is_killed(whom: str, tmp_path: Path) -> None:
    """A test killed with SIGKILL, with a broker that is paused."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env=environment
    ) as test:
        assert test.stdout is not None
        directory, port, host = test.stdout.readline().split()
        ours = [psutil.Process(int(host)), *psutil.Process(int(host)).children()]
        assert len(ours) == 4
        if whom == "the test":
            test.kill()
        else:
            os.kill(int(host), signal.SIGKILL)
            test.kill()
    wait_until(lambda: not any(_runs(each) for each in ours), "all processes have ended")
    ports = {each.laddr.port for each in psutil.net_connections("tcp") if each.status == "LISTEN"}
    assert int(port) not in ports
    if whom != "the test":  # the next host to start clears up
        environment = dict(os.environ, TMPDIR=str(tmp_path))
        code = "from millstream.testing import start_kafka; start_kafka().close()"
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    wait_until(lambda: not Path(directory).exists(), "its files are gone")
    assert list(tmp_path.iterdir()) == []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
