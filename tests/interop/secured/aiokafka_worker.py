"""aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import aiokafka.errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.helpers import create_ssl_context
from tests.interop.secured.worker import TIMEOUT_S, Settings, serve


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


def config(settings: Settings) -> dict[str, Any]:
    names = {
        "bootstrap": "bootstrap_servers",
        "protocol": "security_protocol",
        "mechanism": "sasl_mechanism",
        "username": "sasl_plain_username",
        "password": "sasl_plain_password",
    }
    found = {name: settings[short] for short, name in names.items() if short in settings}
    if "SSL" in settings["protocol"].split("_"):
        found["ssl_context"] = create_ssl_context(
            cafile=settings["ca"],
            certfile=settings.get("certificate"),
            keyfile=settings.get("key"),
        )
    if "token" in settings:
        found["sasl_oauth_token_provider"] = Token(settings["token"])
    return found


class Aiokafka:
    def hello(self, settings: Settings) -> dict[str, object]:
        return {"version": aiokafka.__version__}

    def produce(self, settings: Settings, topic: str, values: list[str]) -> dict[str, object]:
        async def story() -> list[int]:
            async with aiokafka.AIOKafkaProducer(**config(settings)) as producer:
                sent = [await producer.send(topic, value.encode()) for value in values]
                return [(await each).offset for each in sent]

        return {"offsets": asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))}

    def consume(self, settings: Settings, topic: str, group: str, count: int) -> dict[str, object]:
        async def story() -> list[str]:
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **config(settings),
            )
            async with consumer:
                values = [(await consumer.getone()).value.decode() for _ in range(count)]
                await consumer.commit()
                return values

        return {"values": asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))}

    def describe(self, settings: Settings, topic: str, group: str) -> dict[str, object]:
        async def story() -> dict[str, object]:
            admin = AIOKafkaAdminClient(**config(settings))
            await admin.start()
            try:
                (found,) = await admin.describe_topics([topic])
                (answer,) = await admin.describe_consumer_groups([group])
            finally:
                await admin.close()
            for code in (found["error_code"], answer.groups[0][0]):
                if code:
                    raise aiokafka.errors.for_code(code)(topic)
            return {"partitions": len(found["partitions"]), "group": answer.groups[0][1]}

        return asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))


if __name__ == "__main__":
    serve(Aiokafka())
