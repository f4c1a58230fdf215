"""Rules of access, quotas and users of a cluster: stored in a real ZooKeeper, known everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.cluster_site import ClusterSite
from tests.system.wire import HungUpError, Wire

from millstream.model.acl import AclOperation, AclResource, PatternType, Permission
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from millstream.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from millstream.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from millstream.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from millstream.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from millstream.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
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

pytestmark = pytest.mark.system

TIMEOUT_S = 60.0
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="between" '
    'user_broker="between" user_admin="secret" user_bob="secret";'
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker;User:admin",
}
NAMES = (
    "plain",
    "a/b c",
    "100%41",
    "größe",
    "*",
    "..",
    "<default>",
    "new\nline",
    "+&=,:@",
    "x" * 900,
)
"""Names of groups, users and clients; most of them are no part of a path as they are."""
PREFIX = "of/%2F "

Rule = tuple[int, str, int, str, int, int]
Known = tuple[set[Rule], set[tuple[str, ...]], set[str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterSite]:
    with ClusterSite(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def login(broker: BrokerProcess, user: str = "admin") -> Wire:
    wire = Wire(broker.host, broker.port)
    wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
    token = f"\0{user}\0secret".encode()
    answer = wire.call(SaslAuthenticateRequest(auth_bytes=token), 2, SaslAuthenticateResponse)
    assert answer.error_code == 0
    return wire


def rules() -> set[Rule]:
    allow, deny = Permission.ALLOW, Permission.DENY
    group, topic, read = AclResource.GROUP, AclResource.TOPIC, AclOperation.READ
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    found: set[Rule] = {(group, name, literal, f"User:{name}", read, allow) for name in NAMES}
    found |= {(group, name, prefixed, "User:*", read, deny) for name in (PREFIX, "*")}
    found.add((topic, "shown", literal, "User:bob", AclOperation.DESCRIBE, allow))
    return found


def quotas() -> set[tuple[str, ...]]:
    return {
        *(("user", name) for name in NAMES),
        *(("client-id", name) for name in NAMES),
        *(("client-id", name, "user", f"of {name}") for name in NAMES),
    }


def create_all(wire: Wire) -> None:
    creations = [
        AclCreation(
            resource_type=resource,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host="*",
            operation=operation,
            permission_type=permission,
        )
        for resource, name, pattern, principal, operation, permission in rules()
    ]
    made = wire.call(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
    assert [each.error_message for each in made.results if each.error_code] == []
    entries = [
        EntryData(
            entity=[
                EntityData(entity_type=type_, entity_name=name)
                for type_, name in zip(entity[::2], entity[1::2], strict=True)
            ],
            ops=[OpData(key="producer_byte_rate", value=1e9, remove=False)],
        )
        for entity in quotas()
    ]
    altered = wire.call(
        AlterClientQuotasRequest(entries=entries, validate_only=False), 1, AlterClientQuotasResponse
    )
    assert [each.error_message for each in altered.entries if each.error_code] == []
    users = [
        ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4096, salt=b"salt" * 4, salted_password=b"s" * 32
        )
        for name in NAMES
    ]
    stored = wire.call(
        AlterUserScramCredentialsRequest(deletions=[], upsertions=users),
        0,
        AlterUserScramCredentialsResponse,
    )
    assert [each.error_message for each in stored.results if each.error_code] == []


def known(broker: BrokerProcess) -> Known:
    with login(broker) as wire:
        everything = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        acls = wire.call(everything, 3, DescribeAclsResponse)
        limits = wire.call(
            DescribeClientQuotasRequest(components=[], strict=False),
            1,
            DescribeClientQuotasResponse,
        )
        users = wire.call(
            DescribeUserScramCredentialsRequest(users=None),
            0,
            DescribeUserScramCredentialsResponse,
        )
    return (
        {
            (
                each.resource_type,
                each.resource_name,
                each.pattern_type,
                acl.principal,
                acl.operation,
                acl.permission_type,
            )
            for each in acls.resources
            for acl in each.acls
        },
        {
            tuple(
                part
                for each in sorted(entry.entity, key=lambda each: each.entity_type)
                for part in (each.entity_type, each.entity_name or "")
            )
            for entry in limits.entries or ()
        },
        {each.user for each in users.results},
    )


def bob_is_told(broker: BrokerProcess) -> int:
    """What bob is answered about the topic ``shown``, which does not exist."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="shown")], allow_auto_topic_creation=False
    )
    with login(broker, "bob") as wire:
        return wire.call(request, 12, MetadataResponse).topics[0].error_code


def wait_for(
    broker: BrokerProcess, look: Callable[[BrokerProcess], object], wanted: object
) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    seen: object = None
    while seen != wanted:
        assert time.monotonic() < deadline, (seen, broker.log[-3000:])
        try:
            seen = look(broker)
        except (OSError, HungUpError) as error:
            seen = error
        time.sleep(0.05)


def all_know(cluster: ClusterSite, wanted: Known, bob: ErrorCode) -> None:
    for broker in cluster.brokers.values():
        if broker.is_running:
            wait_for(broker, known, wanted)
            wait_for(broker, bob_is_told, bob.code)


def controller_of(broker: BrokerProcess) -> int:
    with login(broker) as wire:
        return wire.call(MetadataRequest(topics=[]), 12, MetadataResponse).controller_id


def remove_rules(wire: Wire) -> None:
    filters = [
        DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    ]
    answer = wire.call(DeleteAclsRequest(filters=filters), 3, DeleteAclsResponse)
    (result,) = answer.filter_results
    assert result.error_code == 0, result.error_message
    assert len(result.matching_acls) == len(rules())


def test_every_broker_knows_them_after_restarts_and_another_controller(
    cluster: ClusterSite,
) -> None:
    everything = rules(), quotas(), set(NAMES)
    unknown, hidden = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    brokers = cluster.brokers
    all_know(cluster, (set(), set(), set()), hidden)
    with login(brokers[3]) as wire:
        create_all(wire)
    all_know(cluster, everything, unknown)

    killed = controller_of(brokers[1])
    brokers[killed].kill()
    all_know(cluster, everything, unknown)
    survivor = next(each for key, each in brokers.items() if key != killed)
    wait_for(survivor, lambda each: controller_of(each) not in (-1, killed), True)
    with login(survivor) as wire:
        remove_rules(wire)
    all_know(cluster, (set(), quotas(), set(NAMES)), hidden)
    brokers[killed].start()
    all_know(cluster, (set(), quotas(), set(NAMES)), hidden)

    with login(brokers[killed]) as wire:
        create_all(wire)
    for broker in brokers.values():
        broker.stop()
    for broker in brokers.values():
        broker.start()
        assert known(broker) == everything, "from its first answer on"
    all_know(cluster, everything, unknown)
    for broker in brokers.values():
        assert "Traceback" not in broker.log
