"""Reads orders, writes invoices. Any client library would do; this is librdkafka's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition


class InvoiceService:
    """Writes an invoice for each order of one topic into another."""

    def __init__(
        self, client_settings: Mapping[str, Any], *, group: str, orders: str, invoices: str
    ) -> None:
        self._invoices = invoices
        self._consumer = Consumer(
            {
                **client_settings,
                "client.id": "invoices-in",
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._producer = Producer(
            {
                **client_settings,
                "client.id": "invoices-out",
                "enable.idempotence": True,
                "retry.backoff.ms": 20,
            }
        )
        self._consumer.subscribe([orders])

    def run_until(self, count: int, timeout: float = 60.0) -> None:
        """Handle so many orders."""
        handled = 0
        while handled < count:
            messages = self._consumer.consume(count - handled, timeout=min(timeout, 0.2))
            for message in messages:
                if message.error():
                    continue
                order = json.loads(message.value())
                invoice = {"order": order["number"], "total": order["price"] * order["count"]}
                self._producer.produce(self._invoices, json.dumps(invoice), str(order["number"]))
                handled += 1
            if messages:
                self._producer.flush(timeout)
                self._consumer.commit(asynchronous=False)

    def positions(self, orders: str) -> int:
        """Return the offset that is committed for the first partition."""
        (found,) = self._consumer.committed([TopicPartition(orders, 0)], timeout=30)
        return int(found.offset)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
