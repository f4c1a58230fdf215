"""The entities that this broker knows, and who wants to hear of changes.

`broker_metadata` writes it. It implements ``model.entities.EntitiesView``.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping

from millstream.model.entities import EntityChanges, EntityKind, EntityValue

log = logging.getLogger(__name__)

Watcher = Callable[[Iterable[str]], None]


class EntityTable:
    """All entities by kind and key."""

    def __init__(self) -> None:
        self._by_kind: dict[EntityKind, dict[str, EntityValue]] = {kind: {} for kind in EntityKind}
        self._sorted: dict[EntityKind, list[str]] = {}
        """The keys of a kind in order, made when they are needed and until they change."""
        self._watchers: dict[EntityKind, list[Watcher]] = {}

    def all(self, kind: EntityKind) -> Mapping[str, EntityValue]:
        """Return the entities of a kind, by key. The mapping changes with them."""
        return self._by_kind[kind]

    def watch(self, kind: EntityKind, callback: Watcher) -> None:
        """Call ``callback(keys)`` whenever entities of a kind have changed or are gone."""
        self._watchers.setdefault(kind, []).append(callback)

    def change(self, kind: EntityKind, changes: EntityChanges) -> None:
        """Take over new values; None deletes. Watchers hear of what is different now."""
        present = self._by_kind[kind]
        different = [key for key, value in changes.items() if present.get(key) != value]
        if not different:
            return
        for key in different:
            value = changes[key]
            if (value is None) == (key in present):
                self._sorted.pop(kind, None)
            if value is None:
                del present[key]
            else:
                present[key] = value
        for watcher in self._watchers.get(kind, ()):
            try:
                watcher(different)
            except Exception:  # one reader's fault is not another one's, nor the controller's
                log.exception("a change of %s entities was not taken over", kind.name)

    def replace(self, kind: EntityKind, entities: Mapping[str, EntityValue]) -> None:
        """Take over all entities of a kind: others are gone."""
        gone = dict.fromkeys(key for key in self._by_kind[kind] if key not in entities)
        self.change(kind, {**gone, **entities})

    def replace_range(
        self,
        kind: EntityKind,
        *,
        after: str | None,
        through: str | None,
        named: Collection[str],
    ) -> None:
        """Delete the entities whose keys are above ``after`` and up to ``through``, except those
        named; None is no limit.
        """
        keys = self._sorted.get(kind)
        if keys is None:
            keys = self._sorted[kind] = sorted(self._by_kind[kind])
        first = 0 if after is None else bisect_right(keys, after)
        end = len(keys) if through is None else bisect_right(keys, through)
        self.change(kind, dict.fromkeys(key for key in keys[first:end] if key not in named))
