"""One member of a share group as a process of its own: ``FACE BOOTSTRAP GROUP TOPIC``.

Prints a line for each record once its acknowledgement was taken: ``accepted VALUE COUNT``, or
``released VALUE COUNT`` if its value begins with ``bad``; and before it sends the acknowledgement
``saying VALUE COUNT``. It ends when its input does. FACE is ``blocking`` or ``asyncio``.
"""

from __future__ import annotations

import asyncio
import select
import sys
import time

from millstream.client import AcknowledgeType, ShareConsumer, ShareRecord, aio
from millstream.client.core.share.errors import AcknowledgeFailedError

Records = list[ShareRecord[bytes, bytes]]

SETTINGS: dict[str, object] = {
    "share_acknowledgement_mode": "explicit",
    "max_poll_records": 20,
    "request_timeout_ms": 5_000,
}
WORK_S = 0.002


def is_bad(record: ShareRecord[bytes, bytes]) -> bool:
    return (record.value or b"").startswith(b"bad")


def kind_of(record: ShareRecord[bytes, bytes]) -> AcknowledgeType:
    return AcknowledgeType.RELEASE if is_bad(record) else AcknowledgeType.ACCEPT


def tell(records: Records, failed: AcknowledgeFailedError | None) -> None:
    for record in records:
        if failed is None or record.topic_partition not in failed.errors:
            word = "released" if is_bad(record) else "accepted"
            print(word, (record.value or b"").decode(), record.delivery_count)
    sys.stdout.flush()


def announce(records: Records) -> None:
    for record in records:
        print("saying", (record.value or b"").decode(), record.delivery_count)
    sys.stdout.flush()


def is_over() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not sys.stdin.read(1)


def work(bootstrap: str, group: str, topic: str) -> None:
    with ShareConsumer[bytes, bytes](
        bootstrap_servers=bootstrap, group_id=group, **SETTINGS
    ) as consumer:
        consumer.subscribe(topic)
        while not is_over():
            records = consumer.poll(0.5)
            for record in records:
                time.sleep(WORK_S)
                consumer.acknowledge(record, kind_of(record))
            failed = None
            announce(records)
            try:
                consumer.commit()
            except AcknowledgeFailedError as error:
                failed = error
            tell(records, failed)


async def work_async(bootstrap: str, group: str, topic: str) -> None:
    async with aio.ShareConsumer[bytes, bytes](
        bootstrap_servers=bootstrap, group_id=group, **SETTINGS
    ) as consumer:
        await consumer.subscribe(topic)
        while not is_over():
            records = await consumer.poll(0.5)
            for record in records:
                await asyncio.sleep(WORK_S)
                consumer.acknowledge(record, kind_of(record))
            failed = None
            announce(records)
            try:
                await consumer.commit()
            except AcknowledgeFailedError as error:
                failed = error
            tell(records, failed)


if __name__ == "__main__":
    face, *arguments = sys.argv[1:]
    if face == "asyncio":
        asyncio.run(work_async(*arguments))
    else:
        work(*arguments)
