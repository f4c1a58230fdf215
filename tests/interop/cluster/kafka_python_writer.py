"""Writes to each partition in turn with kafka-python, until standard input has a line.

``kafka_python_writer.py BOOTSTRAP TOPIC NAME PARTITIONS`` prints ``sending N``, ``told N OFFSET``
and ``failed N ERROR``, as ``Writer.java`` does.
"""

from __future__ import annotations

import itertools
import select
import sys
import time
from functools import partial

from kafka import KafkaProducer
from kafka.producer.future import RecordMetadata


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def told(number: int, metadata: RecordMetadata) -> None:
    say("told", number, metadata.offset)


def main(bootstrap: str, topic: str, name: str, partitions: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    for number in itertools.count():
        if select.select([sys.stdin], [], [], 0)[0]:
            break
        say("sending", number)
        value = f"{name}:{number}".encode()
        future = producer.send(topic, value, partition=number % int(partitions))
        future.add_callback(partial(told, number))
        future.add_errback(partial(say, "failed", number))
        time.sleep(0.004)
    producer.flush(90)
    producer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
