"""Entities in the metadata store: under Kafka's paths, as Kafka's JSON, within limits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory_metadata_store import MemoryTree

from millstream.controller import entity_changes, entity_nodes, payloads
from millstream.controller.entity_changes import (
    StoredEntities,
    check_limits,
    load_entities,
    plan,
    real_changes,
)
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.entity_keys import name_key, user_client_key
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.metadata_store import Create, Node


class Store:
    """A tree, and the entities that a controller knows of it."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.session = self.tree.new_session()
        above = ("/config", *entity_nodes.PERSISTENT)
        self.tree.multi([Create(path, b"") for path in above], self.session)
        self.entities = StoredEntities()

    def change(self, kind: EntityKind, changes: EntityChanges) -> int:
        """Carry out changes; return how many operations they took."""
        changes = real_changes(self.entities.by_kind[kind], changes)
        operations = plan(self.entities, kind, changes)
        self.tree.multi(operations, self.session)
        self.entities.apply(kind, changes, operations)
        return len(operations)

    def text(self, path: str) -> object:
        return json.loads(self.tree.nodes[path].data)

    def reload(self) -> StoredEntities:
        return load_entities(self.tree.below("/"))


def test_rules_are_stored_as_kafka_stored_them() -> None:
    store = Store()
    rule = {"Allow Read * User:ann": "", "Deny Write 10.0.0.1 User:CN=a%20b": ""}
    store.change(EntityKind.ACL, {"Topic/literal/t": rule, "Group/prefixed/g%2F": rule})
    expected = {
        "version": 1,
        "acls": [
            {"principal": "User:ann", "permissionType": "Allow", "operation": "Read", "host": "*"},
            {
                "principal": "User:CN=a b",
                "permissionType": "Deny",
                "operation": "Write",
                "host": "10.0.0.1",
            },
        ],
    }
    assert store.text("/kafka-acl/Topic/t") == expected
    assert store.text("/kafka-acl-extended/prefixed/Group/g%2F") == expected
    assert store.reload() == store.entities
    store.change(EntityKind.ACL, {"Topic/literal/t": {}})
    assert "/kafka-acl/Topic/t" not in store.tree.nodes
    assert store.reload() == store.entities


def test_quotas_and_credentials_are_stored_as_kafka_stored_them() -> None:
    store = Store()
    quota = {"producer_byte_rate": "1024"}
    store.change(EntityKind.USER, {name_key(None): quota, name_key("a/b"): quota})
    store.change(EntityKind.CLIENT, {name_key("c"): quota})
    store.change(EntityKind.IP, {name_key("10.0.0.1"): {"connection_creation_rate": "5"}})
    store.change(EntityKind.USER_CLIENT, {user_client_key("u", None): quota})
    for path in (
        "/config/users/<default>",
        "/config/users/a%2Fb",
        "/config/clients/c",
        "/config/users/u/clients/<default>",
    ):
        assert store.text(path) == {"version": 1, "config": quota}
    assert store.text("/config/users/u") == {"version": 1, "config": {}}
    assert store.reload() == store.entities


def test_a_token_is_stored_as_kafka_stored_it() -> None:
    store = Store()
    token = {
        "owner": "User:a",
        "renewers": '["User:b"]',
        "issueTimestamp": "1",
        "maxTimestamp": "3",
        "expiryTimestamp": "2",
        "tokenId": "x",
    }
    store.change(EntityKind.DELEGATION_TOKEN, {"x": token})
    assert store.text("/delegation_token/tokens/x") == {
        "version": 1,
        "owner": "User:a",
        "renewers": ["User:b"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "x",
    }
    assert store.reload() == store.entities


def test_what_changes_nothing_is_not_written() -> None:
    store = Store()
    value = {"a": "1"}
    assert store.change(EntityKind.CLIENT, {"c": value, "gone": None, "empty": {}}) == 1
    assert store.change(EntityKind.CLIENT, {"c": dict(value), "gone": None}) == 0


KEYS = ("u", "v", "<default>")
CHANGES = st.tuples(
    st.sampled_from([EntityKind.USER, EntityKind.USER_CLIENT, EntityKind.CLIENT]),
    st.dictionaries(
        st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)),
        st.none() | st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), max_size=2),
        min_size=1,
        max_size=4,
    ),
)


@pytest.mark.slow
@given(st.lists(CHANGES, max_size=12))
def test_a_load_finds_what_was_stored_and_nothing_is_left_behind(
    steps: list[tuple[EntityKind, dict[tuple[str, str], dict[str, str] | None]]],
) -> None:
    store = Store()
    model: dict[EntityKind, dict[str, EntityValue]] = {kind: {} for kind in EntityKind}
    for kind, changes in steps:
        named: dict[str, EntityValue | None] = {
            f"{one}/clients/{two}" if kind is EntityKind.USER_CLIENT else one: value
            for (one, two), value in changes.items()
        }
        store.change(kind, named)
        for key, value in named.items():
            model[kind].pop(key, None)
            if value:
                model[kind][key] = value
    assert store.entities.by_kind == model
    loaded = store.reload()
    assert loaded == store.entities
    for kind in EntityKind:
        for key in model[kind]:
            store.change(kind, {key: None})
    assert set(store.tree.nodes) - {"/"} == {"/config", *entity_nodes.PERSISTENT}
    assert store.entities.size == 0


def test_a_payload_that_cannot_be_read_is_named() -> None:
    for kind, path, data in (
        (EntityKind.ACL, "/kafka-acl/Topic/t", b"{"),
        (EntityKind.ACL, "/kafka-acl/Topic/t", b'{"version":1,"acls":[{"principal":"User:a"}]}'),
        (EntityKind.USER, "/config/users/u", b'{"config":{"a":1}}'),
        (EntityKind.DELEGATION_TOKEN, "/delegation_token/tokens/x", b'{"owner":{}}'),
    ):
        with pytest.raises(payloads.PayloadError, match=path):
            entity_nodes.read_value(kind, path, data)


def test_nodes_of_others_are_left_alone() -> None:
    entities = load_entities(
        {
            "/kafka-acl/Topic/t/more": Node(b"{", 0, 1),
            "/kafka-acl-changes/x": Node(b"{", 0, 1),
            "/config/changes": Node(b"{", 0, 1),
        }
    )
    assert not any(entities.by_kind.values())


def test_entities_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_changes, "MAX_ENTITIES", 2)
    monkeypatch.setattr(entity_changes, "MAX_ENTITY_BYTES", 100)
    monkeypatch.setattr(entity_changes, "MAX_TOTAL_BYTES", 120)
    store = Store()
    store.change(EntityKind.CLIENT, {"a": {"x": "1" * 40}, "b": {"x": "1"}})

    def refused(changes: EntityChanges) -> str:
        with pytest.raises(KafkaError) as refusal:
            check_limits(store.entities, EntityKind.CLIENT, changes)
        assert refusal.value.error is ErrorCode.POLICY_VIOLATION
        return refusal.value.message or ""

    assert "3 entities" in refused({"c": {"x": "1"}})
    assert "100" in refused({"a": {"x": "1" * 100}})
    assert "together" in refused({"b": {"x": "1" * 80}})
    check_limits(store.entities, EntityKind.CLIENT, {"c": {"x": "1"}, "a": None})
    monkeypatch.setattr(entity_changes, "MAX_ENTITIES", 1)
    monkeypatch.setattr(entity_changes, "MAX_TOTAL_BYTES", 1)
    check_limits(store.entities, EntityKind.CLIENT, {"a": {"x": "1" * 30}})
