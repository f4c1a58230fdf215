"""Without pytest's fixtures: a broker as a context manager."""

from __future__ import annotations

import asyncio
import threading
import unittest

from millstream.testing import start_kafka


class OrdersTest(unittest.TestCase):
    """Threads and asyncio use one broker."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.kafka = cls.enterClassContext(start_kafka())

    def test_threads(self) -> None:
        topic = self.kafka.topic("threads")

        def send() -> None:
            with self.kafka.producer() as producer:
                producer.send(topic, b"1").result(30)

        threads = [threading.Thread(target=send) for _ in range(4)]
        with self.kafka.record() as requests:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        requests.expect("Produce", 4)

    def test_asyncio(self) -> None:
        from millstream.client.aio import Producer

        topic = self.kafka.topic("asyncio")

        async def send() -> int:
            failed = self.kafka.next("Produce").fail("NOT_LEADER_OR_FOLLOWER")
            async with Producer(self.kafka.client_settings("millstream")) as producer:
                metadata = await (await producer.send(topic, b"1"))
            assert failed.times == 1
            return int(metadata.offset)

        assert asyncio.run(send()) == 0
