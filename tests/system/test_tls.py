"""A real broker over TLS: others' clients, wrong certificates, hostile peers, new certificates."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests import certificates
from tests.system.test_hostile_input import read_answer, request_bytes
from tests.tls_broker import TlsBroker

from millstream.client import Admin, Producer
from millstream.protocol.messages.api_versions import ApiVersionsRequest

pytestmark = pytest.mark.system

MEMORY_SLACK = 60 * 1024 * 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    settings = {"ssl.client.auth": "requested", "auto.create.topics.enable": "true"}
    with TlsBroker(tmp_path_factory.mktemp("tls"), settings) as process:
        yield process
        assert "Traceback" not in process.log


def works(sock: socket.socket) -> bool:
    sock.sendall(request_bytes(ApiVersionsRequest(), 0))
    return read_answer(sock)[4:6] == b"\x00\x00"


def is_served(broker: TlsBroker, context: ssl.SSLContext) -> bool:
    """In TLS 1.3 a client learns only after its handshake that its certificate is refused."""
    try:
        with broker.connect(context) as sock:
            return works(sock)
    except (OSError, struct.error):
        return False


def eventually(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.05)


def librdkafka(broker: TlsBroker, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(broker.trust),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def test_a_raw_client_is_served(broker: TlsBroker) -> None:
    with broker.connect() as sock:
        assert sock.version() == "TLSv1.3"
        assert works(sock)


def test_librdkafka_writes_and_reads(broker: TlsBroker) -> None:
    values = [os.urandom(3000) for _ in range(2000)]
    producer = LibrdkafkaProducer(librdkafka(broker))
    for value in values:
        producer.produce("of-librdkafka", value)
        producer.poll(0)
    assert producer.flush(30) == 0
    consumer = LibrdkafkaConsumer(
        {**librdkafka(broker), "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["of-librdkafka"])
    got: list[bytes | None] = []
    while len(got) < len(values):
        messages = consumer.consume(500, 20)
        assert messages
        got += [message.value() for message in messages]
    consumer.close()
    assert got == values


def test_aiokafka_writes_and_reads_with_a_certificate(broker: TlsBroker) -> None:
    context = certificates.client_side(certificates.client("ann"))

    async def story() -> list[bytes | None]:
        options = {
            "bootstrap_servers": broker.bootstrap,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        producer = AIOKafkaProducer(**options)
        await producer.start()
        for n in range(100):
            await producer.send("of-aiokafka", b"%d" % n)
        await producer.stop()
        consumer = AIOKafkaConsumer("of-aiokafka", auto_offset_reset="earliest", **options)
        await consumer.start()
        got = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(100)]
        await consumer.stop()
        return got

    assert asyncio.run(story()) == [b"%d" % n for n in range(100)]


def test_our_client_writes_and_lists(broker: TlsBroker) -> None:
    options = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(broker.trust),
    }
    with Producer(**options) as producer, Admin(**options) as admin:
        producer.send_values([b"a", b"b"], "of-ours").result(30)
        assert "of-ours" in set(admin.list_topics())


def test_a_broker_of_another_authority_or_host_is_not_trusted(broker: TlsBroker) -> None:
    stranger = certificates.client_side(trusted=certificates.authority("stranger"))
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        broker.connect(stranger)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate is not valid for"):
        broker.connect(host="other.example")
    with broker.connect() as sock:
        assert works(sock)


@pytest.mark.parametrize("days", [-1, 5])
def test_a_client_with_a_wrong_certificate_is_refused(broker: TlsBroker, days: int) -> None:
    """One that has expired, and one of an authority that the broker does not trust."""
    by = certificates.authority("stranger") if days > 0 else None
    wrong = certificates.client("ann", by=by, days=days)
    before = len(broker.log.splitlines())
    assert not is_served(broker, certificates.client_side(wrong))
    eventually(lambda: len(broker.log.splitlines()) > before)
    (line,) = broker.log.splitlines()[before:]
    assert "the TLS handshake failed: the certificate is refused: " in line


def test_a_listener_that_requires_certificates(tmp_path: Path) -> None:
    with TlsBroker(tmp_path, {"ssl.client.auth": "required"}) as broker:
        with broker.connect(certificates.client_side(certificates.client())) as sock:
            assert works(sock)
        assert not is_served(broker, certificates.client_side())
        with pytest.raises(KafkaException):
            AdminClient({**librdkafka(broker), "log_level": "0"}).list_topics(timeout=2)


@pytest.mark.parametrize(
    "said",
    [
        request_bytes(ApiVersionsRequest(), 0),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes(1000),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(400) + b"\x16" * 200,
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
    ],
)
def test_what_is_no_tls_is_closed_at_once_with_one_line(broker: TlsBroker, said: bytes) -> None:
    before = len(broker.log.splitlines())
    with broker.connect() as bystander, broker.raw() as sock:
        sock.sendall(said)
        try:
            while sock.recv(1000):
                pass
        except ConnectionResetError:
            pass
        eventually(lambda: len(broker.log.splitlines()) > before)
        assert works(bystander)
    (line,) = broker.log.splitlines()[before:]
    assert "the TLS handshake failed: " in line


def test_a_truncated_record_harms_nobody_else(broker: TlsBroker) -> None:
    with broker.connect() as bystander:
        for size in (1, 5, 20):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = certificates.client_side().wrap_bio(
                incoming, outgoing, server_hostname="localhost"
            )
            with broker.raw() as sock:
                while True:
                    try:
                        tls.do_handshake()
                    except ssl.SSLWantReadError:
                        sock.sendall(outgoing.read())
                        incoming.write(sock.recv(1 << 16))
                    else:
                        break
                sock.sendall(outgoing.read())
                tls.write(request_bytes(ApiVersionsRequest(), 0))
                sock.sendall(outgoing.read()[:size])
            assert works(bystander)


def test_a_thousand_silent_handshakes_and_a_client_that_works(broker: TlsBroker) -> None:
    memory = psutil.Process(broker.process.pid).memory_info()
    opened: list[socket.socket] = []
    with broker.connect() as bystander:
        try:
            for n in range(1000):
                opened.append(broker.raw())
                if n % 2:
                    opened[-1].send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50))
                if n % 50 == 0:
                    assert works(bystander)
            assert works(bystander)
            with broker.connect() as late:
                assert works(late)
        finally:
            for sock in opened:
                sock.close()
    grown = psutil.Process(broker.process.pid).memory_info().rss - memory.rss
    assert grown < MEMORY_SLACK


def serial_of(sock: ssl.SSLSocket) -> int:
    from cryptography import x509

    der = sock.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def test_certificates_are_replaced_by_a_signal_while_clients_are_connected(tmp_path: Path) -> None:
    with TlsBroker(tmp_path) as broker:
        producer = LibrdkafkaProducer(librdkafka(broker))
        with broker.connect() as old:
            before = serial_of(old)
            producer.produce("t", b"1")
            assert producer.flush(20) == 0
            new = certificates.server()
            broker.replace_certificate(new)
            broker.process.send_signal(signal.SIGHUP)

            def is_new() -> bool:
                with broker.connect() as sock:
                    return serial_of(sock) == new.certificate.serial_number != before

            eventually(is_new)
            assert works(old)
            producer.produce("t", b"2")
            assert producer.flush(20) == 0

            # What is wrong is logged, and the certificate before stays.
            broker.keystore.write_bytes(b"nonsense")
            broker.process.send_signal(signal.SIGHUP)
            eventually(lambda: "keeps its certificates" in broker.log)
            assert is_new()
            broker.replace_certificate(certificates.server(("elsewhere.example",)))
            broker.process.send_signal(signal.SIGHUP)
            eventually(lambda: "ssl.allow.dn.changes" in broker.log)
            assert is_new()
        assert "Traceback" not in broker.log


def alter(broker: TlsBroker, name: str, value: str) -> None:
    resource = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)],
    )
    admin = AdminClient(librdkafka(broker))
    (outcome,) = admin.incremental_alter_configs([resource]).values()
    outcome.result(20)


def test_certificates_are_replaced_by_a_change_of_settings(tmp_path: Path) -> None:
    with TlsBroker(tmp_path) as broker:
        new = certificates.server()
        other = certificates.write_pem(tmp_path, "other", new)
        name = "listener.name.ssl.ssl.keystore.location"
        with broker.connect() as old:
            with pytest.raises(KafkaException, match="cannot be read: No such file"):
                alter(broker, name, "/nowhere.pem")
            alter(broker, name, str(other))

            def is_new() -> bool:
                with broker.connect() as sock:
                    return serial_of(sock) == new.certificate.serial_number

            eventually(is_new)
            assert works(old)
        broker.stop()
        broker.start()
        assert is_new()


def test_passwords_are_not_described(tmp_path: Path) -> None:
    certificate = certificates.server()
    (tmp_path / "s.p12").write_bytes(certificate.pkcs12("server", "sesame-1"))
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(tmp_path / "s.p12"),
        "listener.name.ssl.ssl.keystore.password": "sesame-1",
        "ssl.key.password": "sesame-2",
    }
    with TlsBroker(tmp_path / "broker", settings) as broker:
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        admin = AdminClient(librdkafka(broker))
        (outcome,) = admin.describe_configs([resource]).values()
        entries = outcome.result(20)
        for name in ("listener.name.ssl.ssl.keystore.password", "ssl.key.password"):
            assert entries[name].is_sensitive
            assert entries[name].value is None
        assert entries["ssl.keystore.type"].value == "PKCS12"
        assert "sesame" not in broker.log + repr(entries)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.keystore.location": "/nowhere.pem"}, "ssl.keystore.location: /nowhere.pem cannot"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "ssl.principal.mapping.rules: "),
        ({"listener.name.ssl.ssl.protocol": "SSLv3"}, "listener.name.ssl.ssl.protocol: 'SSLv3'"),
    ],
)
def test_a_start_with_wrong_settings_says_which(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    from tests.broker_process import BrokerFailedError

    with pytest.raises(BrokerFailedError) as caught:
        TlsBroker(tmp_path, settings).start()
    assert message in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_sasl_under_tls_and_who_does_not_finish_is_closed(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required user_ann="sesame";',
        "connections.authentication.timeout.ms": "1500",
        # Of the whole broker: it does not hold with SASL_SSL (KIP-684).
        "ssl.client.auth": "required",
    }
    with TlsBroker(tmp_path, settings, protocol="SASL_SSL") as broker:
        options = {
            **librdkafka(broker),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "sesame",
        }
        producer = LibrdkafkaProducer(options)
        producer.produce("t", b"1")
        assert producer.flush(20) == 0
        with broker.connect() as silent:
            silent.settimeout(20)
            assert silent.recv(1) == b""  # its handshake is done, its SASL exchange is not
        assert "its authentication took too long" in broker.log
        producer.produce("t", b"2")
        assert producer.flush(20) == 0
        wrong = AdminClient({**options, "sasl.password": "wrong", "log_level": "0"})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=3)
        assert "sesame" not in broker.log
        assert "Traceback" not in broker.log
