"""Changes a rule again and again: HOST PORT TOPIC SECONDS.

A rule denies everybody to write to the topic, a client notices, the rule goes, the client notices.
The first line of output tells that it begins; the second is a list of how long each change took
until it held, in milliseconds.
"""

from __future__ import annotations

import json
import sys
import time

from bench.admin import Admin, BrokerAnswerError
from bench.batches import batch_of_records
from millstream import client
from millstream.model.acl import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)

REFUSED = "error 29"
HOLDS_WITHIN_S = 60.0
PAUSE_S = 0.02


def main() -> None:
    host, port, topic, seconds = sys.argv[1:]
    deny = Acl(
        resource=AclResource.TOPIC,
        name=topic,
        principal="User:ANONYMOUS",
        operation=AclOperation.WRITE,
        permission=Permission.DENY,
    )
    those = AclFilter(
        resource=AclResource.TOPIC,
        name=topic,
        pattern=PatternType.LITERAL,
        permission=Permission.DENY,
    )
    took_ms = []
    with (
        client.Admin(bootstrap_servers=f"{host}:{port}") as admin,
        Admin(host, int(port)) as victim,
    ):
        admin.list_topics()  # connects
        print("begins", flush=True)
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            for is_denied in (True, False):
                start = time.perf_counter()
                if is_denied:
                    admin.create_acls([deny]).get_all()
                else:
                    admin.delete_acls([those]).get_all()
                _wait_until(victim, topic, is_denied)
                took_ms.append((time.perf_counter() - start) * 1_000)
                time.sleep(PAUSE_S)
    print(json.dumps(took_ms))


def _wait_until(victim: Admin, topic: str, is_denied: bool) -> None:
    batch = batch_of_records(record_bytes=100, count=1).data
    deadline = time.monotonic() + HOLDS_WITHIN_S
    while _is_denied(victim, topic, batch) is not is_denied:
        if time.monotonic() > deadline:
            raise SystemExit("the change never holds")


def _is_denied(victim: Admin, topic: str, batch: bytes) -> bool:
    try:
        victim.produce(topic, batch, acks=1)
    except BrokerAnswerError as error:
        if REFUSED not in str(error):
            raise
        return True
    return False


if __name__ == "__main__":
    main()
