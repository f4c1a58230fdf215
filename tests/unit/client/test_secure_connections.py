"""TLS and SASL over real sockets, the same for the thread, asyncio and blocking connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.tls_authority import Authority
from tests.tls_peer import server_context
from tests.unit.client.scripted_broker import TOPIC, CutConnectionError, ScriptedBroker

from millstream.client import Admin, Consumer, Producer, ShareConsumer, aio
from millstream.client.cluster import Cluster
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.errors import AuthenticationError, ConnectionFailedError, TlsError
from millstream.client.fetch import Fetcher
from millstream.client.security import open_security
from millstream.client.settings import ClientSettings as BlockingSettings
from millstream.client.settings import parse_bootstrap_servers
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.produce import ProduceRequest
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.records.record import read_records

BIG = b"0123456789abcdef" * 40_000
"""More than many TLS records."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def listener(authority: Authority) -> ssl.SSLContext:
    return server_context(*authority.issue("broker", ["127.0.0.1"]))


@pytest.fixture
def brokers() -> Iterator[Callable[..., ScriptedBroker]]:
    with ExitStack() as stack:
        yield lambda tls=None: stack.enter_context(ScriptedBroker(tls))


def secured(authority: Authority, **more: object) -> dict[str, object]:
    return {"security_protocol": "SSL", "ssl_truststore_location": str(authority.path), **more}


def blocking_cluster(bootstrap: str, **more: object) -> Cluster:
    read = read_settings(ClientSettings, {"bootstrap.servers": bootstrap}, more)
    return Cluster(
        BlockingSettings(
            bootstrap_servers=parse_bootstrap_servers(bootstrap), security=open_security(read)
        )
    )


def takes_password(broker: ScriptedBroker) -> list[bytes]:
    """Let the broker take what SASL sends; the list has it."""
    seen: list[bytes] = []

    def intercept(request: Request) -> Response | None:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        if isinstance(request, SaslAuthenticateRequest):
            seen.append(request.auth_bytes)
            return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
        return None

    broker.intercept.append(intercept)
    return seen


def test_what_is_produced_over_tls_is_read_over_tls(
    authority: Authority, listener: ssl.SSLContext, brokers: Callable[..., ScriptedBroker]
) -> None:
    broker = brokers(listener)
    given = secured(authority)
    with Producer(bootstrap_servers=broker.bootstrap, max_request_size=2_000_000, **given) as one:
        one.send(TOPIC, BIG).result(30)
        one.send(TOPIC, b"small").result(30)
    first = TopicPartition(TOPIC, 0)
    with Consumer(bootstrap_servers=broker.bootstrap, **given) as consumer:
        consumer.assign([first])
        consumer.seek(first, 0)
        values = []
        while len(values) < 2:
            values += [each.value for each in consumer.poll(10)]
    assert values == [BIG, b"small"]
    with blocking_cluster(broker.bootstrap, **given) as cluster:
        fetcher = Fetcher(cluster, {first: 0})
        read: list[bytes | None] = []
        while len(read) < 2:
            for fetched in fetcher.poll():
                for batch in fetched.batches():
                    read += [record.value for record in read_records(batch)]
        fetcher.close()
    assert read == [BIG, b"small"]


def test_the_asyncio_clients_speak_tls_too(
    authority: Authority, listener: ssl.SSLContext, brokers: Callable[..., ScriptedBroker]
) -> None:
    broker = brokers(listener)
    given = secured(authority, bootstrap_servers=broker.bootstrap)

    async def run() -> list[bytes | None]:
        async with aio.Producer(max_request_size=2_000_000, **given) as producer:
            await (await producer.send(TOPIC, BIG))
        async with aio.Consumer(**given) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek(TopicPartition(TOPIC, 0), 0)
            values: list[bytes | None] = []
            while not values:
                values += [each.value for each in await consumer.poll(10)]
            return values

    assert asyncio.run(run()) == [BIG]


def plain_credentials(**more: object) -> dict[str, object]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "ann",
        "sasl_password": "secret",
        **more,
    }


def asyncio_topics(bootstrap: str, **given: object) -> None:
    async def run() -> None:
        async with aio.Admin(bootstrap_servers=bootstrap, **given) as admin:
            await admin.list_topics()

    asyncio.run(run())


def thread_topics(bootstrap: str, **given: object) -> None:
    with Admin(bootstrap_servers=bootstrap, **given) as admin:
        admin.list_topics()


def blocking_topics(bootstrap: str, **given: object) -> None:
    with blocking_cluster(bootstrap, **given) as cluster:
        cluster.metadata([])


FACES = pytest.mark.parametrize("topics", [asyncio_topics, thread_topics, blocking_topics])
Face = Callable[..., None]


@FACES
@pytest.mark.parametrize("over_tls", [False, True])
def test_a_password_goes_over_each_kind_of_connection(
    authority: Authority,
    listener: ssl.SSLContext,
    brokers: Callable[..., ScriptedBroker],
    topics: Face,
    over_tls: bool,
) -> None:
    broker = brokers(listener if over_tls else None)
    seen = takes_password(broker)
    more = secured(authority, security_protocol="SASL_SSL") if over_tls else {}
    topics(broker.bootstrap, **plain_credentials(**more))
    assert set(seen) == {b"\0ann\0secret"}


@FACES
def test_an_unknown_authority_is_final(
    tmp_path: Path,
    listener: ssl.SSLContext,
    brokers: Callable[..., ScriptedBroker],
    topics: Face,
) -> None:
    broker = brokers(listener)
    other = Authority(tmp_path, "another authority")
    with pytest.raises(TlsError, match="not signed by a trusted authority"):
        topics(broker.bootstrap, **secured(other))


@FACES
def test_a_refusal_is_final(brokers: Callable[..., ScriptedBroker], topics: Face) -> None:
    broker = brokers()
    takes_password(broker)

    def refuse(request: Request) -> Response | None:
        if isinstance(request, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(
                error_code=58, error_message="Invalid username or password", auth_bytes=b""
            )
        return None

    broker.intercept.insert(0, refuse)
    with pytest.raises(AuthenticationError, match="Invalid username or password"):
        topics(broker.bootstrap, **plain_credentials())


def test_a_blocking_connection_renews_its_session(
    brokers: Callable[..., ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = brokers()
    seen = takes_password(broker)

    def with_lifetime(request: Request) -> Response | None:
        if isinstance(request, SaslAuthenticateRequest):
            seen.append(request.auth_bytes)
            return SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=60_000
            )
        return None

    broker.intercept.insert(0, with_lifetime)
    with blocking_cluster(broker.bootstrap, **plain_credentials()) as cluster:
        cluster.metadata([])
        connection = cluster.any_connection()
        cluster.metadata([])
        assert len(seen) == 1
        loop = cluster._loop
        now_ms = loop.now_ms
        monkeypatch.setattr(loop, "now_ms", lambda: now_ms() + 60_000)
        cluster.metadata([])
        cluster.metadata([])
        assert len(seen) == 2
        assert cluster.any_connection() is connection


def test_a_coroutine_function_may_bring_the_token(
    brokers: Callable[..., ScriptedBroker],
) -> None:
    broker = brokers()
    seen = takes_password(broker)
    given: dict[str, object] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    loops: list[object] = []

    async def run() -> None:
        async def token() -> str:
            loops.append(asyncio.get_running_loop())
            return "a-token"

        async with aio.Admin(
            bootstrap_servers=broker.bootstrap, sasl_oauth_token=token, **given
        ) as admin:
            await admin.list_topics()
        assert loops == [asyncio.get_running_loop()] * len(loops)

    asyncio.run(run())
    assert loops
    assert all(b"auth=Bearer a-token" in each for each in seen)

    async def never() -> str:
        return "a-token"

    with pytest.raises(AuthenticationError, match="only the asyncio API"):
        thread_topics(broker.bootstrap, sasl_oauth_token=never, **given)


def test_a_broker_that_is_gone_is_not_an_authentication_failure(authority: Authority) -> None:
    broker = ScriptedBroker()
    bootstrap = broker.bootstrap
    broker.close()
    with pytest.raises(ConnectionFailedError):
        blocking_topics(bootstrap, **secured(authority))


# --- what the clients do with a refusal ----------------------------------------------------------


def refuses_password(broker: ScriptedBroker) -> list[bool]:
    """Let the broker refuse whom it is asked about while the list has a True at its end."""
    takes_password(broker)
    refusing = [True]

    def refuse(request: Request) -> Response | None:
        if isinstance(request, SaslAuthenticateRequest) and refusing[-1]:
            return SaslAuthenticateResponse(
                error_code=58, error_message="Invalid username or password", auth_bytes=b""
            )
        return None

    broker.intercept.insert(0, refuse)
    return refusing


def test_a_producer_says_at_once_that_it_is_refused_and_works_once_it_is_not(
    brokers: Callable[..., ScriptedBroker],
) -> None:
    broker = brokers()
    refusing = refuses_password(broker)
    with Producer(bootstrap_servers=broker.bootstrap, **plain_credentials()) as producer:
        with pytest.raises(AuthenticationError):
            producer.send(TOPIC, b"1")
        with pytest.raises(AuthenticationError):
            producer.partitions_for(TOPIC)
        refusing.append(False)
        producer.send(TOPIC, b"2").result(30)


def test_records_for_a_broker_that_refuses_fail_at_once(
    brokers: Callable[..., ScriptedBroker],
) -> None:
    broker = brokers()
    refusing = refuses_password(broker)
    refusing.append(False)
    with Producer(
        bootstrap_servers=broker.bootstrap, retry_backoff_ms=5, **plain_credentials()
    ) as producer:
        producer.send(TOPIC, b"1").result(30)

        def cut(request: Request) -> Response | None:
            if isinstance(request, ProduceRequest):
                refusing.append(True)
                raise CutConnectionError
            return None

        broker.intercept.insert(0, cut)
        with pytest.raises(AuthenticationError):
            producer.send(TOPIC, b"2").result(30)
        with pytest.raises(AuthenticationError):
            producer.send(TOPIC, b"3").result(30)


def test_each_poll_says_that_the_consumer_is_refused(
    brokers: Callable[..., ScriptedBroker],
) -> None:
    broker = brokers()
    refusing = refuses_password(broker)
    with Consumer(bootstrap_servers=broker.bootstrap, **plain_credentials()) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek(TopicPartition(TOPIC, 0), 0)
        for _ in range(2):
            with pytest.raises(AuthenticationError):
                consumer.poll(10)
        refusing.append(False)
        with Producer(bootstrap_servers=broker.bootstrap, **plain_credentials()) as producer:
            producer.send(TOPIC, b"1").result(30)
        values: list[bytes | None] = []
        while not values:
            with contextlib.suppress(AuthenticationError):
                values += [each.value for each in consumer.poll(10)]
        assert values == [b"1"]


def test_a_member_of_a_group_is_told_too(brokers: Callable[..., ScriptedBroker]) -> None:
    broker = brokers()
    refuses_password(broker)
    given = {"bootstrap_servers": broker.bootstrap, "group_id": "g", **plain_credentials()}
    with Consumer(**given) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(AuthenticationError):
            consumer.poll(10)
    with ShareConsumer(**given) as sharing:
        sharing.subscribe([TOPIC])
        with pytest.raises(AuthenticationError):
            sharing.poll(10)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_what_is_no_name_of_a_host_fails_like_one_that_is_not_found(
    authority: Authority, host: str
) -> None:
    given = secured(authority, bootstrap_servers=f"{host}:9093")
    with (
        Admin(default_api_timeout_ms=2000, request_timeout_ms=1000, **given) as admin,
        pytest.raises(ConnectionFailedError, match="not the name of a host"),
    ):
        admin.list_topics()

    async def ask() -> None:
        async with aio.Admin(
            default_api_timeout_ms=2000, request_timeout_ms=1000, **given
        ) as admin:
            with pytest.raises(ConnectionFailedError, match="not the name of a host"):
                await admin.list_topics()

    asyncio.run(ask())
