"""What a broker bears of peers that it does not know: ten thousand, garbage, refusals, mistakes."""

from __future__ import annotations

import re
import resource
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests import certificates
from tests.broker_process import BrokerProcess
from tests.system.half_open_peers import hello
from tests.system.test_hostile_input import read_answer, request_bytes
from tests.system.test_tls import works
from tests.tls_broker import TlsBroker
from tests.waiting import wait_until

from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.describe_groups import DescribeGroupsRequest
from millstream.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.system

PEERS = 10_000
MEMORY_SLACK = 80 * 1024 * 1024
"""A thousand may be half open, and each holds some 42 KiB, most of it in OpenSSL."""
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BACKLOG = {"socket.listen.backlog.size": "1024"}
"""Else the kernel drops what connects faster than a busy machine accepts, and a second passes."""
SASL = {
    **BACKLOG,
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_ann="sesame";',
    "connection.failed.authentication.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("tls"), BACKLOG) as broker:
        yield broker
        assert "Traceback" not in broker.log


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("sasl"), SASL) as broker:
        yield broker
        assert "Traceback" not in broker.log
        assert "sesame" not in broker.log


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=30)


def log_in(sock: socket.socket, password: str = "sesame") -> bool:
    sock.sendall(request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1))
    read_answer(sock)
    token = f"\0ann\0{password}".encode()
    sock.sendall(request_bytes(SaslAuthenticateRequest(auth_bytes=token), 1))
    return read_answer(sock)[4:6] == b"\0\0"


@contextmanager
def peers(kind: str, broker: BrokerProcess) -> Iterator[None]:
    """Ten thousand connections that stay in the handshake."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < PEERS + 100:
        pytest.skip("a process may not have ten thousand sockets here")
    command = [sys.executable, "-m", "tests.system.half_open_peers", kind]
    process = subprocess.Popen(
        [*command, str(broker.port), str(PEERS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield
    finally:
        process.communicate()


def memory(broker: BrokerProcess) -> int:
    return psutil.Process(broker.process.pid).memory_info().rss


def log_since(broker: BrokerProcess, size: int) -> str:
    return broker.log[size:]


def accounted(log: str, text: str) -> int:
    """Return how many lines of a kind there were, those counted that were left out."""
    lines = [line for line in log.splitlines() if re.search(text, line)]
    left_out = [re.search(r"(\d+) more lines of this kind were left out", line) for line in lines]
    return sum(1 if found is None else int(found[1]) for found in left_out)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tls", "sasl"])
def test_ten_thousand_peers_that_stay_in_the_handshake(
    request: pytest.FixtureRequest, kind: str, record_property: pytest.RecordProperty
) -> None:
    broker: BrokerProcess = request.getfixturevalue(kind)
    before, size = memory(broker), len(broker.log)
    with open_client(broker) as bystander, peers(kind, broker):
        assert works(bystander)
        grown = memory(broker) - before
        with open_client(broker) as late:
            assert works(late)
        assert works(bystander)
    record_property("grown_mib", grown / 2**20)
    assert grown < MEMORY_SLACK
    log = log_since(broker, size)
    assert len(log.splitlines()) < PEERS / 20
    wait_until(
        lambda: accounted(log_since(broker, size), "its authentication") > PEERS / 2,
        "all that gave way are counted in the log",
    )


@contextmanager
def open_client(broker: BrokerProcess) -> Iterator[socket.socket]:
    """A client that is served."""
    with connect(broker) as sock:
        if isinstance(broker, TlsBroker):
            context = certificates.client_side()
            with context.wrap_socket(sock, server_hostname="localhost") as secured:
                yield secured
        else:
            assert log_in(sock)
            yield sock


def test_ten_thousand_refusals_write_few_lines(sasl: BrokerProcess) -> None:
    size = len(sasl.log)
    groups = [f"group-{number}" for number in range(1_000)]
    with connect(sasl) as sock:
        assert log_in(sock)
        for _ in range(10):
            sock.sendall(request_bytes(DescribeGroupsRequest(groups=groups), 5))
            read_answer(sock)
    denied = "is Denied operation = DESCRIBE|left out.*Principal = "
    wait_until(
        lambda: accounted(log_since(sasl, size), denied) == 10_000, "every refusal is counted"
    )
    lines = log_since(sasl, size).splitlines()
    assert len(lines) < 1_000
    assert " INFO " in lines[0]


def test_a_thousand_failed_logins_write_few_lines(sasl: BrokerProcess) -> None:
    size = len(sasl.log)
    for _ in range(1_000):
        with connect(sasl) as sock:
            assert not log_in(sock, "wrong")
    failed = "Failed authentication|left out.*Failed %sauthentication"
    wait_until(lambda: accounted(log_since(sasl, size), failed) == 1_000, "each is counted")
    assert len(log_since(sasl, size).splitlines()) < 800


def is_hung_up_on(sock: socket.socket, said: bytes) -> bool:
    sock.sendall(said)
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    "said",
    [
        request_bytes(ApiVersionsRequest(), 0),
        request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["ApiVersions", "SaslHandshake", "HTTP"],
)
def test_a_plain_client_at_a_port_with_tls_is_named_at_once(tls: TlsBroker, said: bytes) -> None:
    size = len(tls.log)
    with tls.raw() as sock:
        port = sock.getsockname()[1]
        assert is_hung_up_on(sock, said)
    line = f"closed the connection of 127.0.0.1:{port}: the TLS handshake failed: the peer does not"
    wait_until(lambda: line in log_since(tls, size), "the broker says so")


def test_a_client_with_tls_at_a_plain_port_is_named_at_once(
    broker: BrokerProcess, sasl: BrokerProcess
) -> None:
    for place in (broker, sasl):
        size = len(place.log)
        with connect(place) as sock:
            port = sock.getsockname()[1]
            with pytest.raises((ssl.SSLError, OSError)):
                certificates.client_side().wrap_socket(sock, server_hostname="localhost")
        line = f"closing the connection of 127.0.0.1:{port}: the peer speaks TLS, which this"
        wait_until(lambda: line in log_since(place, size), "the broker says so")  # noqa: B023


def test_a_client_without_sasl_is_named_at_once(sasl: BrokerProcess) -> None:
    size = len(sasl.log)
    with connect(sasl) as sock:
        assert is_hung_up_on(sock, struct.pack(">ihhih", 10, 3, 12, 1, -1))
    line = "API 3 came before the authentication: the client speaks another security protocol"
    wait_until(lambda: line in log_since(sasl, size), "the broker says so")


def test_garbage_at_every_byte_of_the_first_flight(tls: TlsBroker) -> None:
    """It is refused, or overlooked where nothing depends on it; nobody else notices."""
    first = hello()
    before = memory(tls)
    with tls.connect() as bystander:
        for at in range(len(first)):
            said = bytearray(first)
            said[at] ^= 0xFF
            with tls.raw() as sock:
                sock.sendall(said)
                sock.shutdown(socket.SHUT_WR)
                with suppress(ConnectionResetError):
                    while sock.recv(1 << 16):
                        pass
            if at % 100 == 0:
                assert works(bystander)
        assert works(bystander)
    assert memory(tls) - before < MEMORY_SLACK


def test_a_failed_handshake_is_not_delayed(tmp_path: Path) -> None:
    """Kafka delays the close of a failed SASL exchange, and of nothing else (``KafkaChannel``)."""
    settings = {
        "ssl.client.auth": "required",
        "connection.failed.authentication.delay.ms": "300000",
        "connections.authentication.timeout.ms": "400000",
    }
    with TlsBroker(tmp_path, settings) as broker, broker.raw() as sock:
        sock.settimeout(60)
        assert is_hung_up_on(sock, b"nonsense" * 10)
        with pytest.raises((ssl.SSLError, OSError, struct.error)), broker.connect() as without:
            assert works(without)
