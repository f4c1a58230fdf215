"""Puts the quota gate in place while any quota is set, and takes it away after the last one.

A broker without quotas loads no code of theirs, and its handlers are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from millstream.config.broker import BrokerConfig
from millstream.config.sections.quotas import MAX_LONG
from millstream.model.entities import EntityKind, EntityValue
from millstream.runtime.services import Services

if TYPE_CHECKING:
    from millstream.server.quota_gate import QuotaGate

_KINDS = (EntityKind.USER, EntityKind.CLIENT, EntityKind.USER_CLIENT)


class ClientQuotaSwitch:
    """Follows the quotas of users and client ids. ``on_switched`` is called when the gate is put in
    place or taken away.
    """

    def __init__(self, services: Services, on_switched: Callable[[], None]) -> None:
        self._services = services
        self._on_switched = on_switched
        self._config = services.config.static
        self._gate: QuotaGate | None = None
        self.active: QuotaGate | None = None
        """The gate, while any quota is set."""
        entities = services.metadata.entities
        if _has_defaults(self._config):
            self._make()
            self._switch()
        for kind in _KINDS:
            entities.watch(kind, partial(self._changed, kind))
            self._changed(kind, tuple(entities.all(kind)))

    def _changed(self, kind: EntityKind, keys: Iterable[str]) -> None:
        present = self._services.metadata.entities.all(kind)
        if self._gate is None:
            if _any_quota([present[key] for key in keys if key in present]):
                self._make()
                self._switch()
            return
        self._gate.quotas.update(kind, keys, present)
        self._switch()

    def _make(self) -> None:
        from millstream.runtime.client_usage import ClientUsage
        from millstream.security.quotas import Quotas, QuotaType, Windows
        from millstream.server.quota_gate import QuotaGate

        config = self._config
        quotas = Quotas(
            Windows(config.quota_window_num, config.quota_window_size_seconds * 1_000),
            Windows(
                config.controller_quota_window_num,
                config.controller_quota_window_size_seconds * 1_000,
            ),
        )
        if config.quota_producer_default != MAX_LONG:
            quotas.by_type[QuotaType.PRODUCE].limits.set_default(config.quota_producer_default)
        if config.quota_consumer_default != MAX_LONG:
            quotas.by_type[QuotaType.FETCH].limits.set_default(config.quota_consumer_default)
        for kind in _KINDS:
            present = self._services.metadata.entities.all(kind)
            quotas.update(kind, present, present)
        self._gate = QuotaGate(ClientUsage(quotas, self._services.clock), self._services.clock)

    def _switch(self) -> None:
        gate = self._gate
        assert gate is not None
        active = gate if gate.quotas else None
        if active is not self.active:
            self.active = active
            self._services.quotas = None if active is None else active.usage
            self._on_switched()


def _any_quota(entities: Collection[EntityValue]) -> bool:
    if not entities:
        return False
    from millstream.controller.quota_changes import QUOTA_NAMES

    return any(QUOTA_NAMES & entity.keys() for entity in entities)


def _has_defaults(config: BrokerConfig) -> bool:
    return config.quota_producer_default != MAX_LONG or config.quota_consumer_default != MAX_LONG
