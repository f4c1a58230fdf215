"""Keys of entities name what they were made from, whatever the names are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.entity_keys import (
    DEFAULT,
    OPERATION_NAMES,
    acl_key,
    acl_value,
    decode_name,
    encode_name,
    name_key,
    read_acl_key,
    read_acls,
    read_user_client_key,
    user_client_key,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(NAMES)
def test_a_name_stands_in_a_key_as_one_part_of_a_path(name: str) -> None:
    key = name_key(name)
    assert "/" not in key
    assert key not in (".", "..", DEFAULT)
    assert decode_name(key) == name


def test_the_default_is_not_the_user_who_is_called_so() -> None:
    assert name_key(None) == "<default>"
    assert name_key("<default>") == "%3Cdefault%3E"
    assert encode_name("ann-1.x_y") == "ann-1.x_y"


@given(st.none() | NAMES, st.none() | NAMES)
def test_a_user_and_a_client_id_come_back(user: str | None, client_id: str | None) -> None:
    assert read_user_client_key(user_client_key(user, client_id)) == (user, client_id)


RESOURCES = [each for each in AclResource if each is not AclResource.ANY]
OPERATIONS = [each for each in AclOperation if each is not AclOperation.ANY]


@given(
    st.sampled_from(RESOURCES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    NAMES,
    st.lists(
        st.tuples(
            NAMES,
            st.sampled_from(OPERATIONS),
            st.sampled_from([Permission.ALLOW, Permission.DENY]),
            NAMES,
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_rules_come_back(
    resource: AclResource,
    pattern: PatternType,
    name: str,
    rules: list[tuple[str, AclOperation, Permission, str]],
) -> None:
    acls = {
        Acl(
            resource=resource,
            name=name,
            pattern=pattern,
            principal=f"User:{principal}",
            operation=operation,
            permission=permission,
            host=host,
        )
        for principal, operation, permission, host in rules
    }
    key = acl_key(resource, pattern, name)
    assert read_acl_key(key) == (resource, pattern, name)
    value = acl_value(acls)
    assert set(read_acls(key, value)) == acls
    assert len(value) == len(acls)


def test_operations_are_written_as_kafka_does() -> None:
    assert OPERATION_NAMES[AclOperation.DESCRIBE_CONFIGS] == "DescribeConfigs"
    assert OPERATION_NAMES[AclOperation.IDEMPOTENT_WRITE] == "IdempotentWrite"


@pytest.mark.parametrize("text", ["Allow Read *", "Maybe Read * User:a", "Allow Fly * User:a"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_acls("Topic/literal/t", {text: ""})


@pytest.mark.parametrize("key", ["Topic/t", "Table/literal/t", "Topic/any/t"])
def test_what_is_no_pattern_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_acl_key(key)
