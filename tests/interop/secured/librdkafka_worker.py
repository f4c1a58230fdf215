"""librdkafka, by confluent-kafka."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from tests.interop.secured.worker import TIMEOUT_S, RefusedError, Settings, serve

FINAL = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""What `error_cb` is told and no call raises: the client tries again for ever. In TLS 1.3 a refused
certificate is an alert after the handshake, which librdkafka calls _TRANSPORT.
"""


class Librdkafka:
    def __init__(self) -> None:
        self._error: KafkaError | None = None

    def hello(self, settings: Settings) -> dict[str, object]:
        return {"version": confluent_kafka.libversion()[0]}

    def produce(self, settings: Settings, topic: str, values: list[str]) -> dict[str, object]:
        producer = Producer(self._config(settings))
        done: list[tuple[KafkaError | None, Message]] = []
        for value in values:
            producer.produce(topic, value, on_delivery=lambda *report: done.append(report))
        deadline = time.monotonic() + TIMEOUT_S
        while len(done) < len(values) and time.monotonic() < deadline and self._error is None:
            producer.poll(0.1)
        if len(done) < len(values):
            producer.purge()
            producer.flush(5)
            self._refuse("records are not acknowledged")
        for error, message in done:
            if error is not None:
                raise RefusedError(error.name(), f"{error.str()} {message.topic()}")
        return {"offsets": [message.offset() for _, message in done]}

    def consume(self, settings: Settings, topic: str, group: str, count: int) -> dict[str, object]:
        more = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer(self._config(settings) | more)
        try:
            consumer.subscribe([topic])
            values: list[str] = []
            deadline = time.monotonic() + TIMEOUT_S
            while len(values) < count:
                message = consumer.poll(0.1)
                if message is not None:
                    error = message.error()
                    if error is not None:
                        named = message.topic() or ""
                        raise RefusedError(error.name(), f"{error.str()} {named}")
                    values.append((message.value() or b"").decode())
                if self._error is not None or time.monotonic() >= deadline:
                    self._refuse(f"{len(values)} records after {TIMEOUT_S} s")
            consumer.commit(asynchronous=False)
            return {"values": values}
        finally:
            consumer.close()

    def describe(self, settings: Settings, topic: str, group: str) -> dict[str, object]:
        admin = AdminClient(self._config(settings))
        topics = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)
        groups = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)
        while not (topics[topic].done() and groups[group].done()):
            admin.poll(0.1)
            if self._error is not None:
                self._refuse("")
        try:
            partitions = topics[topic].result().partitions
            return {"partitions": len(partitions), "group": groups[group].result().group_id}
        except KafkaException as error:
            cause = error.args[0]
            raise RefusedError(cause.name(), f"{cause.str()} {topic}") from error

    def _config(self, settings: Settings) -> dict[str, Any]:
        self._error = None
        config: dict[str, Any] = {
            "bootstrap.servers": settings["bootstrap"],
            "security.protocol": settings["protocol"],
            "error_cb": self._noted,
            "log_level": 0,
        }
        names = {
            "ca": "ssl.ca.location",
            "certificate": "ssl.certificate.location",
            "key": "ssl.key.location",
            "mechanism": "sasl.mechanism",
            "username": "sasl.username",
            "password": "sasl.password",
        }
        config |= {name: settings[short] for short, name in names.items() if short in settings}
        if "token" in settings:
            config["oauth_cb"] = lambda _: (settings["token"], time.time() + 600)
        return config

    def _noted(self, error: KafkaError) -> None:
        is_final = error.code() in FINAL or "alert" in error.str()
        if is_final and self._error is None:
            self._error = error

    def _refuse(self, otherwise: str) -> None:
        if self._error is None:
            raise TimeoutError(otherwise)
        raise RefusedError(self._error.name(), self._error.str())


if __name__ == "__main__":
    serve(Librdkafka())
