"""The everyday part: one broker for all tests, and topics of their own for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.testing import Kafka


@pytest.mark.parametrize("count", [1, 20])
def test_an_order_becomes_an_invoice(
    kafka: Kafka, open_shop: Callable[[Kafka], Any], count: int
) -> None:
    shop = open_shop(kafka)
    shop.order(*range(count))
    shop.service.run_until(count)
    assert shop.invoiced(count) == [{"order": number, "total": 10} for number in range(count)]


def test_offsets_are_committed_once_for_a_batch(
    kafka: Kafka, open_shop: Callable[[Kafka], Any]
) -> None:
    with kafka.record() as requests:
        shop = open_shop(kafka)
        shop.order(1, 2, 3)
        shop.service.run_until(3)
    assert shop.service.positions(shop.orders) == 3
    requests.expect("OffsetCommit", at_least=1, client_id="invoices-in")
    requests.expect_none("OffsetCommit", client_id="invoices-out")
    requests.expect_order("JoinGroup", "SyncGroup", "OffsetCommit", client_id="invoices-in")


def test_a_topic_is_there(kafka: Kafka, kafka_topic: str) -> None:
    assert kafka_topic in kafka.admin.list_topics()


@pytest.mark.kafka(security="SASL_SSL", users={"shop": "shop-secret"})
def test_with_tls_and_a_user(kafka: Kafka, open_shop: Callable[[Kafka], Any]) -> None:
    shop = open_shop(kafka)
    with kafka.record() as requests:
        shop.order(1)
        shop.service.run_until(1)
    assert {each.principal for each in requests.all("Produce")} == {"User:shop"}
