"""What brokers ask each other is refused to everybody else, on either listener of a cluster.

Each API between brokers, and each request of a client that claims to come from a broker, is sent by
an ordinary user: on the clients' listener with a password, on the brokers' listener with a
certificate of the cluster's own authority.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.system.cluster.secured_site import IDS, SecuredCluster, set_password, until_in_sync
from tests.unit.handlers.access_calls import CALLS, CLUSTER_ACTION, Call
from tests.waiting import wait_until

from millstream.client.blocking_loop import BlockingLoop
from millstream.client.connection import Connection
from millstream.client.core.settings import ClientSettings as CoreSettings
from millstream.client.core.settings import read_settings
from millstream.client.errors import ClientError
from millstream.client.security import open_security
from millstream.client.settings import Address, ClientSettings
from millstream.handlers.routes import INTER_BROKER_ROUTES
from millstream.model.errors import ErrorCode
from millstream.protocol.api import ApiKey, response_class
from millstream.protocol.schema import Struct

pytestmark = pytest.mark.system

CLAIMS = [call for call in CALLS if any(need.operation is CLUSTER_ACTION for need in call.needs)]
OF_BROKERS = [Call(route.key.name, route.key, {}, (), 0) for route in INTER_BROKER_ROUTES.values()]
REFUSED = {
    int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED.code),
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED.code),
    int(ErrorCode.GROUP_AUTHORIZATION_FAILED.code),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path_factory.mktemp("secured")) as started:
        admin = AdminClient(started.of_broker())
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(30)
        until_in_sync(admin, "t")
        started.passwords["ann"] = "sesame-ann"
        set_password(admin, "ann", "sesame-ann")
        for number in IDS:
            wait_until(lambda: started.lets_in(number, "ann"), f"ann at {number}")  # noqa: B023
        yield started
        assert in_sync_still(admin)


def in_sync_still(admin: AdminClient) -> bool:
    until_in_sync(admin, "t")
    return True


def connect(port: int, given: dict[str, Any]) -> Connection:
    settings = read_settings(CoreSettings, {**given, "bootstrap.servers": f"localhost:{port}"}, {})
    address = Address("localhost", port)
    security = open_security(settings)
    return Connection(
        address,
        ClientSettings(bootstrap_servers=(address,), security=security),
        BlockingLoop(security=security),
    )


def as_client(cluster: SecuredCluster, number: int) -> Connection:
    """Connect as ann, with a password, to the listener of clients."""
    return connect(cluster[number].port, cluster.of_our_user("ann"))


def as_certificate(cluster: SecuredCluster, number: int, name: str = "ann") -> Connection:
    """Connect with a certificate to the listener of brokers."""
    cluster.authority.issue(name)
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(cluster.authority.path),
        "ssl.keystore.location": str(cluster.directory / f"{name}.both.pem"),
    }
    return connect(cluster[number].brokers_port, given)


def codes(message: Struct) -> Iterator[int]:
    """Yield every error code of an answer."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from codes(each)


def answer(connection: Connection, call: Call) -> set[int]:
    response = connection.call(
        call.request(bytes(16)), response_class(call.key), version=call.version
    )
    return set(codes(response))


@pytest.mark.parametrize("number", IDS)
def test_with_a_certificate_that_is_no_brokers(cluster: SecuredCluster, number: int) -> None:
    connection = as_certificate(cluster, number)
    for call in (*OF_BROKERS, *CLAIMS):
        found = answer(connection, call)
        assert found & REFUSED, call.label
        if call in OF_BROKERS:
            assert found == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED.code}, call.label
    connection.close()


@pytest.mark.parametrize("number", IDS)
def test_with_a_password(cluster: SecuredCluster, number: int) -> None:
    connection = as_client(cluster, number)
    for call in CLAIMS:
        assert answer(connection, call) & REFUSED, call.label
    connection.close()
    for call in OF_BROKERS:
        connection = as_client(cluster, number)
        with pytest.raises(ClientError):
            answer(connection, call)
        assert not connection.is_open, call.label


def test_a_broker_is_not_refused(cluster: SecuredCluster) -> None:
    """Otherwise the tests above would hold for a cluster that refuses everybody."""
    connection = as_certificate(cluster, 1, "broker-2")
    harmless = {ApiKey.DESCRIBE_FETCHERS, ApiKey.DESCRIBE_REPLICAS, ApiKey.ENVELOPE}
    for call in OF_BROKERS:
        if call.key in harmless:
            assert not answer(connection, call) & REFUSED, call.label
    for call in CLAIMS:
        if call.key is ApiKey.WRITE_TXN_MARKERS:
            assert not answer(connection, call) & REFUSED, call.label
    connection.close()


def test_there_is_something_to_refuse() -> None:
    assert {ApiKey.PUSH_METADATA, ApiKey.PROPOSE_ISR, ApiKey.ENVELOPE, ApiKey.STOP_LEADING} <= {
        call.key for call in OF_BROKERS
    }
    assert {ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS, ApiKey.ADD_PARTITIONS_TO_TXN} <= {
        call.key for call in CLAIMS
    }
