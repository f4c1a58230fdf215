"""Quotas of addresses are followed as entities change."""

from __future__ import annotations

from millstream.config.broker import BrokerConfig
from millstream.model.entities import EntityKind
from millstream.net.connection_quotas import ConnectionLimits, ConnectionQuotas
from millstream.runtime.metadata.entity_table import EntityTable
from millstream.server.connection_rates import ConnectionRates


def test_the_most_specific_quota_counts_and_without_any_there_is_nothing_to_ask() -> None:
    entities, quotas = EntityTable(), ConnectionQuotas(ConnectionLimits())
    ConnectionRates(entities, BrokerConfig({"quota.window.num": "2"}), quotas)
    assert quotas.rates is None
    rate = "connection_creation_rate"
    entities.change(EntityKind.IP, {"<default>": {rate: "2"}, "10.0.0.1": {rate: "1000"}})
    assert quotas.rates is not None
    # Two windows hold what may be used in one second at once.
    assert [quotas.rates.connected("10.0.0.2", 0) for _ in range(4)] == [0, 0, 500, 500]
    assert quotas.rates.connected("10.0.0.3", 0) == 0, "each address for itself"
    assert [quotas.rates.connected("10.0.0.1", 0) for _ in range(4)] == [0] * 4
    assert quotas.rates.connected("10.0.0.2", 1_500) == 0
    entities.change(EntityKind.IP, {"<default>": None})
    assert quotas.rates.connected("10.0.0.2", 1_500) == 0
    entities.change(EntityKind.IP, {"10.0.0.1": None})
    assert quotas.rates is None


def test_quotas_that_are_there_at_the_start_count() -> None:
    entities, quotas = EntityTable(), ConnectionQuotas(ConnectionLimits())
    entities.change(EntityKind.IP, {"10.0.0.1": {"connection_creation_rate": "1"}})
    ConnectionRates(entities, BrokerConfig(), quotas)
    assert quotas.rates is not None
