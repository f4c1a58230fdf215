"""The service under test, on topics of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from orders.service import InvoiceService

from millstream.testing import Kafka


@dataclass
class Shop:
    """Topics, the service, and both ends of it."""

    kafka: Kafka
    orders: str
    invoices: str
    service: InvoiceService

    def order(self, *numbers: int) -> None:
        """Place orders."""
        producer = Producer(self.kafka.client_settings("confluent"))
        for number in numbers:
            producer.produce(self.orders, json.dumps({"number": number, "price": 5, "count": 2}))
        assert producer.flush(30) == 0

    def invoiced(self, count: int) -> list[dict[str, Any]]:
        """Return so many invoices."""
        reader = Consumer(
            {
                **self.kafka.client_settings("confluent"),
                "group.id": self.kafka.group("reader"),
                "auto.offset.reset": "earliest",
            }
        )
        reader.subscribe([self.invoices])
        found: list[dict[str, Any]] = []
        while len(found) < count:
            message = reader.poll(1.0)
            if message is not None and not message.error():
                found.append(json.loads(message.value()))
        reader.close()
        return found


@pytest.fixture
def open_shop() -> Iterator[Callable[[Kafka], Shop]]:
    """Open the shop on a broker, or on a cluster."""
    services: list[InvoiceService] = []

    def open_shop(kafka: Kafka) -> Shop:
        orders, invoices = kafka.topic("orders"), kafka.topic("invoices")
        service = InvoiceService(
            kafka.client_settings("confluent"),
            group=kafka.group("invoices"),
            orders=orders,
            invoices=invoices,
        )
        services.append(service)
        return Shop(kafka, orders, invoices, service)

    yield open_shop
    for service in services:
        service.close()
