"""Parts of the entities that fit into one push: those that have changed, or the next of all.

A broker that has registered is told all entities in order of kind and key, a range of keys with
each push: whatever it knows within the range and is not told is gone. A range needs nothing of the
pushes before it, so it may be sent again, and changes may come between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from millstream.controller.entity_changes import StoredEntities, entity_size
from millstream.model.entities import EntityKind
from millstream.protocol.messages.push_metadata import PushedEntity, PushedEntityRange
from millstream.runtime.metadata.metadata_messages import entity_message, entity_range_message

MAX_ENTITIES: Final = 2_000
"""Entities in one push; more follow in the next."""

MAX_BYTES: Final = 256 * 1024
"""Their size, unless one alone is larger."""

Position: TypeAlias = tuple[int, str]
"""A kind, by its code, and the key up to which entities of it have been told; ``""`` for none."""

_KINDS: Final = sorted(EntityKind, key=lambda kind: kind.value)

EVERYTHING: Final[Position] = (_KINDS[0].value, "")


@dataclass(frozen=True, slots=True)
class Chunk:
    """All entities within a range, and where the next range begins; None after the last one."""

    entities: list[PushedEntity]
    range: PushedEntityRange
    following: Position | None


def take_changed(
    entities: StoredEntities, changed: Iterable[tuple[EntityKind, str]]
) -> tuple[list[PushedEntity], dict[tuple[EntityKind, str], None]]:
    """Return the first of some changed entities as messages, and which ones are left."""
    messages: list[PushedEntity] = []
    waiting = iter(changed)
    size = 0
    for kind, key in waiting:
        value = entities.by_kind[kind].get(key)
        size += entity_size(key, value or {})
        if messages and (size > MAX_BYTES or len(messages) >= MAX_ENTITIES):
            return messages, dict.fromkeys([(kind, key), *waiting])
        messages.append(entity_message(kind, key, value))
    return messages, {}


def take_next(entities: StoredEntities, position: Position) -> Chunk:
    """Return the entities after a position that fit into one push."""
    code, after = position
    kind = EntityKind(code)
    of_kind, keys = entities.by_kind[kind], entities.keys_in_order(kind)
    first = bisect_right(keys, after) if after else 0
    end, size = first, 0
    while end < len(keys) and end - first < MAX_ENTITIES:
        size += entity_size(keys[end], of_kind[keys[end]])
        if size > MAX_BYTES and end > first:
            break
        end += 1
    is_last = end == len(keys)
    through = None if is_last else keys[end - 1]
    following: Position | None
    if through is not None:
        following = (code, through)
    else:
        later = [each.value for each in _KINDS if each.value > code]
        following = (later[0], "") if later else None
    return Chunk(
        [entity_message(kind, key, of_kind[key]) for key in keys[first:end]],
        entity_range_message(kind, after=after or None, through=through),
        following,
    )
