"""Which rules may be made, and which rules a filter matches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.controller import acl_changes
from millstream.controller.acl_changes import (
    check_new_acl,
    matching_acls,
    with_acls,
)
from millstream.model.acl import Acl, AclFilter, AclOperation, AclResource, PatternType, Permission
from millstream.model.entities import EntityValue
from millstream.model.errors import ErrorCode, KafkaError

READ = Acl(resource=AclResource.TOPIC, name="t", principal="User:ann", operation=AclOperation.READ)


@pytest.mark.parametrize(
    ("acl", "words"),
    [
        (replace(READ, resource=AclResource.CLUSTER), "only valid name for the CLUSTER"),
        (replace(READ, name=""), "Invalid empty resource name"),
        (replace(READ, resource=AclResource.ANY), "Invalid resourceType ANY"),
        (replace(READ, pattern=PatternType.MATCH), "Invalid patternType MATCH"),
        (replace(READ, pattern=PatternType.ANY), "Invalid patternType ANY"),
        (replace(READ, operation=AclOperation.ANY), "Invalid operation ANY"),
        (replace(READ, permission=Permission.ANY), "Invalid permissionType ANY"),
        (replace(READ, principal="ann"), "no colon"),
    ],
)
def test_what_is_no_rule_is_not_made(acl: Acl, words: str) -> None:
    check_new_acl(READ)
    with pytest.raises(KafkaError, match=words) as refused:
        check_new_acl(acl)
    assert refused.value.error is ErrorCode.INVALID_REQUEST


NAMES = ["a", "ab", "abc", "*", "b"]
ACLS = st.builds(
    Acl,
    resource=st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
    name=st.sampled_from(NAMES),
    pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(["User:a", "User:*"]),
    operation=st.sampled_from([AclOperation.READ, AclOperation.ALL]),
    permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
    host=st.sampled_from(["*", "h"]),
)
FILTERS = st.builds(
    AclFilter,
    resource=st.sampled_from([AclResource.ANY, AclResource.TOPIC, AclResource.GROUP]),
    name=st.none() | st.sampled_from(NAMES),
    pattern=st.sampled_from(list(PatternType)),
    principal=st.none() | st.sampled_from(["User:a", "User:*"]),
    host=st.none() | st.sampled_from(["*", "h"]),
    operation=st.sampled_from([AclOperation.ANY, AclOperation.READ]),
    permission=st.sampled_from([Permission.ANY, Permission.DENY]),
)


def is_matched(wanted: AclFilter, acl: Acl) -> bool:
    """Say it as the Java client's filter does."""
    if wanted.name is None:
        by_name = True
    elif wanted.pattern in (PatternType.ANY, acl.pattern):
        by_name = wanted.name == acl.name
    elif acl.pattern is PatternType.LITERAL:
        by_name = wanted.name == acl.name or acl.name == "*"
    else:
        by_name = wanted.name.startswith(acl.name)
    return (
        by_name
        and wanted.resource in (AclResource.ANY, acl.resource)
        and wanted.pattern in (PatternType.ANY, PatternType.MATCH, acl.pattern)
        and wanted.principal in (None, acl.principal)
        and wanted.host in (None, acl.host)
        and wanted.operation in (AclOperation.ANY, acl.operation)
        and wanted.permission in (Permission.ANY, acl.permission)
    )


def entities(acls: list[Acl]) -> dict[str, EntityValue]:
    return {key: value for key, value in with_acls({}, acls).items() if value}


@given(st.lists(ACLS), st.lists(ACLS), FILTERS)
def test_filters_match_as_kafkas_do(first: list[Acl], more: list[Acl], wanted: AclFilter) -> None:
    present = entities(first)
    for key, value in with_acls(present, more).items():
        assert value
        present[key] = value
    everything = {*first, *more}
    found = list(matching_acls(present, wanted))
    assert len(found) == len(set(found))
    assert set(found) == {each for each in everything if is_matched(wanted, each)}


def test_a_request_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "MAX_CHANGES", 2)
    acls = [replace(READ, name=f"t{i}") for i in range(3)]
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        with_acls({}, acls)
    with_acls({**entities(acls[:2]), **entities(acls[2:])}, acls)
