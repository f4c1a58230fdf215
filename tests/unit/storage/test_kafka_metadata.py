"""What Apache Kafka's own metadata log says of topics, from files that Kafka 4.3 wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from millstream.model.entities import EntityKind
from millstream.model.principal import KafkaPrincipal
from millstream.model.topic import TopicId
from millstream.protocol.messages.kraft_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from millstream.security.delegation_tokens import DelegationToken, read_token
from millstream.storage.files import LocalFileSystem
from millstream.storage.kafka_metadata import (
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    END_TRANSACTION,
    _Replay,
    read_kafka_metadata,
)
from millstream.storage.kafka_metadata_logs import DIRECTORY, KafkaMetadataLogs
from millstream.storage.partition_metadata import parse_partition_metadata

NODE = Path(__file__).parents[2] / "data" / "kafka-4.3.0-node"
EXPECTED = json.loads((NODE.parent / "kafka-4.3.0-node.json").read_text())
FILES = LocalFileSystem()
ONE, TWO = TopicId(b"1" * 16), TopicId(b"2" * 16)


def check(directory: Path) -> None:
    topics = read_kafka_metadata(FILES, str(directory)).topics
    assert {name: topic.partition_count for name, topic in topics.items()} == EXPECTED["topics"]
    assert {name: topic.configs for name, topic in topics.items()} == EXPECTED["configs"]
    for name, topic in topics.items():
        text = (NODE / f"{name}-0" / "partition.metadata").read_text()
        assert topic.topic_id == parse_partition_metadata(text)
        # Kafka gave up every leadership when it stopped, which begins an epoch.
        assert set(topic.leader_epochs.values()) == {1}


def test_a_snapshot_and_the_log_behind_it() -> None:
    check(NODE)


def test_the_log_without_a_snapshot(tmp_path: Path) -> None:
    shutil.copytree(NODE / DIRECTORY, tmp_path / DIRECTORY)
    for snapshot in (tmp_path / DIRECTORY).glob("*.checkpoint"):
        snapshot.unlink()
    check(tmp_path)


def test_a_snapshot_alone_is_what_was_then(tmp_path: Path) -> None:
    shutil.copytree(NODE / DIRECTORY, tmp_path / DIRECTORY)
    (tmp_path / DIRECTORY / "00000000000000000000.log").unlink()
    assert 0 < len(read_kafka_metadata(FILES, str(tmp_path)).topics) <= 5


def test_a_torn_log_is_read_to_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(NODE / DIRECTORY, tmp_path / DIRECTORY)
    path = tmp_path / DIRECTORY / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    assert "orders" in read_kafka_metadata(FILES, str(tmp_path)).topics
    assert "not read to its end" in caplog.text


def test_a_directory_of_our_own_has_none(tmp_path: Path) -> None:
    logs = KafkaMetadataLogs(FILES, lambda: [str(tmp_path)])
    assert logs.find_topic("orders", None) is None
    assert logs.group_configs() == {}
    assert logs.entities() == {}


def test_a_topic_is_found_by_name_and_id() -> None:
    topics = KafkaMetadataLogs(FILES, lambda: [str(NODE)])
    found = topics.find_topic("orders", None)
    assert found is not None
    assert topics.find_topic("orders", found.topic_id) is found
    assert topics.find_topic("orders", ONE) is None
    assert topics.find_topic("gone", None) is None


def test_changes_deletions_and_transactions() -> None:
    replay = _Replay()
    replay.take(2, 0, TopicRecord(name="t", topic_id=ONE).encode_body(0))
    for version in (1, 2):
        record = PartitionRecord(
            partition_id=version - 1,
            topic_id=ONE,
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=4,
            partition_epoch=9,
            directories=[TWO],
        )
        replay.take(3, version, record.encode_body(version))
    moved = PartitionChangeRecord(partition_id=0, topic_id=ONE, leader=2)
    replay.take(5, 2, moved.encode_body(2))
    shrunk = PartitionChangeRecord(partition_id=1, topic_id=ONE, isr=[1])
    replay.take(5, 0, shrunk.encode_body(0))
    for resource, value in ((2, "5"), (4, "6"), (2, None), (2, "7")):
        record_ = ConfigRecord(
            resource_type=resource, resource_name="t", name="retention.ms", value=value
        )
        replay.take(4, 0, record_.encode_body(0))
    for end in (ABORT_TRANSACTION, END_TRANSACTION):
        replay.take(BEGIN_TRANSACTION, 0, b"")
        name = "kept" if end == END_TRANSACTION else "dropped"
        replay.take(2, 0, TopicRecord(name=name, topic_id=TWO).encode_body(0))
        replay.take(end, 0, b"")
    replay.take(BEGIN_TRANSACTION, 0, b"")
    replay.take(9, 0, RemoveTopicRecord(topic_id=ONE).encode_body(0))
    topics = replay.metadata().topics
    assert set(topics) == {"t", "kept"}
    assert topics["t"].leader_epochs == {0: 5, 1: 4}
    assert topics["t"].configs == {"retention.ms": "7"}
    replay.take(END_TRANSACTION, 0, b"")
    assert set(replay.metadata().topics) == {"kept"}


def test_settings_of_groups() -> None:
    replay = _Replay()
    for group, value in (("g", "5"), ("t", "4"), ("g", "7"), ("t", None), ("h", "3")):
        changed = ConfigRecord(
            resource_type=32,
            resource_name=group,
            name="share.delivery.count.limit",
            value=value,
        )
        replay.take(4, 0, changed.encode_body(0))
    assert replay.metadata().group_configs == {
        "g": {"share.delivery.count.limit": "7"},
        "h": {"share.delivery.count.limit": "3"},
    }


def rule(identity: TopicId, **more: object) -> AccessControlEntryRecord:
    fields: dict[str, object] = {
        "id": identity,
        "resource_type": 2,
        "resource_name": "t/1",
        "pattern_type": 3,
        "principal": "User:ann",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AccessControlEntryRecord(**(fields | more))  # type: ignore[arg-type]


def quota(*parts: tuple[str, str | None], key: str, value: float = 0.0) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        key=key,
        value=value,
        remove=not value,
    )


def test_rules_of_access_and_quotas() -> None:
    replay = _Replay()
    three = TopicId(b"3" * 16)
    for key, message in (
        (18, rule(ONE)),
        (18, rule(TWO, principal="User:bob", operation=4, permission_type=2)),
        (18, rule(three, resource_name="g", resource_type=3, pattern_type=4)),
        (18, rule(TopicId(b"4" * 16), resource_type=99)),
        (18, rule(TopicId(b"5" * 16), pattern_type=1)),
        (19, RemoveAccessControlEntryRecord(id=TWO)),
        (14, quota(("user", "ann"), key="producer_byte_rate", value=1024.0)),
        (14, quota(("user", "ann"), key="request_percentage", value=12.5)),
        (14, quota(("user", None), ("client-id", "c"), key="consumer_byte_rate", value=1.0)),
        (14, quota(("ip", "10.0.0.1"), key="connection_creation_rate", value=5.0)),
        (14, quota(("client-id", "d"), key="consumer_byte_rate", value=1.0)),
        (14, quota(("client-id", "d"), key="consumer_byte_rate")),
        (14, quota(("team", "x"), key="consumer_byte_rate", value=1.0)),
    ):
        replay.take(key, 0, message.encode_body(0))
    assert replay.metadata().entities == {
        EntityKind.ACL: {
            "Topic/literal/t%2F1": {"Allow Read * User:ann": ""},
            "Group/prefixed/g": {"Allow Read * User:ann": ""},
        },
        EntityKind.USER: {"ann": {"producer_byte_rate": "1024", "request_percentage": "12.5"}},
        EntityKind.USER_CLIENT: {"<default>/clients/c": {"consumer_byte_rate": "1"}},
        EntityKind.IP: {"10.0.0.1": {"connection_creation_rate": "5"}},
    }


def credential(user: str, mechanism: int = 1, iterations: int = 4096) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=b"salt",
        stored_key=b"stored",
        server_key=b"server",
        iterations=iterations,
    )


def test_users() -> None:
    replay = _Replay()
    for key, message in (
        (11, credential("ann")),
        (11, credential("ann", 2, 8192)),
        (11, credential("ann", 9)),
        (11, credential("b/b")),
        (11, credential("gone")),
        (14, quota(("user", "ann"), key="producer_byte_rate", value=1024.0)),
        (22, RemoveUserScramCredentialRecord(name="gone", mechanism=1)),
        (22, RemoveUserScramCredentialRecord(name="nobody", mechanism=1)),
        (11, credential("b/b", iterations=5000)),
    ):
        replay.take(key, 0, message.encode_body(0))
    text = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations="
    assert replay.metadata().entities == {
        EntityKind.USER: {
            "ann": {
                "SCRAM-SHA-256": text + "4096",
                "SCRAM-SHA-512": text + "8192",
                "producer_byte_rate": "1024",
            },
            "b%2Fb": {"SCRAM-SHA-256": text + "5000"},
        }
    }


def token_record(token_id: str, *, expires: int = 20, owner: str = "User:ann") -> bytes:
    record = DelegationTokenRecord(
        owner=owner,
        requester="User:admin",
        renewers=["User:bob"],
        issue_timestamp=10,
        max_timestamp=90,
        expiration_timestamp=expires,
        token_id=token_id,
    )
    return record.encode_body(0)


def test_delegation_tokens() -> None:
    replay = _Replay()
    replay.take(10, 0, token_record("one"))
    replay.take(10, 0, token_record("one", expires=30))
    replay.take(10, 0, token_record("two"))
    replay.take(10, 0, token_record("three", owner="nobody"))
    replay.take(26, 0, RemoveDelegationTokenRecord(token_id="two").encode_body(0))
    found = replay.metadata().entities[EntityKind.DELEGATION_TOKEN]
    assert list(found) == ["one"]
    token = read_token(found["one"])
    assert token == DelegationToken(
        token_id="one",
        owner=KafkaPrincipal("User", "ann"),
        requester=KafkaPrincipal("User", "admin"),
        renewers=(KafkaPrincipal("User", "bob"),),
        issued_ms=10,
        expires_ms=30,
        max_ms=90,
    )
