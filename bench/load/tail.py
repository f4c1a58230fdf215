"""Records at a steady rate, each batch acknowledged before the next: how long an answer takes.

``python -m bench.load.tail JSON`` prints JSON: the latencies in milliseconds, and the rate kept.
"""

from __future__ import annotations

import json
import sys
import time

from millstream.client.cluster import Cluster
from millstream.client.produce import BatchSender
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder

BATCH = 50


def run(bootstrap: str, topic: str, *, per_second: int, seconds: float) -> dict[str, object]:
    """Write to partition 0; the timestamp of a record is when it was sent."""
    latencies = []
    value = b"x" * 236
    with Cluster.at(bootstrap) as cluster:
        sender = BatchSender(cluster, acks=-1)
        started = time.perf_counter()
        number = 0
        while (now := time.perf_counter()) - started < seconds:
            due = started + number * BATCH / per_second
            if due > now:
                time.sleep(due - now)
            builder = BatchBuilder()
            stamp = int(time.time() * 1000)
            for _ in range(BATCH):
                builder.append(stamp, None, value)
            sent = time.perf_counter()
            sender.send(TopicPartition(topic, 0), builder.build(), BATCH)
            sender.flush()
            latencies.append((time.perf_counter() - sent) * 1000)
            number += 1
        sender.close()
    return {"latencies": latencies, "rate": number * BATCH / seconds}


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))
