"""Clients of others authenticate at a broker process: every mechanism, wrong secrets, bad input."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.broker_process import BrokerProcess
from tests.unit.security.sasl.tokens import jwks, key, raw, signed

from millstream.protocol.codec import encode_request
from millstream.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.net.sasl.oauth import AbstractTokenProvider

pytestmark = [pytest.mark.system, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ADMIN_SECRET = "admin-hunter2-plain"
ANN_SECRET = "ann's hunter2, = \\ scram"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="{ADMIN_SECRET}" user_admin="{ADMIN_SECRET}";'
)
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
SESSION_MS = 3000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("broker")
    keys = directory / "keys.json"
    keys.write_bytes(jwks(key("RSA", "one")))
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.plaintext.plain.connections.max.reauth.ms": str(SESSION_MS),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "max.connections": "4000",
    }
    with BrokerProcess(directory, settings) as broker:
        add_user(broker, "ann", ANN_SECRET)
        yield broker


def add_user(broker: BrokerProcess, name: str, password: str) -> None:
    admin = AdminClient(confluent(broker, "PLAIN", "admin", ADMIN_SECRET))
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        admin.alter_user_scram_credentials([change])[name].result(20)


def token(**changed: object) -> str:
    now = int(time.time())
    return signed(
        key("RSA", "one"), **{"aud": "kafka", "iat": now, "exp": now + 600, "sub": "ann", **changed}
    )


def confluent(
    broker: BrokerProcess, mechanism: str, name: str = "ann", secret: str = ANN_SECRET
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        return settings | {"oauth_cb": lambda _: (token(), time.time() + 600)}
    return settings | {"sasl.username": name, "sasl.password": secret}


def who(mechanism: str) -> tuple[str, str]:
    return ("admin", ADMIN_SECRET) if mechanism == "PLAIN" else ("ann", ANN_SECRET)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: BrokerProcess, mechanism: str) -> None:
    topic = f"rd-{mechanism}"
    settings = confluent(broker, mechanism, *who(mechanism))
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    producer.poll(0)
    assert producer.flush(20) == 0
    reading = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | reading)
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"hello"
    consumer.close()


class Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


class PythonTokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return token()


def python_options(broker: BrokerProcess, mechanism: str, tokens: object) -> dict[str, Any]:
    name, secret = who(mechanism)
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": secret,
        "sasl_oauth_token_provider": tokens,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: BrokerProcess, mechanism: str) -> None:
    topic = f"aio-{mechanism}"

    async def run() -> None:
        options = python_options(broker, mechanism, Tokens())
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"hello")
        reading = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options)
        async with reading as consumer:
            message = await asyncio.wait_for(consumer.getone(), 20)
            assert message.value == b"hello"

    asyncio.run(run())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: BrokerProcess, mechanism: str) -> None:
    topic = f"python-{mechanism}"
    options = python_options(broker, mechanism, PythonTokens())
    producer = kafka.KafkaProducer(**options)
    producer.send(topic, b"hello").get(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **options
    )
    assert next(iter(consumer)).value == b"hello"
    consumer.close()


@pytest.mark.long
def test_a_client_goes_on_beyond_the_end_of_its_session(broker: BrokerProcess) -> None:
    producer = Producer(confluent(broker, "PLAIN", "admin", ADMIN_SECRET))
    failures: list[object] = []
    end = time.monotonic() + 2.5 * SESSION_MS / 1000
    while time.monotonic() < end:
        producer.produce(
            "sessions", b"x", on_delivery=lambda error, _: failures.append(error) if error else None
        )
        producer.flush(20)
        time.sleep(0.1)
    assert failures == []


@pytest.mark.parametrize(
    ("mechanism", "name", "secret"),
    [
        ("PLAIN", "admin", "wrong-hunter2"),
        ("PLAIN", "nobody", ADMIN_SECRET),
        ("SCRAM-SHA-256", "ann", "wrong-hunter2"),
        ("SCRAM-SHA-512", "nobody", ANN_SECRET),
        ("SCRAM-SHA-256", "admin", ADMIN_SECRET),
    ],
)
def test_wrong_secrets(broker: BrokerProcess, mechanism: str, name: str, secret: str) -> None:
    errors: list[str] = []
    settings = confluent(broker, mechanism, name, secret)
    admin = AdminClient(settings | {"error_cb": lambda error: errors.append(error.str())})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0.1)
    assert any("authentication" in each.lower() for each in errors)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: token(exp=int(time.time()) - 100),
        lambda: token(aud="another"),
        lambda: raw({"alg": "none"}, {"sub": "ann", "aud": "kafka", "exp": time.time() + 100}),
        lambda: signed(key("RSA", "else"), header={"kid": "one"}, aud="kafka"),
    ],
    ids=["expired", "another audience", "no signature", "another key"],
)
def test_bad_tokens(broker: BrokerProcess, bad: Callable[[], str]) -> None:
    settings = confluent(broker, "OAUTHBEARER") | {"oauth_cb": lambda _: (bad(), time.time() + 600)}
    admin = AdminClient(settings)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_a_rotated_password(broker: BrokerProcess) -> None:
    name, first, second = f"u-{uuid.uuid4().hex}", "first-hunter2", "second-hunter2"
    add_user(broker, name, first)
    AdminClient(confluent(broker, "SCRAM-SHA-256", name, first)).list_topics(timeout=20)
    add_user(broker, name, second)
    AdminClient(confluent(broker, "SCRAM-SHA-256", name, second)).list_topics(timeout=20)
    with pytest.raises(KafkaException):
        AdminClient(confluent(broker, "SCRAM-SHA-256", name, first)).list_topics(timeout=2)
    admin = AdminClient(confluent(broker, "PLAIN", "admin", ADMIN_SECRET))
    found = admin.describe_user_scram_credentials([name])[name].result(20)
    assert {info.mechanism for info in found.scram_credential_infos} == {
        ScramMechanism.SCRAM_SHA_256,
        ScramMechanism.SCRAM_SHA_512,
    }
    deletion = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])[name].result(20)
    with pytest.raises(KafkaException):
        AdminClient(confluent(broker, "SCRAM-SHA-256", name, second)).list_topics(timeout=2)
    AdminClient(confluent(broker, "SCRAM-SHA-512", name, second)).list_topics(timeout=20)


def connect(broker: BrokerProcess) -> socket.socket:
    sock = socket.create_connection((broker.host, broker.port), 20)
    sock.settimeout(20)
    return sock


def handshake(sock: socket.socket, mechanism: str = "OAUTHBEARER") -> None:
    sock.sendall(encode_request(SaslHandshakeRequest(mechanism=mechanism), 1, 1, "t").join())
    (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
    assert sock.recv(size, socket.MSG_WAITALL)[4:6] == b"\0\0"


def test_garbage_is_hung_up_on(broker: BrokerProcess) -> None:
    garbage = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + os.urandom(200),
        struct.pack(">i", 10) + os.urandom(10),
        struct.pack(">i", -1),
        struct.pack(">i", 100_000_000) + bytes(1000),
        struct.pack(">ihhih", 10, 3, 12, 1, -1),  # Metadata
    ]
    for each in garbage:
        with connect(broker) as sock:
            sock.sendall(each)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(100) == b""


def test_a_token_of_a_megabyte(broker: BrokerProcess) -> None:
    with connect(broker) as sock:
        handshake(sock)
        request = SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer " + b"x" * (1 << 20))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(encode_request(request, 2, 2, "t").join())
            assert sock.recv(100) == b""


def test_others_do_not_notice_clients_that_stay_in_the_handshake(broker: BrokerProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(1000):
            sock = stack.enter_context(connect(broker))
            if number % 3:
                handshake(sock, MECHANISMS[number % 4])
            if number % 3 == 2:
                sock.sendall(b"\0\0\1\0\0\x24")
        test_librdkafka(broker, "SCRAM-SHA-512")


def test_no_secret_is_shown(broker: BrokerProcess, tmp_path: Path) -> None:
    """In no log, no answer to DescribeConfigs, and no crash."""
    admin = AdminClient(confluent(broker, "PLAIN", "admin", ADMIN_SECRET))
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    (found,) = admin.describe_configs([resource]).values()
    entries = found.result(20)
    name = "listener.name.plaintext.plain.sasl.jaas.config"
    assert entries[name].value is None
    assert entries[name].is_sensitive
    assert "hunter2" not in str({key: entry.value for key, entry in entries.items()})
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        with pytest.raises(KafkaException):
            AdminClient(confluent(broker, mechanism, "ann", "x-hunter2")).list_topics(timeout=1)
    assert "Failed authentication" in broker.log
    assert "hunter2" not in broker.log
    assert token()[:20] not in broker.log

    settings = {**broker.settings, "listener.name.plaintext.plain.sasl.jaas.config": JAAS[:-1]}
    other = BrokerProcess(tmp_path / "refused", settings)
    with pytest.raises(Exception, match="semi-colon") as caught:
        other.start()
    other.kill()
    assert "hunter2" not in str(caught.value)

    crashing = BrokerProcess(tmp_path / "crashing", broker.settings)
    crashing.start()
    AdminClient(confluent(crashing, "PLAIN", "admin", ADMIN_SECRET)).list_topics(timeout=20)
    crashing.process.send_signal(signal.SIGABRT)
    crashing.process.wait(30)
    crashing.kill()
    assert "Fatal Python error" in crashing.log
    assert "hunter2" not in crashing.log


def test_the_first_user_of_a_broker_whose_listeners_all_ask_for_one(tmp_path: Path) -> None:
    """Added to the store by ``millstream user``, then others over the network."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    broker = BrokerProcess(tmp_path / "broker", settings)

    def millstream(*words: str, password: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "millstream.cli.main", *words],
            env=os.environ
            | {
                "MILLSTREAM_USER_PASSWORD": password,
                "MILLSTREAM_CLIENT_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
                "MILLSTREAM_CLIENT_SASL_MECHANISM": "SCRAM-SHA-512",
                "MILLSTREAM_CLIENT_SASL_USERNAME": "root",
                "MILLSTREAM_CLIENT_SASL_PASSWORD": "root-hunter2",
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    directory = str(broker.data_directory)
    millstream("user", "add", "root", "--data-dir", directory, password="root-hunter2")
    with broker:
        millstream("user", "add", "ann", "-b", broker.bootstrap, password="ann-hunter2")
        settings_of_ann = confluent(broker, "SCRAM-SHA-512", "ann", "ann-hunter2")
        AdminClient(settings_of_ann).list_topics(timeout=20)
        found = millstream("user", "list", "--json", "-b", broker.bootstrap, password="")
        assert [(each["user"], each["mechanism"]) for each in json.loads(found)] == [
            ("ann", "SCRAM-SHA-256"),
            ("ann", "SCRAM-SHA-512"),
            ("root", "SCRAM-SHA-256"),
            ("root", "SCRAM-SHA-512"),
        ]
        millstream("user", "remove", "ann", "-b", broker.bootstrap, password="")
        with pytest.raises(KafkaException):
            AdminClient(settings_of_ann).list_topics(timeout=2)
