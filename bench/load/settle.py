"""When a cluster has nothing left to do for a load: every in-sync replica has every record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bench.admin import Admin, BrokerAnswerError

TIMEOUT_S = 60.0
EVERY_S = 0.01


def replicas_settle(
    stack: ExitStack, host: str, ports: Sequence[int], topic: str, partitions: int, records: int
) -> Callable[[], None]:
    """Connect to every broker now; return what waits until a topic's high watermarks add up to
    `records`.
    """
    admins = [stack.enter_context(Admin(host, port)) for port in sorted(set(ports))]

    def settle() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            led = [admin.led_offsets(topic, partitions) for admin in admins]
            found = sum(sum(each.values()) for each in led)
            if found == records:
                return
            if time.monotonic() > deadline:
                raise BrokerAnswerError(f"{found} of {records} records of {topic} are replicated")
            time.sleep(EVERY_S)

    return settle
