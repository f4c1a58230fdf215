"""What goes wrong in production, on command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.testing import Kafka


def test_an_answer_that_is_lost_makes_no_second_invoice(
    kafka: Kafka, open_shop: Callable[[Kafka], Any]
) -> None:
    shop = open_shop(kafka)
    shop.order(1, 2)
    lost = kafka.next("Produce", client_id="invoices-out").lose_answer()
    shop.service.run_until(2)
    assert lost.times == 1
    shop.order(3)
    shop.service.run_until(1)
    assert [each["order"] for each in shop.invoiced(3)] == [1, 2, 3]


def test_leader_and_coordinator_move_and_a_broker_dies(
    kafka_cluster: Kafka, open_shop: Callable[[Kafka], Any]
) -> None:
    kafka = kafka_cluster
    shop = open_shop(kafka)
    shop.order(1)
    shop.service.run_until(1)
    kafka.move_leader(shop.invoices, to=(kafka.leader(shop.invoices) + 1) % 3)
    group = kafka.group("invoices")
    kafka.move_coordinator(group=group, to=(kafka.coordinator(group=group) + 1) % 3)
    shop.order(2)
    shop.service.run_until(1)
    kafka.broker(kafka.leader(shop.invoices)).kill()
    shop.order(3)
    shop.service.run_until(1)
    assert [each["order"] for each in shop.invoiced(3)] == [1, 2, 3]


def test_orders_expire_after_a_week(kafka: Kafka, open_shop: Callable[[Kafka], Any]) -> None:
    with kafka.producer() as producer:
        producer.send(kafka.topic("orders"), b'{"number": 1, "price": 5, "count": 2}').result(30)
    kafka.clock.advance(days=8)
    kafka.clock.advance(minutes=10)  # retention looks every five minutes
    shop = open_shop(kafka)
    shop.order(2)
    shop.service.run_until(1)
    assert [each["order"] for each in shop.invoiced(1)] == [2]
