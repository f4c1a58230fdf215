"""The clients of asyncio are started alike: by `async with`, or by `start`."""

from __future__ import annotations

import asyncio

import pytest

from millstream.client.aio import Admin, Consumer, Producer, ShareConsumer

CLIENTS = [Admin, Consumer, Producer, ShareConsumer]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_started_by_hand_and_twice_as_well(client: type) -> None:
    async def run() -> None:
        group = {"group_id": "g"} if client is ShareConsumer else {}
        made = client(bootstrap_servers="127.0.0.1:1", **group)
        await made.start()
        await made.start()
        async with made as entered:
            assert entered is made
        await made.close()

    asyncio.run(run())
