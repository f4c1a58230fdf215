"""Quotas of addresses, which limit how many connections clients make in a second."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.config.broker import BrokerConfig
from millstream.model.entities import EntityKind
from millstream.model.entity_keys import decode_name
from millstream.net.connection_quotas import ConnectionQuotas
from millstream.runtime.metadata.entity_table import EntityTable

if TYPE_CHECKING:
    from millstream.security.quotas import AddressRates


class ConnectionRates:
    """Follows the quotas of addresses; ``quotas.rates`` is None while there are none."""

    def __init__(
        self, entities: EntityTable, config: BrokerConfig, quotas: ConnectionQuotas
    ) -> None:
        self._entities = entities
        self._config = config
        self._quotas = quotas
        self._rates: AddressRates | None = None
        entities.watch(EntityKind.IP, self._changed)
        self._changed(tuple(entities.all(EntityKind.IP)))

    def _changed(self, keys: Iterable[str]) -> None:
        present = self._entities.all(EntityKind.IP)
        rates = self._rates
        if rates is None and not present:
            return
        from millstream.security.quotas import CONNECTION_RATE, AddressRates, Windows, quota_number

        if rates is None:
            config = self._config
            rates = self._rates = AddressRates(
                Windows(config.quota_window_num, config.quota_window_size_seconds * 1_000)
            )
        for key in keys:
            rates.set(decode_name(key), quota_number(present.get(key), CONNECTION_RATE))
        self._quotas.rates = rates or None
