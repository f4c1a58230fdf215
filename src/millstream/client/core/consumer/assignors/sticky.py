"""The assignors ``sticky`` and ``cooperative-sticky``: balanced, and members keep what they have.

A member sends its previous partitions to the leader. ``sticky`` is eager: the member owns nothing
when it joins, so it writes its last assignment into the user data::

    array of (topic string, array of partition i32) | generation i32 (absent in the oldest form)

``cooperative-sticky`` (KIP-429) keeps its partitions while it joins; they are in the subscription
itself, with the generation since version 2 (KIP-792), before that in the user data::

    generation i32

Kafka: ``StickyAssignor``, ``CooperativeStickyAssignor``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.core.consumer.assignors.assignor import (
    NO_GENERATION,
    Assignments,
    GroupMember,
    RebalanceProtocol,
    TopicRacks,
    in_order,
)
from millstream.client.core.consumer.assignors.balance import assign_balanced
from millstream.model.topic import TopicPartition

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Claim:
    """The partitions that one member claims, and their generation."""

    partitions: tuple[TopicPartition, ...]
    generation: int


class StickyAssignor:
    """Keeps assignments over rebalances in which all members first revoke everything."""

    name = "sticky"
    rebalance_protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._claim: Claim | None = None

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the last assignment, None before the first."""
        return None if self._claim is None else encode_claim(self._claim)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Store the assignment for the next rebalance."""
        self._claim = Claim(tuple(partitions), generation)

    def assign(self, topics: TopicRacks, members: Sequence[GroupMember]) -> Assignments:
        """Return a balanced assignment close to the members' previous one."""
        claims = {
            member.member_id: decode_claim(member.user_data)
            if member.user_data
            else Claim((), NO_GENERATION)
            for member in members
        }
        return assign_balanced(topics, in_order(members), _settle(claims.items()))


class CooperativeStickyAssignor:
    """Moves partitions in two rebalances: first the old owner revokes them, then the new one gets
    them.
    """

    name = "cooperative-sticky"
    rebalance_protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the generation, for leaders that do not read it from the subscription."""
        return _INT32.pack(self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Store the generation for the next rebalance."""
        self._generation = generation

    def assign(self, topics: TopicRacks, members: Sequence[GroupMember]) -> Assignments:
        """Return the partitions that every member keeps, and unowned partitions that it gains.

        A partition that has to move is not assigned in this rebalance: its owner revokes it and
        rejoins, and then the new owner gets it.
        """
        claims = {
            member.member_id: Claim(member.owned, _generation_of(member)) for member in members
        }
        assignments = assign_balanced(topics, in_order(members), _settle(claims.items()))
        owners: dict[TopicPartition, set[str]] = {}
        for member in members:
            for topic_partition in member.owned:
                owners.setdefault(topic_partition, set()).add(member.member_id)
        for member_id, topic_partitions in assignments.items():
            topic_partitions[:] = [
                each for each in topic_partitions if member_id in owners.get(each, {member_id})
            ]
        return assignments


def encode_claim(claim: Claim) -> bytes:
    """Return the user data of ``sticky``."""
    topics: dict[str, list[int]] = {}
    for topic_partition in claim.partitions:
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    pieces = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        pieces += [_INT16.pack(len(name)), name]
        pieces.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    pieces.append(_INT32.pack(claim.generation))
    return b"".join(pieces)


def decode_claim(data: bytes) -> Claim:
    """Read the user data of ``sticky`` with or without the generation.

    Invalid bytes make no claim, as in Kafka: they only cost stickiness.
    """
    try:
        topic_partitions: list[TopicPartition] = []
        (topics,) = _INT32.unpack_from(data)
        position = 4
        for _ in range(topics):
            (size,) = _INT16.unpack_from(data, position)
            topic = data[position + 2 : position + 2 + size].decode()
            position += 2 + size
            (count,) = _INT32.unpack_from(data, position)
            numbers = struct.unpack_from(f">{count}i", data, position + 4)
            position += 4 + 4 * count
            topic_partitions += [TopicPartition(topic, number) for number in numbers]
        generation = NO_GENERATION
        if len(data) >= position + 4:
            (generation,) = _INT32.unpack_from(data, position)
        return Claim(tuple(topic_partitions), generation)
    except (struct.error, ValueError):
        return Claim((), NO_GENERATION)


def _generation_of(member: GroupMember) -> int:
    if member.generation != NO_GENERATION or not member.user_data:
        return member.generation
    if len(member.user_data) < _INT32.size:
        return NO_GENERATION
    generation: int = _INT32.unpack_from(member.user_data)[0]
    return generation


def _settle(claims: Iterable[tuple[str, Claim]]) -> dict[TopicPartition, str]:
    """Return the member of each claimed partition: the newest claim wins, two of one generation
    cancel out.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, claim in claims:
        for topic_partition in claim.partitions:
            generation, _ = best.get(topic_partition, (NO_GENERATION - 1, None))
            if claim.generation > generation:
                best[topic_partition] = (claim.generation, member_id)
            elif claim.generation == generation:
                best[topic_partition] = (generation, None)
    return {
        topic_partition: owner for topic_partition, (_, owner) in best.items() if owner is not None
    }
