"""The controller's decisions about entities: rules of access, users, quotas, delegation tokens.

A new controller reads the entities after it has elected leaders, beside its events: there may be
hundreds of thousands, and partitions do not wait for them. Changes do, and are refused where the
store holds what cannot be read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from millstream.controller.entity_changes import (
    StoredEntities,
    check_limits,
    plan,
    real_changes,
)
from millstream.model.deferred import Deferred, spawn
from millstream.model.entities import Decide, EntityKind
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.metadata_store import ConnectionLossError
from millstream.runtime.controlling.cluster_reading import read_entities
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.pauses import pause

log = logging.getLogger(__name__)

RETRY_MS: Final = 500


class EntityControl:
    """Changes entities, one request at a time."""

    def __init__(self, events: ControllerEvents) -> None:
        self._events = events
        self._state = events.state
        self._loading: Deferred[None] = Deferred.of(None)

    def change(self, kind: EntityKind, decide: Decide) -> Deferred[None]:
        """Store what ``decide`` says of the present entities of a kind, and tell every broker.

        Fails with the KafkaError that ``decide`` raises, POLICY_VIOLATION for entities that are too
        many or too large, and NOT_CONTROLLER.
        """
        return spawn(self._change(kind, decide))

    async def _change(self, kind: EntityKind, decide: Decide) -> None:
        self._state.check_active()
        term = self._state.term
        await self._loading
        self._state.check_active(term)
        await self._events.submit(lambda: self._decide(kind, decide))

    async def _decide(self, kind: EntityKind, decide: Decide) -> None:
        entities = self._state.context.entities
        if entities is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "the metadata store holds an entity that cannot be read, see the controller's log",
            )
        present = entities.by_kind[kind]
        decided = decide(present)
        if not isinstance(decided, Mapping):
            decided = await decided
            if self._state.context.entities is not entities:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "another term has begun meanwhile")
        changes = real_changes(present, decided)
        if not changes:
            return
        check_limits(entities, kind, changes)
        operations = plan(entities, kind, changes)
        await self._events.write(operations)
        entities.apply(kind, changes, operations)
        self._events.publish_entities(kind, changes)

    def load(self) -> None:
        """Read the entities from the store at the beginning of a term."""
        self._loading = spawn(self._load())

    async def _load(self) -> None:
        term = self._state.term
        while self._state.is_active and self._state.term == term:
            try:
                entities = await read_entities(self._events.store)
            except ConnectionLossError:
                await pause(self._events.clock, RETRY_MS)
            except MillstreamError:
                log.exception("entities cannot be changed, for those in the store cannot be read")
                return
            else:
                if self._state.term == term:
                    self._loaded(entities)
                return

    def _loaded(self, entities: StoredEntities) -> None:
        self._state.context.entities = entities
        self._events.publish_all_entities()
