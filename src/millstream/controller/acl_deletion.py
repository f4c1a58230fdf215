"""Which rules of access the filters of one DeleteAcls request delete.

A request may have thousands of filters, and there may be a hundred thousand rules. All rules are
looked through once for all filters: a rule asks one dictionary for each *shape* that the filters
have, which is the set of fields that they name, so there are sixteen at most. A filter that names
its resource, or asks which rules are about it (MATCH), concerns the resource patterns that it can
match alone.

The work is a generator that yields after every ``WORK_PER_STEP`` look-ups, so that a broker serves
others in between. Rules are compared as the texts that are stored, and only those that match become
objects.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from millstream.controller.acl_changes import MAX_CHANGES
from millstream.model.acl import (
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)
from millstream.model.entities import EntityChanges, EntityValue
from millstream.model.entity_keys import (
    OPERATION_NAMES,
    PERMISSION_NAMES,
    acl_key,
    read_acl_key,
    read_acls,
    rule_words,
)
from millstream.model.errors import ErrorCode, KafkaError

WORK_PER_STEP: Final = 5_000
"""How many look-ups are done before others have their turn: some five milliseconds."""

MAX_FOUND: Final = 20_000
"""How many rules the answers to one request may name, each as often as a filter matches it."""

Group: TypeAlias = tuple[AclResource, PatternType]

_RESOURCES: Final = tuple(each for each in AclResource if each is not AclResource.ANY)
_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)

Words: TypeAlias = tuple[str, str, str, str]
"""Permission, operation, host and principal of a rule, as it is stored."""


@dataclass(slots=True)
class Deletion:
    """The changes that delete the rules, and what each filter matches: POLICY_VIOLATION stands for
    one that matches more than ``MAX_CHANGES``.
    """

    changes: EntityChanges = field(default_factory=dict)
    found: list[list[Acl] | KafkaError] = field(default_factory=list)


class _FilterIndex:
    """Filters by what they say of a rule, without its resource pattern."""

    __slots__ = ("_by_shape",)

    def __init__(self) -> None:
        self._by_shape: dict[tuple[int, ...], dict[tuple[str, ...], list[int]]] = {}

    @property
    def shapes(self) -> int:
        """How many dictionaries a rule asks."""
        return len(self._by_shape)

    def add(self, number: int, wanted: AclFilter) -> None:
        """Take in a filter by its number."""
        given = (
            None if wanted.permission is Permission.ANY else PERMISSION_NAMES[wanted.permission],
            None if wanted.operation is AclOperation.ANY else OPERATION_NAMES[wanted.operation],
            wanted.host,
            wanted.principal,
        )
        shape = tuple(at for at, value in enumerate(given) if value is not None)
        words = tuple(value for value in given if value is not None)
        self._by_shape.setdefault(shape, {}).setdefault(words, []).append(number)

    def matching(self, words: Words) -> Iterator[int]:
        """Yield the numbers of the filters that match a rule."""
        for shape, filters in self._by_shape.items():
            found = filters.get(tuple([words[at] for at in shape]))
            if found is not None:
                yield from found


class _Found:
    """The texts that each filter matches."""

    def __init__(self, count: int) -> None:
        self.by_filter: list[dict[tuple[str, str], None] | None] = [{} for _ in range(count)]
        """Key and text of each rule; None for a filter that matches too many."""
        self._size = 0

    def add(self, number: int, key: str, text: str) -> None:
        """Note a rule. POLICY_VIOLATION when the answers would name more than ``MAX_FOUND``."""
        of_filter = self.by_filter[number]
        if of_filter is None or (key, text) in of_filter:
            return
        if len(of_filter) >= MAX_CHANGES:
            self._size -= len(of_filter)
            self.by_filter[number] = None
            return
        of_filter[key, text] = None
        self._size += 1
        if self._size > MAX_FOUND:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The filters of this request match more than {MAX_FOUND} acls, each counted for "
                "each of its filters.",
            )


def deletion_in_steps(
    present: Mapping[str, EntityValue], filters: Sequence[AclFilter]
) -> Generator[int, None, Deletion]:
    """Compute what filters delete of the present rules, which must not change meanwhile. Yields how
    many look-ups were done since the last time. Raises POLICY_VIOLATION when the filters together
    match more than ``MAX_FOUND``.
    """
    found = _Found(len(filters))
    done = 0
    for work in _match(present, filters, found):
        done += work
        if done >= WORK_PER_STEP:
            yield done
            done = 0
    deletion = Deletion()
    gone: dict[str, set[str]] = {}
    for of_filter in found.by_filter:
        if of_filter is None:
            reason = f"Cannot remove more than {MAX_CHANGES} acls in a single delete operation."
            deletion.found.append(KafkaError(ErrorCode.POLICY_VIOLATION, reason))
            continue
        for key, text in of_filter:
            gone.setdefault(key, set()).add(text)
        acls = [acl for key, text in sorted(of_filter) for acl in read_acls(key, {text: ""})]
        deletion.found.append(acls)
        done += 1 + len(acls)
        if done >= WORK_PER_STEP:
            yield done
            done = 0
    deletion.changes = {
        key: {text: value for text, value in present[key].items() if text not in texts} or None
        for key, texts in gone.items()
    }
    return deletion


@dataclass(slots=True)
class _Placed:
    """Where filters are asked: by the rules of a type of resources and patterns, or of one key."""

    of_group: dict[Group, _FilterIndex] = field(default_factory=dict)
    of_key: dict[str, _FilterIndex] = field(default_factory=dict)

    def indexes(self, key: str) -> list[_FilterIndex]:
        """Return the filters that the rules of a key may be matched by."""
        resource, pattern, _ = read_acl_key(key)
        found = self.of_key.get(key), self.of_group.get((resource, pattern))
        return [index for index in found if index is not None]


def _match(
    present: Mapping[str, EntityValue], filters: Sequence[AclFilter], found: _Found
) -> Iterator[int]:
    """Find what the filters match; yield how many look-ups each bit of it took."""
    placed = _Placed()
    yield from _place(present, filters, placed)
    for key in present if placed.of_group else placed.of_key:
        yield 1
        indexes = placed.indexes(key)
        if indexes:
            yield from _match_entity(key, present[key], indexes, found)


def _place(
    present: Mapping[str, EntityValue], filters: Sequence[AclFilter], placed: _Placed
) -> Iterator[int]:
    lengths: dict[AclResource, list[int]] | None = None
    for number, wanted in enumerate(filters):
        if wanted.name is None:
            for group in _groups(wanted):
                placed.of_group.setdefault(group, _FilterIndex()).add(number, wanted)
            yield 1
            continue
        if wanted.pattern is PatternType.MATCH and lengths is None:
            lengths = {}
            yield from _prefix_lengths(present, lengths)
        for key in _keys(wanted, wanted.name, lengths or {}):
            if key in present:
                placed.of_key.setdefault(key, _FilterIndex()).add(number, wanted)
            yield 1


def _match_entity(
    key: str, value: EntityValue, indexes: Sequence[_FilterIndex], found: _Found
) -> Iterator[int]:
    work = sum(index.shapes for index in indexes)
    for text in value:
        words = rule_words(text)
        for index in indexes:
            for number in index.matching(words):
                found.add(number, key, text)
                yield 1
        yield work


def _groups(wanted: AclFilter) -> Iterator[Group]:
    """Yield the types of resources and patterns that a filter without a name is about."""
    exact = wanted.pattern in _PATTERNS
    for resource in _RESOURCES if wanted.resource is AclResource.ANY else (wanted.resource,):
        for pattern in (wanted.pattern,) if exact else _PATTERNS:
            yield resource, pattern


def _keys(
    wanted: AclFilter, name: str, lengths: Mapping[AclResource, Iterable[int]]
) -> Iterator[str]:
    """Yield the keys of the resource patterns that a filter with a name can match."""
    for resource in _RESOURCES if wanted.resource is AclResource.ANY else (wanted.resource,):
        if wanted.pattern is not PatternType.MATCH:
            for pattern in (wanted.pattern,) if wanted.pattern in _PATTERNS else _PATTERNS:
                yield acl_key(resource, pattern, name)
            continue
        for literal in {name, WILDCARD}:
            yield acl_key(resource, PatternType.LITERAL, literal)
        for length in lengths.get(resource, ()):
            if length <= len(name):
                yield acl_key(resource, PatternType.PREFIXED, name[:length])


def _prefix_lengths(
    present: Mapping[str, EntityValue], lengths: dict[AclResource, list[int]]
) -> Iterator[int]:
    """Find which lengths the prefixes of each type of resource have."""
    known: dict[AclResource, set[int]] = {}
    for key in present:
        resource, pattern, name = read_acl_key(key)
        if pattern is PatternType.PREFIXED:
            known.setdefault(resource, set()).add(len(name))
        yield 1
    lengths.update({resource: sorted(found) for resource, found in known.items()})
