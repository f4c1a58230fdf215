"""CreateAcls, DescribeAcls, DeleteAcls as a client sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.controller import acl_deletion
from millstream.handlers import describe_acls
from millstream.model.acl import AclOperation, AclResource, PatternType, Permission
from millstream.model.entities import EntityKind
from millstream.model.entity_keys import acl_key
from millstream.model.errors import ErrorCode, ProtocolError
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
from millstream.security.authorizer import Authorizer

VERSIONS = [1, 2, 3]
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH
READ, WRITE = AclOperation.READ, AclOperation.WRITE
ALLOW = Permission.ALLOW


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    made = AdminBroker(tmp_path)
    made.services.authorizer = Authorizer(["User:ANONYMOUS"])
    yield made
    made.close()


def creation(
    name: str = "t",
    resource: int = TOPIC,
    pattern: int = LITERAL,
    operation: int = READ,
    permission: int = ALLOW,
    principal: str = "User:ann",
) -> AclCreation:
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def create(
    broker: AdminBroker, *rows: AclCreation, version: int = 3
) -> list[tuple[int, str | None]]:
    request = CreateAclsRequest(creations=list(rows))
    results = broker.call(request, version, CreateAclsResponse).results
    return [(each.error_code, each.error_message) for each in results]


def describe(
    broker: AdminBroker,
    name: str | None = None,
    resource: int = AclResource.ANY,
    pattern: int = PatternType.ANY,
    version: int = 3,
) -> DescribeAclsResponse:
    request = DescribeAclsRequest(
        resource_type_filter=resource,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=Permission.ANY,
    )
    return broker.call(request, version, DescribeAclsResponse)


def filter_row(name: str | None, resource: int = TOPIC, pattern: int = LITERAL) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=resource,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=Permission.ANY,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_rules_are_made_shown_and_deleted(broker: AdminBroker, version: int) -> None:
    rows = (creation("t"), creation("t", operation=WRITE), creation("g", GROUP, PREFIXED))
    assert create(broker, *rows, version=version) == [(0, "")] * 3
    assert create(broker, rows[0], version=version) == [(0, "")], "it is there already"
    shown = describe(broker, version=version)
    assert shown.error_code == 0
    assert [
        (each.resource_type, each.resource_name, each.pattern_type) for each in shown.resources
    ] == [
        (TOPIC, "t", LITERAL),
        (GROUP, "g", PREFIXED),
    ]
    assert sorted(each.operation for each in shown.resources[0].acls) == [READ, WRITE]
    request = DeleteAclsRequest(filters=[filter_row("t"), filter_row("none")])
    some, none = broker.call(request, version, DeleteAclsResponse).filter_results
    assert (some.error_code, len(some.matching_acls)) == (0, 2)
    assert {(each.principal, each.host) for each in some.matching_acls} == {("User:ann", "*")}
    assert (none.error_code, none.matching_acls) == (0, [])
    assert [each.resource_name for each in describe(broker, version=version).resources] == ["g"]


def test_many_rules_are_described_step_by_step(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_acls, "KEYS_PER_STEP", 10)
    names = [f"t{number:02}" for number in range(25)]
    create(broker, *(creation(name) for name in names))
    request = DescribeAclsRequest(
        resource_type_filter=AclResource.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=Permission.ANY,
    )
    gone = {acl_key(TOPIC, LITERAL, name): None for name in (names[0], names[-1])}
    broker.clock.call_soon(
        lambda: broker.controller.change_entities(EntityKind.ACL, lambda _: gone).result()
    )
    found = broker.call(request, 3, DescribeAclsResponse)
    assert [each.resource_name for each in found.resources] == names[:-1], (
        "the others are served in between"
    )
    assert [each.resource_name for each in describe(broker).resources] == names[1:-1]


def test_many_rules_are_deleted_step_by_step(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served in between, and another change of rules waits."""
    monkeypatch.setattr(acl_deletion, "WORK_PER_STEP", 10)
    names = [f"t{number:02}" for number in range(25)]
    create(broker, *(creation(name) for name in names))
    shown: list[int] = []
    made: list[int] = []

    def meanwhile() -> None:
        shown.append(len(broker.services.metadata.entities.all(EntityKind.ACL)))
        another = {acl_key(TOPIC, LITERAL, "t00"): {"Allow Read * User:bob": ""}}
        broker.controller.change_entities(EntityKind.ACL, lambda _: another).on_done(
            lambda done: made.append(len(broker.services.metadata.entities.all(EntityKind.ACL)))
        )

    broker.clock.call_soon(meanwhile)
    request = DeleteAclsRequest(filters=[filter_row(None, pattern=PatternType.ANY)])
    (result,) = broker.call(request, 3, DeleteAclsResponse).filter_results
    assert [each.resource_name for each in result.matching_acls] == names
    assert shown == [25]
    assert made == [1]


def test_each_rule_has_its_own_outcome(broker: AdminBroker) -> None:
    invalid = ErrorCode.INVALID_REQUEST.code
    outcomes = create(
        broker,
        creation("c", CLUSTER),
        creation("kafka-cluster", CLUSTER),
        creation(""),
        creation(pattern=MATCH),
        creation(operation=AclOperation.ANY),
        creation(resource=100),
        creation(principal="ann"),
        creation("kept"),
    )
    assert [code for code, _ in outcomes] == [invalid, 0, *[invalid] * 5, 0]
    assert outcomes[5] == (invalid, "Invalid resourceType UNKNOWN")
    assert [each.resource_name for each in describe(broker).resources] == ["kept", "kafka-cluster"]


def test_a_match_asks_what_is_about_a_resource(broker: AdminBroker) -> None:
    create(broker, creation("abc"), creation("*"), creation("ab", pattern=PREFIXED), creation("x"))
    found = describe(broker, "abc", TOPIC, MATCH).resources
    assert {each.resource_name for each in found} == {"abc", "*", "ab"}
    assert [each.resource_name for each in describe(broker, "abc", TOPIC).resources] == ["abc"]


def test_unknown_elements_are_refused_as_in_kafka(broker: AdminBroker) -> None:
    with pytest.raises(ProtocolError):
        create(broker, creation(operation=0))
    with pytest.raises(ProtocolError):
        describe(broker, resource=0)
    with pytest.raises(ProtocolError):
        broker.call(DeleteAclsRequest(filters=[filter_row("t", pattern=0)]), 3, DeleteAclsResponse)
    assert describe(broker, resource=100).error_code == 0  # as for a kind without rules
    request = DeleteAclsRequest(filters=[filter_row("t", 100), filter_row("t")])
    one, two = broker.call(request, 3, DeleteAclsResponse).filter_results
    assert (one.error_code, two.error_code) == (ErrorCode.INVALID_REQUEST.code, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_an_authorizer_there_are_no_rules(broker: AdminBroker, version: int) -> None:
    broker.services.authorizer = None
    disabled = ErrorCode.SECURITY_DISABLED.code
    assert (
        create(broker, creation(), creation(), version=version)
        == [(disabled, "No Authorizer is configured.")] * 2
    )
    request = DeleteAclsRequest(filters=[filter_row("t")])
    (result,) = broker.call(request, version, DeleteAclsResponse).filter_results
    assert (result.error_code, result.error_message) == (disabled, "No Authorizer is configured.")
    shown = describe(broker, version=version)
    assert (shown.error_code, shown.error_message) == (
        disabled,
        "No Authorizer is configured on the broker",
    )


def test_strange_names_are_names(broker: AdminBroker) -> None:
    names = ["a/b", "..", "%2F", "ü ☃", "<default>", "a\n", "*x"]
    assert create(broker, *[creation(each) for each in names]) == [(0, "")] * len(names)
    assert {each.resource_name for each in describe(broker).resources} == set(names)
    request = DeleteAclsRequest(filters=[filter_row(None, pattern=PatternType.ANY)])
    (result,) = broker.call(request, 3, DeleteAclsResponse).filter_results
    assert {each.resource_name for each in result.matching_acls} == set(names)
    assert not describe(broker).resources
