"""Checkpoints, producer snapshots, partition.metadata, meta.properties, directory names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConfigError, CorruptIndexError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.storage.checkpoint import CorruptCheckpointError, format_offsets, parse_offsets
from millstream.storage.directory import (
    DirectoryKind,
    directory_name,
    file_name,
    parse_directory_name,
    parse_file_name,
)
from millstream.storage.meta_properties import (
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from millstream.storage.partition_metadata import (
    format_partition_metadata,
    parse_partition_metadata,
)
from millstream.storage.producer_snapshot import decode_snapshot, encode_snapshot
from millstream.storage.producer_state import BatchMetadata, ProducerEntry

ID = "0123456789abcdef" * 2


def test_offset_checkpoint() -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b.c-d", 12): 2**40}
    text = format_offsets(offsets)
    assert text == f"0\n2\na 0 5\nb.c-d 12 {2**40}\n"
    assert parse_offsets(text) == offsets
    assert parse_offsets("0\n0\n") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n1\n",
        "0\n1\na 0\n",
        "0\n1\na b 5\n",
        "7\n0\n",
        "0\n0\na 0 1\n",
        "0\n1\na 0 --5\n",
        "0\n1\na 0 5 \n",
        "0\n1\na 0 \u0665\n",
        f"0\n1\na 0 {2**63}\n",
        f"0\n1\na 0 {'9' * 5000}\n",
    ],
)
def test_damaged_offset_checkpoints_are_refused(text: str) -> None:
    with pytest.raises(CorruptCheckpointError):
        parse_offsets(text)


def _entry(
    producer_id: int,
    epoch: int,
    last: BatchMetadata | None,
    timestamp: int,
    coordinator_epoch: int,
    first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id, epoch)
    if last is not None:
        entry.add(epoch, last)
    else:
        entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.current_txn_first_offset = first_offset
    return entry


int64 = st.integers(0, 2**63 - 1)
entries = st.builds(
    _entry,
    int64,
    st.integers(0, 2**15 - 1),
    st.none()
    | st.builds(
        BatchMetadata,
        st.integers(0, 2**31 - 1),
        int64,
        st.integers(0, 2**31 - 1),
        st.integers(-1, 2**63 - 1),
    ),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
)


def fields(entry: ProducerEntry) -> list[object]:
    return [getattr(entry, name) for name in ProducerEntry.__slots__]


@given(st.lists(entries, max_size=5))
def test_producer_snapshot_round_trip(producers: list[ProducerEntry]) -> None:
    data = encode_snapshot(producers)
    assert len(data) == 10 + 46 * len(producers)
    assert list(map(fields, decode_snapshot(data, "x"))) == list(map(fields, producers))


@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_a_damaged_producer_snapshot_is_refused(
    producers: list[ProducerEntry], data: st.DataObject
) -> None:
    snapshot = bytearray(encode_snapshot(producers))
    snapshot[data.draw(st.integers(0, len(snapshot) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptIndexError, match="x: "):
        decode_snapshot(bytes(snapshot), "x")
    with pytest.raises(CorruptIndexError):
        decode_snapshot(encode_snapshot(producers)[:-1], "x")


def test_partition_metadata() -> None:
    topic_id = TopicId(bytes(range(16)))
    text = format_partition_metadata(topic_id)
    assert text == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert parse_partition_metadata(text) == topic_id
    for damaged in (
        "",
        "version: 0\n",
        "version: 0\ntopic_id: !",
        text.replace("version: 0", "version: 9"),
        format_partition_metadata(ZERO_TOPIC_ID),
    ):
        assert parse_partition_metadata(damaged) is None


def test_meta_properties() -> None:
    kafka = (
        "#\n#Fri Nov 21 01:00:00 UTC 2025\ncluster.id=TWlsbHN0cmVhbS10ZXN0cw\n"
        "directory.id=vTGO2cRwDzTnlXMhxnIYLw\nnode.id=1\nversion=1\n"
    )
    meta = MetaProperties("TWlsbHN0cmVhbS10ZXN0cw", 1, "vTGO2cRwDzTnlXMhxnIYLw")
    assert parse_meta_properties(kafka, "x") == meta
    assert parse_meta_properties(format_meta_properties(meta), "x") == meta
    assert parse_meta_properties("version=0\nbroker.id=3\n", "x") == MetaProperties(None, 3)
    for damaged in ("version=7\n", "version=1\nnode.id=x\n"):
        with pytest.raises(ConfigError):
            parse_meta_properties(damaged, "x")


def test_file_names() -> None:
    assert file_name(7, ".log") == "00000000000000000007.log"
    assert parse_file_name("00000000000000000007.timeindex") == (7, ".timeindex")
    for other in ("a.log", "7.log.swap", "7.txt", "7.log.deleted", "leader-epoch-checkpoint"):
        assert parse_file_name(other) is None


@pytest.mark.parametrize("topic", ["a", "a-b.c_d", "orders-7", "x" * 249])
@pytest.mark.parametrize("kind", list(DirectoryKind))
def test_directory_names(topic: str, kind: DirectoryKind) -> None:
    partition = TopicPartition(topic, 12)
    name = directory_name(partition, kind, ID)
    if kind is not DirectoryKind.FUTURE:
        assert len(name) <= 255
    parsed = parse_directory_name(name)
    assert parsed is not None
    assert parsed[1] is kind
    if len(topic) < 100:
        assert parsed[0] == partition


@pytest.mark.parametrize(
    "name", ["x", "lost+found", "a-b", "-1", "a-1.short-delete", f"a-1.{ID}-other"]
)
def test_other_directories_are_not_partitions(name: str) -> None:
    assert parse_directory_name(name) is None
