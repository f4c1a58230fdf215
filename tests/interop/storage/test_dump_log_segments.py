"""Apache Kafka's DumpLogSegments accepts every file that a log of ours consists of."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from tests.interop.kafka_cluster import JavaTool, KafkaUnavailableError, kafka_jars
from tests.unit.storage.support import (
    NOW_MS,
    append,
    append_marker,
    close,
    create_log,
    reopen,
    values_batch,
)

from millstream.config.topic import TopicConfig
from millstream.records.compression import Codec
from millstream.storage.log import Log

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

MAIN = "org.apache.kafka.tools.DumpLogSegments"
CONFIG = TopicConfig({"internal.segment.bytes": "20000", "index.interval.bytes": "500"})


@pytest.fixture(scope="module")
def tool() -> JavaTool:
    try:
        return JavaTool(kafka_jars())
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


def write(log: Log, count: int) -> None:
    """Write data of every kind: codecs, idempotent, transactional, disorderly timestamps."""
    chance = random.Random(7)
    sequences = {1: 0, 2: 0}
    for n in range(count):
        values = [b"v%d" % n * chance.randrange(1, 20) for _ in range(chance.randrange(1, 6))]
        times = [NOW_MS + n + chance.randrange(50) for _ in values]
        producer = chance.choice([None, None, 1, 2])
        if producer is None:
            append(log, *values, timestamps=times, epoch=n // 50, codec=chance.choice(list(Codec)))
            continue
        append(
            log,
            *values,
            timestamps=times,
            epoch=n // 50,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            is_transactional=producer == 1,
        )
        sequences[producer] += len(values)
        if producer == 1 and chance.random() < 0.5:
            append_marker(log, 1, commit=chance.random() < 0.5)
            log.offsets.update_high_watermark(log.log_end_offset)


def dump(tool: JavaTool, *arguments: str) -> str:
    done = tool.run(MAIN, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout + done.stderr
    for complaint in (
        "Mismatches",
        "Exception",
        "corrupt",
        "Found timestamp mismatch",
        "isvalid: false",
    ):
        assert complaint not in output, output[-3000:]
    return done.stdout


def names(directory: Path, extension: str) -> str:
    found = sorted(str(path) for path in directory.glob(f"*{extension}"))
    assert found
    return ",".join(found)


@pytest.mark.parametrize("state", ["open", "closed", "recovered"])
def test_every_file_is_accepted(tmp_path: Path, tool: JavaTool, state: str) -> None:
    log = create_log(tmp_path, CONFIG)
    write(log, 400)
    if state == "closed":
        close(log)
    elif state == "recovered":
        log = reopen(tmp_path, CONFIG, clean=False)
    directory = tmp_path / "orders-0"
    end = log.log_end_offset

    logs = dump(tool, "--deep-iteration", "--files", names(directory, ".log"))
    assert int(re.findall(r"lastOffset: (\d+)", logs)[-1]) == end - 1
    assert logs.count("Log starting offset:") == len(log.segment_base_offsets) > 2

    # An active segment's indexes have their full size and may be behind the log, in Kafka too.
    closed = log.segment_base_offsets[: -1 if state == "open" else None]
    for extension in (".index", ".timeindex"):
        files = ",".join(str(directory / f"{base:020d}{extension}") for base in closed)
        checked = dump(tool, "--index-sanity-check", "--files", files)
        assert checked.count("passed sanity check") == len(closed)
        # Without the check, each entry is compared with the log.
        dump(tool, "--files", files)
    dump(tool, "--verify-index-only", "--files", names(directory, ".index"))
    aborted = dump(tool, "--files", names(directory, ".txnindex"))
    assert "producerId: 1" in aborted
    snapshots = dump(tool, "--files", names(directory, ".snapshot"))
    assert "producerId: 2" in snapshots


def test_a_followers_files_are_accepted(tmp_path: Path, tool: JavaTool) -> None:
    log = create_log(tmp_path, CONFIG)
    for n in range(0, 3000, 30):
        data = b"".join(
            bytes(values_batch([b"v" * 50], base_offset=n + k, timestamps=[NOW_MS + n]).buffer)
            for k in range(0, 30, 3)
        )
        log.follower_appender.append_as_follower(data, now_ms=NOW_MS)
    close(log)
    directory = tmp_path / "orders-0"
    dump(tool, "--deep-iteration", "--files", names(directory, ".log"))
    dump(tool, "--verify-index-only", "--files", names(directory, ".index"))
    dump(tool, "--files", names(directory, ".timeindex"))
