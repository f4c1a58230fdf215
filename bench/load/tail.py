"""Records at a steady rate, each batch acknowledged before the next: how long an answer takes.

``python -m bench.load.tail JSON`` prints JSON: the latencies in milliseconds, and the rate kept.
"""

from __future__ import annotations

import json
import sys
import time

from millstream.client import Producer

BATCH = 50


def run(bootstrap: str, topic: str, *, per_second: int, seconds: float) -> dict[str, object]:
    """Write to partition 0; the timestamp of a record is when it was sent."""
    latencies = []
    value = b"x" * 236
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        producer.partitions_for(topic)
        started = time.perf_counter()
        number = 0
        while (now := time.perf_counter()) - started < seconds:
            due = started + number * BATCH / per_second
            if due > now:
                time.sleep(due - now)
            sent = time.perf_counter()
            producer.send_values([value] * BATCH, topic, partition=0).result(30)
            latencies.append((time.perf_counter() - sent) * 1000)
            number += 1
    return {"latencies": latencies, "rate": number * BATCH / seconds}


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))
