"""`millstream serve --brokers`: a keeper and brokers over one directory."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.machine_process import MachineProcess
from tests.waiting import wait_until

from millstream.client.cluster import Cluster
from millstream.client.errors import ClientError
from millstream.client.metadata import Metadata
from millstream.model.errors import KafkaError
from millstream.platform import CAN_PIN

pytestmark = pytest.mark.system

SESSION_MS = 2_000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
SECONDS = 60


def known(bootstrap: str) -> Metadata | None:
    try:
        with Cluster.at(bootstrap) as client:
            return client.metadata(None)
    except (ClientError, KafkaError, OSError):
        return None


def wait_for_brokers(machine: MachineProcess, ids: set[int], ask: int) -> None:
    def so() -> bool:
        found = known(machine.addresses[ask - 1])
        return found is not None and set(found.brokers) == ids

    wait_until(so, f"broker {ask} knows of {ids}")


def create(bootstrap: str, topic: str, partitions: int = 4, replicas: int = 1) -> None:
    """Create a topic, as soon as there is a controller."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(SECONDS)
        except KafkaException as error:
            code = error.args[0].code()
            assert code in (ConfluentError.NOT_CONTROLLER, ConfluentError.TOPIC_ALREADY_EXISTS)
            return bool(code == ConfluentError.TOPIC_ALREADY_EXISTS)
        return True

    wait_until(created, f"topic {topic}")


def leaders(machine: MachineProcess, *topics: str) -> set[int]:
    """Return who leads partitions of some topics, as every broker knows it; empty while they do not
    agree.
    """
    seen = [known(address) for address in machine.addresses]
    told = [
        {
            each.leader
            for topic in topics
            if metadata is not None and topic in metadata.topics
            for each in metadata.topics[topic].partitions
        }
        for metadata in seen
    ]
    return told[0] if all(each == told[0] for each in told) else set()


def produce(bootstrap: str, topic: str, values: Sequence[str], **settings: object) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    if "transactional.id" in settings:
        producer.commit_transaction(SECONDS)
    assert producer.flush(SECONDS) == 0
    assert failures == []


def read(bootstrap: str, topic: str, count: int, group: str) -> list[str]:
    """Read as a member of a group, and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []

    def enough() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
        return len(values) >= count

    wait_until(enough, f"{count} records of {topic}")
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def committed(bootstrap: str, topic: str, group: str, partitions: int = 4) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    found = consumer.committed(
        [TopicPartition(topic, index) for index in range(partitions)], timeout=SECONDS
    )
    consumer.close()
    return sum(max(0, each.offset) for each in found)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineProcess]:
    with MachineProcess(tmp_path_factory.mktemp("machine"), SETTINGS) as running:
        yield running


def test_partitions_and_coordinators_are_spread_and_logs_are_told_apart(
    machine: MachineProcess,
) -> None:
    create(machine.bootstrap, "spread")
    wait_until(lambda: leaders(machine, "spread") == {1, 2}, "both lead")
    values = [str(number) for number in range(200)]
    produce(machine.bootstrap, "spread", values)
    assert sorted(read(machine.bootstrap, "spread", 200, "readers")) == sorted(values)
    found = known(machine.bootstrap)
    assert found is not None
    offsets = found.topics["__consumer_offsets"].partitions
    assert {len(each.replicas) for each in offsets} == {2}
    assert {each.leader for each in offsets} == {1, 2}
    for name in ("keeper", "broker 1", "broker 2"):
        assert f"\n[{name}] " in machine.log
    assert "may have lost data" not in machine.log  # the directory was new


def test_the_keepers_socket_is_of_its_user_alone(machine: MachineProcess) -> None:
    path = machine.data_directory / "millstream-keeper.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hostile:
        hostile.settimeout(SECONDS)
        hostile.connect(os.path.relpath(path))
        hostile.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert hostile.recv(1) == b""
    wait_for_brokers(machine, {1, 2}, ask=1)


def test_a_killed_broker_is_followed_and_started_again(machine: MachineProcess) -> None:
    create(machine.bootstrap, "killed", partitions=2, replicas=2)
    produce(machine.bootstrap, "killed", ["before"])
    victim = machine.broker(2)
    victim.kill()
    produce(machine.bootstrap, "killed", ["between"])
    wait_until(lambda: machine.broker(2).pid != victim.pid, "another process of broker 2")
    wait_for_brokers(machine, {1, 2}, ask=2)
    produce(machine.bootstrap, "killed", ["after"])
    assert sorted(read(machine.bootstrap, "killed", 3, "k")) == ["after", "before", "between"]
    assert "broker 2 was ended by SIGKILL, and is started again" in machine.log


def test_a_killed_keeper_takes_no_session_with_it(machine: MachineProcess) -> None:
    wait_for_brokers(machine, {1, 2}, ask=1)
    victim = machine.keeper()
    count = machine.log.count("registered with broker epoch")
    resumed = machine.log.count("resumes session")
    victim.kill()
    produce(machine.bootstrap, "spread", ["while it is away"])
    wait_until(
        lambda: machine.log.count("resumes session") == resumed + 2, "both resume their sessions"
    )
    create(machine.bootstrap, "after-the-keeper")
    assert machine.log.count("registered with broker epoch") == count, "nobody lost its session"


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_broker_that_stands_still_loses_its_session(
    machine: MachineProcess, broker_id: int
) -> None:
    wait_for_brokers(machine, {1, 2}, ask=1)
    wait_for_brokers(machine, {1, 2}, ask=2)
    other = 3 - broker_id
    paused = machine.broker(broker_id)
    paused.send_signal(signal.SIGSTOP)
    try:
        wait_for_brokers(machine, {other}, ask=other)
        found = known(machine.addresses[other - 1])
        assert found is not None
        assert found.controller_id == other
    finally:
        paused.send_signal(signal.SIGCONT)
    wait_for_brokers(machine, {1, 2}, ask=other)
    wait_for_brokers(machine, {1, 2}, ask=broker_id)
    assert machine.broker(broker_id).pid == paused.pid


def test_a_keeper_that_stands_still_ends_no_session(machine: MachineProcess) -> None:
    wait_for_brokers(machine, {1, 2}, ask=1)
    wait_until(lambda: leaders(machine, "spread") == {1, 2}, "each leads a partition again")
    count = machine.log.count("registered with broker epoch")
    silences = machine.log.count("the keeper has not answered")
    keeper = machine.keeper()
    keeper.send_signal(signal.SIGSTOP)
    try:
        wait_until(
            lambda: machine.log.count("the keeper has not answered") == silences + 2,
            "both brokers notice",
        )
        produce(machine.bootstrap, "spread", ["meanwhile"])
    finally:
        keeper.send_signal(signal.SIGCONT)
    create(machine.bootstrap, "after-the-pause")
    assert machine.log.count("registered with broker epoch") == count


def test_nobody_else_may_use_the_directory(machine: MachineProcess) -> None:
    data = str(machine.data_directory)
    for more in (["--brokers", "2"], []):
        ended = run("serve", "--data-dir", data, "--port", "0", *more)
        assert ended.returncode == 1
        assert "another process is using this directory" in ended.stderr, ended.stderr


def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        before = set(psutil.Process().children(recursive=True))
        ended = run(
            *("serve", "--data-dir", str(tmp_path), "--brokers", "2", "--ports", f"0,{port}")
        )
    assert ended.returncode == 1
    assert ended.stdout == ""
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("millstream: serve: broker 2 did not start: "), ended.stderr
    assert "cannot listen on" in last
    assert set(psutil.Process().children(recursive=True)) == before


@pytest.mark.skipif(not CAN_PIN, reason="the system cannot pin a process to a core")
def test_each_broker_is_pinned_where_asked(tmp_path: Path) -> None:
    with MachineProcess(tmp_path, SETTINGS, arguments=["--pin"]) as machine:
        cores = sorted(os.sched_getaffinity(0))
        pinned = [machine.broker(each).cpu_affinity() for each in (1, 2)]
        assert pinned == [[cores[index % len(cores)]] for index in (0, 1)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_brokers_one_by_one_then_the_keeper(tmp_path: Path, number: int) -> None:
    machine = MachineProcess(tmp_path, SETTINGS)
    machine.start()
    children = psutil.Process(machine.process.pid).children(recursive=True)
    machine.process.send_signal(number)
    assert machine.process.wait(SECONDS) == 0
    machine._forget()
    assert not any(each.is_running() for each in children)
    for directory in (machine.data_directory, machine.data_directory / "broker.2"):
        assert (directory / ".kafka_cleanshutdown").exists()
    assert not (machine.data_directory / "millstream-keeper.sock").exists()


def test_a_second_signal_stops_all_at_once(tmp_path: Path) -> None:
    machine = MachineProcess(tmp_path, SETTINGS)
    machine.start()
    paused = machine.broker(2)  # a rolling stop would wait for it
    paused.send_signal(signal.SIGSTOP)
    one = machine.broker(1)
    machine.process.send_signal(signal.SIGINT)
    machine.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not one.is_running() or one.status() == "zombie", "broker 1 stops")
    paused.send_signal(signal.SIGCONT)
    assert machine.process.wait(SECONDS) == 0
    machine._forget()


def test_brokers_end_with_their_supervisor(tmp_path: Path) -> None:
    machine = MachineProcess(tmp_path, SETTINGS)
    machine.start()
    children = psutil.Process(machine.process.pid).children(recursive=True)
    assert len([each for each in children if each.name() != "sh"]) == 3
    machine.kill()
    wait_until(lambda: not any(each.is_running() for each in children), "all of them end")
    with machine:
        wait_for_brokers(machine, {1, 2}, ask=1)


def test_a_log_that_nobody_reads_stops_nobody(tmp_path: Path) -> None:
    pipe = tmp_path / "broker.err"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    filler = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(filler, b"x" * 4096)
    os.close(filler)

    def wait_for_another(victim: psutil.Process) -> None:
        wait_until(lambda: is_another(victim), "another process of broker 2")
        wait_for_brokers(machine, {1, 2}, ask=2)

    def is_another(victim: psutil.Process) -> bool:
        try:
            return machine.broker(2).pid != victim.pid
        except (AssertionError, psutil.Error):  # it is being started
            return False

    with MachineProcess(tmp_path, SETTINGS) as machine:
        for has_reader in (True, False):
            if not has_reader:
                os.close(reader)
            victim = machine.broker(2)
            victim.kill()
            wait_for_another(victim)


def test_a_hang_up_opens_the_audit_log_again_in_every_broker(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = {"audit.log.management.allowed": "file", "audit.log.file.path": str(path)}
    with MachineProcess(tmp_path, {**SETTINGS, **settings}) as machine:
        create(machine.bootstrap, "one", partitions=1)
        wait_until(path.exists, "the audit log")
        path.rename(tmp_path / "audit.log.1")
        machine.process.send_signal(signal.SIGHUP)
        names = iter(f"t{number}" for number in range(1_000))

        def is_there() -> bool:
            create(machine.bootstrap, next(names), partitions=1)
            return path.exists()

        wait_until(is_there, "another audit log")


def test_a_directory_grows_to_two_brokers_and_back(tmp_path: Path) -> None:
    values = [str(number) for number in range(100)]
    with BrokerProcess(tmp_path, SETTINGS) as alone:
        create(alone.bootstrap, "kept")
        produce(alone.bootstrap, "kept", values[:50])
        produce(alone.bootstrap, "kept", values[50:], **{"transactional.id": "t"})
        assert sorted(read(alone.bootstrap, "kept", 100, "g")) == sorted(values)
        before = committed(alone.bootstrap, "kept", "g")
        found = known(alone.bootstrap)
        assert found is not None
        cluster_id = found.cluster_id
    with MachineProcess(tmp_path, SETTINGS) as machine:
        found = known(machine.bootstrap)
        assert found is not None
        assert found.cluster_id == cluster_id
        assert committed(machine.bootstrap, "kept", "g") == before
        moving = ("cluster", "reassign", "--bootstrap-server", machine.bootstrap, "--execute")
        ended = run(*moving)
        assert ended.returncode == 0, ended.stderr
        topics = ("kept", "__consumer_offsets", "__transaction_state")
        wait_until(lambda: leaders(machine, *topics) == {1, 2}, "both lead")
        assert committed(machine.bootstrap, "kept", "g") == before
        produce(machine.bootstrap, "kept", ["more"], **{"transactional.id": "t"})
        assert sorted(read(machine.bootstrap, "kept", 101, "all")) == sorted([*values, "more"])
        create(machine.bootstrap, "twice", replicas=2)
    serve = ("serve", "--data-dir", str(tmp_path / "data"), "--port", "0")
    refusals = []
    for more in ((), ("--brokers", "1")):
        ended = run(*serve, *more)
        assert ended.returncode == 1
        refusals.append(ended.stderr.splitlines()[-1])
    wanted = "millstream cluster reassign --brokers 1 --replication-factor 1 --execute"
    for text in refusals:
        assert "have replicas on broker 2, which would not be started" in text
        assert "start with --brokers 2" in text
        assert wanted in text
    with MachineProcess(tmp_path, SETTINGS) as machine:
        ended = run(*wanted.split()[1:], "--bootstrap-server", machine.bootstrap)
        assert ended.returncode == 0, ended.stderr
    for process in (
        MachineProcess(tmp_path, SETTINGS, brokers=1),
        BrokerProcess(tmp_path, SETTINGS),
    ):
        with process as alone:
            assert sorted(read(alone.bootstrap, "kept", 101, f"by-{type(process).__name__}")) == (
                sorted([*values, "more"])
            )
            assert committed(alone.bootstrap, "kept", "g") == before
            produce(alone.bootstrap, "twice", ["x"], **{"transactional.id": "t"})


class ProtectedMachine(MachineProcess):
    """Brokers whose listeners stand in a properties file."""

    def command(self) -> list[str]:
        command = super().command()
        for option in ("--host", "--port"):
            at = command.index(option)
            del command[at : at + 2]
        return command


def test_brokers_behind_listeners_that_ask_for_users_find_each_other(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "listeners=SASL_PLAINTEXT://127.0.0.1:0\n"
        "sasl.enabled.mechanisms=PLAIN\n"
        "listener.name.sasl_plaintext.plain.sasl.jaas.config="
        f'{module} required user_admin="a-secret" user_ann="another";\n'
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:admin\n"
    )

    def client(user: str, password: str) -> dict[str, object]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }

    with ProtectedMachine(tmp_path, SETTINGS, arguments=[str(file)]) as machine:
        admin = AdminClient({"bootstrap.servers": machine.bootstrap, **client("admin", "a-secret")})
        admin.create_topics([NewTopic("guarded", 2, 2)])["guarded"].result(SECONDS)

        def in_sync() -> bool:
            found = admin.list_topics(timeout=SECONDS).topics["guarded"].partitions.values()
            return len(found) == 2 and all(len(each.isrs) == 2 for each in found)

        wait_until(in_sync, "both brokers keep what the other one leads")
        produce(machine.bootstrap, "guarded", ["x"], **client("admin", "a-secret"))
        with pytest.raises(AssertionError, match="TOPIC_AUTHORIZATION_FAILED"):
            produce(machine.bootstrap, "guarded", ["x"], **client("ann", "another"))
        lines = [" ".join(each.cmdline()) for each in (machine.broker(1), machine.broker(2))]
        assert all("${env:BROKERS_PASSWORD}" in line for line in lines)
        assert all("BROKERS://127.0.0.1:" in line for line in lines)
