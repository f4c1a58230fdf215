"""The audit log of a broker process: its file and its topic, read by clients and by its command."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests import certificates
from tests.broker_process import BrokerProcess
from tests.system.wire import Wire, create_topic, produce
from tests.tls_broker import TlsBroker
from tests.unit.security.audit.audit_events import check
from tests.waiting import wait_until

from millstream.client import Consumer
from millstream.model.topic import AUDIT_LOG_TOPIC, TopicPartition
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.records.builder import BatchBuilder

pytestmark = pytest.mark.system

DEADLINE_S = 60
SECRETS = {"admin": "pw-of-admin-4711", "ann": "pw-of-ann-4712", "eve": "pw-of-eve-4713"}
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{secret}"' for name, secret in SECRETS.items() if name != "eve")
    + ";"
)
SASL = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "standard",
    "super.users": "User:admin",
    "audit.log.topic.num.partitions": "2",
    "connection.failed.authentication.delay.ms": "0",
}
EVERY_KIND = [
    "authentication.failed",
    "authentication.succeeded",
    *(
        f"{kind}.{outcome}"
        for kind in ("management", "describe", "produce", "consume")
        for outcome in ("denied", "allowed")
    ),
]


def to(destination: str, kinds: list[str]) -> dict[str, str]:
    return {f"audit.log.{kind}": destination for kind in kinds}


def millstream(
    broker: BrokerProcess,
    *words: str,
    user: str = "admin",
    password: str | None = None,
    said: str | None = None,
    code: int = 0,
) -> str:
    """Run a command as a user and return what it prints."""
    secured = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or SECRETS[user],
    }
    options = [part for name, value in secured.items() for part in ("-X", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", *words, "-b", broker.bootstrap, *options],
        input=said,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def in_file(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file. Its end may just be written, or taken back."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def in_topic(bootstrap: str, settings: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the records of the topic as far as it goes now."""
    consumer: Consumer[bytes, bytes] = Consumer(
        {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **(settings or {})}
    )
    with consumer:
        count = len(consumer.partitions_for(AUDIT_LOG_TOPIC))
        partitions = [TopicPartition(AUDIT_LOG_TOPIC, index) for index in range(count)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(each) < ends[each] for each in partitions):
            found += [json.loads(each.value or b"") for each in consumer.poll(1)]
    return found


def told(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return who did what, and with which outcome."""
    data = record["data"]
    who = data["authenticationInfo"]
    if data["kind"] == "authentication":
        return data["outcome"], who["principal"], who["metadata"]["identifier"]
    info = data["authorizationInfo"]
    return (
        data["outcome"],
        who["principal"],
        data["methodName"].removeprefix("kafka."),
        info["operation"],
        info["resourceName"],
        info["decidedBy"],
    )


def a_day(broker: BrokerProcess) -> None:
    """What the users do."""
    millstream(broker, "topic", "create", "hits")
    millstream(broker, "topic", "create", "other")
    ann = ("--principal", "User:ann")
    millstream(broker, "acl", "add", "--topic", "hits", *ann, "-o", "write", "-o", "read")
    millstream(broker, "produce", "hits", user="ann", said="a secret record\n")
    millstream(broker, "consume", "hits", "--exit", user="ann")
    millstream(broker, "produce", "other", user="ann", said="a secret record\n", code=1)
    millstream(broker, "topic", "create", "fresh", user="ann", code=1)
    millstream(broker, "topic", "create", "hits", code=1)
    millstream(broker, "topic", "list", user="eve", code=1)


EXPECTED = {
    ("succeeded", "User:admin", "admin"),
    ("succeeded", "User:ann", "ann"),
    ("failed", "User:ANONYMOUS", "eve"),
    ("allowed", "User:admin", "CreateTopics", "Create", "kafka-cluster", "superUser"),
    ("allowed", "User:admin", "CreateAcls", "Alter", "kafka-cluster", "superUser"),
    ("allowed", "User:ann", "Produce", "Write", "hits", "acl"),
    ("allowed", "User:ann", "Fetch", "Read", "hits", "acl"),
    ("denied", "User:ann", "Metadata", "Describe", "other", "defaultDeny"),
    ("denied", "User:ann", "CreateTopics", "Create", "fresh", "defaultDeny"),
}


@pytest.mark.parametrize("destination", [pytest.param("file", marks=pytest.mark.long), "topic"])
def test_who_did_what(tmp_path: Path, destination: str) -> None:
    path = tmp_path / "audit.log"
    settings = SASL | to(destination, EVERY_KIND) | {"audit.log.file.path": str(path)}
    with BrokerProcess(tmp_path, settings) as broker:
        a_day(broker)
        secured = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": SECRETS["admin"],
        }

        def records() -> list[dict[str, Any]]:
            if destination == "file":
                return in_file(path)
            return in_topic(broker.bootstrap, secured)

        wait_until(lambda: {*map(told, records())} >= EXPECTED, "all of the day in the log")
        found = records()
        shown = millstream(broker, "audit-log", "--denied", *of(path, destination))
        only_ann = millstream(
            broker, "audit-log", "-p", "User:ann", "--kind", "consume", *of(path, destination)
        )
        about = millstream(
            broker, "audit-log", "-r", "hits", "--kind", "management", *of(path, destination)
        )
    assert "failed User:ANONYMOUS from 127.0.0.1 SASL_PLAINTEXT/PLAIN as eve" in shown
    assert (
        "denied User:ann from 127.0.0.1 CreateTopics Create Topic fresh -> TOPIC_AUTHORI" in shown
    )
    assert " allowed " not in shown
    assert "allowed User:ann from 127.0.0.1 Fetch Read Topic hits" in only_ann
    assert "Produce" not in only_ann
    assert "CreateTopics Create Cluster kafka-cluster (hits) -> hits: TOPIC_ALREADY_EXISTS" in about
    assert "CreateAcls" in about
    assert "other" not in about
    text = json.dumps(found)
    assert "a secret record" not in text
    assert not [secret for secret in SECRETS.values() if secret in text + broker.log]
    for each in found:
        check(each)
    assert len({each["id"] for each in found}) == len(found)
    if destination == "file":
        assert path.stat().st_mode & 0o777 == 0o600
        assert AUDIT_LOG_TOPIC not in os.listdir(broker.data_directory)


def of(path: Path, destination: str) -> list[str]:
    return ["--file", str(path)] if destination == "file" else []


def test_it_is_switched_on_and_off_by_the_config_command(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with BrokerProcess(tmp_path, {"audit.log.file.path": str(path)}) as broker:
        quiet = ("topic", "create", "before")
        plain(broker, *quiet)
        assert not path.exists()
        on = "audit.log.management.allowed=file"
        plain(broker, "config", "alter", "--broker-defaults", on)
        plain(broker, "topic", "create", "t")
        wait_until(lambda: "CreateTopics" in str(in_file(path)), "the creation in the log")
        plain(broker, "config", "alter", "--broker-defaults", on.replace("file", "off"))
        plain(broker, "topic", "create", "after")
        records = in_file(path)
    (created,) = [each for each in records if "CreateTopics" in str(each)]
    assert created["data"]["authorizationInfo"]["decidedBy"] == "noAuthorizer"
    assert created["data"]["result"] == {"status": "SUCCESS"}


def plain(broker: BrokerProcess, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", *words, "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append(1, None, b"x")
    return builder.build()


def test_a_full_disk_is_told_once_and_what_is_lost_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = to("file", ["describe.allowed"]) | {
        "audit.log.file.path": str(path),
        "audit.log.repeat.interval.ms": "0",
        "audit.log.queue.max.bytes": "65536",
        "audit.log.burst.events": "100000",
    }
    with BrokerProcess(tmp_path, settings) as broker, Wire(broker.host, broker.port) as wire:
        create_topic(wire, "t", 1)
        wait_until(lambda: counted(in_file(path)) == 1, "that the settings were described")
        assert is_described(wire)
        wait_until(lambda: counted(in_file(path)) == 2, "a record")
        seen, size = 2, path.stat().st_size
        limit(broker, size + 300)
        assert all(is_described(wire) for _ in range(500))
        wait_until(lambda: "cannot be written" in broker.log, "a word about it")
        assert counted(in_file(path)) == seen
        limit(broker, resource.RLIM_INFINITY)
        wait_until(
            lambda: counted(in_file(path)) == seen + 500, "every event, or how many were lost"
        )
        assert any(each["data"].get("reason") == "queue-full" for each in in_file(path))
        log = broker.log
    assert log.count("cannot be written") == 1
    assert log.count("is written to") == 1
    assert path.read_bytes().endswith(b"\n")
    for each in in_file(path):
        check(each)


def is_described(wire: Wire) -> bool:
    """Ask for the topic's partitions, which writes no file but the audit log."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    return wire.call(request, 9, MetadataResponse).topics[0].error_code == 0


def limit(broker: BrokerProcess, size: int) -> None:
    """From now on no file of the broker grows beyond so many bytes."""
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def counted(records: list[dict[str, Any]]) -> int:
    """Return how many events records stand for."""
    return sum(each["data"].get("total", 1) for each in records)


def test_a_directory_that_is_missing_does_not_keep_the_broker_from_serving(
    tmp_path: Path,
) -> None:
    path = tmp_path / "missing" / "audit.log"
    settings = to("file", ["management.allowed"]) | {"audit.log.file.path": str(path)}
    with BrokerProcess(tmp_path, settings) as broker:
        plain(broker, "topic", "create", "t")
        wait_until(lambda: "cannot be written" in broker.log, "a word about it")
        path.parent.mkdir()
        wait_until(lambda: len(in_file(path)) == 1, "the record")


def test_what_is_lost_at_the_end_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "audit.log"
    settings = to("file", ["management.allowed"]) | {"audit.log.file.path": str(path)}
    with BrokerProcess(tmp_path, settings) as broker:
        plain(broker, "topic", "create", "t")
    assert "has lost at the end: 1 of management.allowed" in broker.log


def test_the_file_is_opened_again_at_sighup(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "audit.log.1"
    settings = to("file", ["management.allowed"]) | {"audit.log.file.path": str(path)}
    with BrokerProcess(tmp_path, settings) as broker:
        plain(broker, "topic", "create", "one")
        wait_until(lambda: len(in_file(path)) == 1, "the first record")
        follower = subprocess.Popen(
            [
                *(sys.executable, "-m", "millstream.cli.main", "audit-log"),
                *("--file", str(path), "--follow", "--json"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        try:
            assert "one" in follower.stdout.readline()
            path.rename(moved)
            plain(broker, "topic", "create", "two")
            wait_until(lambda: len(in_file(moved)) == 2, "a record in the file that was moved")
            broker.process.send_signal(signal.SIGHUP)
            plain(broker, "topic", "create", "three")
            wait_until(lambda: len(in_file(path)) == 1, "a record in a new file")
            assert "two" in follower.stdout.readline()
            assert "three" in follower.stdout.readline()
        finally:
            follower.kill()
            follower.wait()
            follower.stdout.close()


def test_a_broker_that_is_killed_loses_no_record_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = (
        to("file", ["produce.allowed"])
        | to("topic", ["management.allowed"])
        | {"audit.log.file.path": str(path), "audit.log.repeat.interval.ms": "0"}
    )
    broker = BrokerProcess(tmp_path, settings)
    broker.start()
    try:
        plain(broker, "topic", "create", "t")
        wait_until(lambda: len(topic_of(broker)) == 1, "the creation in the topic")
        with Wire(broker.host, broker.port) as wire:
            for _ in range(50):
                produce(wire, "t", 0, batch())
        wait_until(lambda: len(in_file(path)) == 50, "the writes in the file")
        broker.kill()
        with path.open("ab") as file:
            file.write(b'{"half of a line')
        broker.start()
        plain(broker, "topic", "create", "u")
        wait_until(lambda: len(topic_of(broker)) == 2, "both creations")
        with Wire(broker.host, broker.port) as wire:
            produce(wire, "t", 0, batch())
        wait_until(lambda: path.read_bytes().count(b"\n") == 52, "the line after the torn one")
        shown = plain(broker, "audit-log", "--file", str(path))
        assert shown.count("Produce Write Topic t") == 51
        assert "1 of the lines are not records" in shown
        ids = [
            json.loads(line)["id"] for line in path.read_text().splitlines() if "half" not in line
        ]
        assert len(set(ids)) == 51, "ids of two runs differ"
    finally:
        broker.stop()


def topic_of(broker: BrokerProcess) -> list[dict[str, Any]]:
    try:
        return in_topic(broker.bootstrap)
    except Exception:  # it is not there yet
        return []


@pytest.mark.long
def test_what_the_rate_limit_leaves_out_is_told(tmp_path: Path) -> None:
    settings = to("topic", ["produce.allowed"]) | {
        "audit.log.repeat.interval.ms": "0",
        "audit.log.max.events.per.second": "1",
        "audit.log.burst.events": "5",
        "log.flush.policy": "os",
    }
    with BrokerProcess(tmp_path, settings) as broker:
        assert "there is no topic __audit_log yet" in plain(broker, "audit-log", code=1)
        plain(broker, "topic", "create", "t")
        with Wire(broker.host, broker.port) as wire:
            for _ in range(300):
                produce(wire, "t", 0, batch())
        wait_until(lambda: counted(topic_of(broker)) == 300, "all events, or how many were not")
        assert "left out (rate-limit): " in plain(broker, "audit-log")


def test_certificates_of_clients(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = to("file", ["authentication.failed", "authentication.succeeded"]) | {
        "audit.log.file.path": str(path),
        "ssl.client.auth": "required",
    }
    with TlsBroker(tmp_path, settings) as broker:
        with broker.connect(certificates.client_side(certificates.client("ann"))):
            wait_until(lambda: len(in_file(path)) >= 1, "the certificate in the log")
        with broker.raw() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            wait_until(lambda: len(in_file(path)) >= 2, "the failure in the log")
    accepted, refused = (each["data"] for each in in_file(path)[:2])
    assert accepted["outcome"] == "succeeded"
    assert "ann" in accepted["authenticationInfo"]["principal"]
    assert accepted["authenticationInfo"]["metadata"]["mechanism"] == "SSL/SSL"
    assert refused["outcome"] == "failed"
    assert "handshake" in refused["result"]["message"]


def test_a_session_that_is_over_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = (
        SASL
        | to("file", ["authentication.expired", "authentication.succeeded"])
        | {
            "audit.log.file.path": str(path),
            "listener.name.plaintext.plain.connections.max.reauth.ms": "300",
        }
    )
    with BrokerProcess(tmp_path, settings) as broker, PlainWire(broker) as wire:
        wire.authenticate("ann", SECRETS["ann"])
        wait_until(lambda: not wire.is_served(), "the end of the session")
        wait_until(lambda: len(in_file(path)) == 2, "both records")
    succeeded, expired = in_file(path)
    assert told(succeeded) == ("succeeded", "User:ann", "ann")
    assert told(expired) == ("expired", "User:ann", "ann")


class PlainWire:
    """A connection that authenticates by PLAIN and then asks for metadata."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.wire = Wire(broker.host, broker.port)

    def __enter__(self) -> PlainWire:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def authenticate(self, user: str, password: str) -> None:
        self.wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        token = f"\0{user}\0{password}".encode()
        answer = self.wire.call(
            SaslAuthenticateRequest(auth_bytes=token), 2, SaslAuthenticateResponse
        )
        assert answer.error_code == 0

    def is_served(self) -> bool:
        try:
            self.wire.call(MetadataRequest(topics=[]), 9, MetadataResponse)
        except Exception:  # the broker has hung up
            return False
        return True
