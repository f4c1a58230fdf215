"""kafka-python."""

from __future__ import annotations

import warnings
from typing import Any

from tests.interop.secured.worker import TIMEOUT_S, Settings, serve

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors
    from kafka.net.sasl.oauth import AbstractTokenProvider


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def token(self) -> str:
        return self._text


def config(settings: Settings) -> dict[str, Any]:
    names = {
        "bootstrap": "bootstrap_servers",
        "protocol": "security_protocol",
        "ca": "ssl_cafile",
        "certificate": "ssl_certfile",
        "key": "ssl_keyfile",
        "mechanism": "sasl_mechanism",
        "username": "sasl_plain_username",
        "password": "sasl_plain_password",
    }
    found = {name: settings[short] for short, name in names.items() if short in settings}
    # It goes on to try after a refusal, which it logs.
    found["bootstrap_timeout_ms"] = int(settings.get("patience_s", TIMEOUT_S) * 1_000)
    if "token" in settings:
        found["sasl_oauth_token_provider"] = Token(settings["token"])
    return found


class KafkaPython:
    def hello(self, settings: Settings) -> dict[str, object]:
        return {"version": kafka.__version__}

    def produce(self, settings: Settings, topic: str, values: list[str]) -> dict[str, object]:
        producer = kafka.KafkaProducer(max_block_ms=int(TIMEOUT_S * 1000), **config(settings))
        try:
            sent = [producer.send(topic, value.encode()) for value in values]
            return {"offsets": [each.get(TIMEOUT_S).offset for each in sent]}
        finally:
            producer.close(timeout=5)

    def consume(self, settings: Settings, topic: str, group: str, count: int) -> dict[str, object]:
        consumer = kafka.KafkaConsumer(
            topic,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=int(TIMEOUT_S * 1000),
            **config(settings),
        )
        try:
            values: list[str] = []
            for record in consumer:
                values.append(record.value.decode())
                if len(values) == count:
                    break
            if len(values) < count:
                raise TimeoutError(f"{len(values)} records")
            consumer.commit()
            return {"values": values}
        finally:
            consumer.close(autocommit=False)

    def describe(self, settings: Settings, topic: str, group: str) -> dict[str, object]:
        admin = kafka.KafkaAdminClient(**config(settings))
        try:
            (found,) = admin.describe_topics([topic])
            if found["error_code"]:
                raise kafka.errors.for_code(found["error_code"])(topic)
            (group_id,) = admin.describe_groups([group])
            return {"partitions": len(found["partitions"]), "group": group_id}
        finally:
            admin.close()


if __name__ == "__main__":
    serve(KafkaPython())
