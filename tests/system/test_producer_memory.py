"""What a full producer takes of the machine: ``buffer.memory`` and a constant."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.unit.client.scripted_broker import CutConnectionError, ScriptedBroker

from millstream.protocol.message import Request, Response
from millstream.protocol.messages.produce import ProduceRequest

pytestmark = pytest.mark.system

BUFFER_BYTES = 32 * 1024 * 1024
CONSTANT_BYTES = 16 * 1024 * 1024
"""The stated constant: requests being made, the allocator's slack, the thread."""

FILL = """
import sys
import psutil
from millstream.client import Producer
from millstream.client.errors import BufferFullError

size, buffer = int(sys.argv[2]), int(sys.argv[3])
producer = Producer(bootstrap_servers=sys.argv[1], buffer_memory=buffer, max_block_ms=500)
producer.partitions_for("t")
before = psutil.Process().memory_info().rss
count = 0
try:
    while True:
        producer.send("t", count.to_bytes(4, "big") * (size // 4))
        count += 1
except BufferFullError:
    print(psutil.Process().memory_info().rss - before, count)
producer.close(0)
"""


@pytest.mark.parametrize("size", [12, 100, 1000, 20_000])
def test_a_full_buffer(size: int) -> None:
    def silent(request: Request) -> Response | None:
        if isinstance(request, ProduceRequest):
            raise CutConnectionError
        return None

    with ScriptedBroker() as broker:
        broker.intercept.append(silent)
        done = subprocess.run(
            [sys.executable, "-c", FILL, broker.bootstrap, str(size), str(BUFFER_BYTES)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    taken, count = map(int, done.stdout.split())
    assert count * size > BUFFER_BYTES // 20
    assert taken < BUFFER_BYTES + CONSTANT_BYTES
