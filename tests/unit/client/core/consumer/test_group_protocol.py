"""Bytes between members: ours round trip, and those of older and newer clients are read."""

from __future__ import annotations

import pytest

from millstream.client.core.consumer.assignors.assignor import GroupMember
from millstream.client.core.consumer.group_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.model.errors import ProtocolError
from millstream.model.topic import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_subscription_round_trips() -> None:
    member = GroupMember(
        member_id="m",
        group_instance_id="i",
        topics=frozenset({"a", "b"}),
        owned=(A0, A1, B0),
        generation=4,
        rack_id="r",
        user_data=b"u",
    )
    data = encode_subscription(member)
    assert decode_subscription(data, member_id="m", group_instance_id="i") == member


def test_the_oldest_subscription_is_read() -> None:
    data = bytes.fromhex("0000 00000001 0001 61 ffffffff".replace(" ", ""))
    member = decode_subscription(data, member_id="m", group_instance_id=None)
    assert member == GroupMember(member_id="m", topics=frozenset({"a"}))


def test_a_newer_subscription_is_read_as_far_as_it_is_known() -> None:
    member = GroupMember(member_id="m", topics=frozenset({"a"}), rack_id="r")
    data = b"\x00\x09" + encode_subscription(member)[2:] + b"more"
    assert decode_subscription(data, member_id="m", group_instance_id=None) == member


def test_an_assignment_round_trips_and_none_is_empty() -> None:
    assert decode_assignment(encode_assignment([A0, B0, A1])) == (A0, A1, B0)
    assert decode_assignment(b"") == ()


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff\x00", b"\x00\x03\x00\x00\x00\x05"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_assignment(data)
