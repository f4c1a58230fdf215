"""The raw load against the loops that set the raw limits: real processes, small volumes."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import wire
from bench.load.raw import FetchSpec, ProduceSpec, fetch_batch
from bench.peers.raw_limit import LOOPS, receive_and_write, received_file, send_file
from bench.peers.server_process import ServerProcess
from bench.peers.subject import SubjectFailedError
from bench.stage import run_load

TOPIC = "topic"


def produce_spec(loop: ServerProcess, *, connections: int, batch_bytes: int) -> ProduceSpec:
    return ProduceSpec(
        ports=(loop.port,) * connections,
        broker_pids=(loop.pid,),
        topic=TOPIC,
        requests=50,
        batch_bytes=batch_bytes,
        record_bytes=100,
    )


def fetch_spec(loop: ServerProcess, *, connections: int, copies: bool) -> FetchSpec:
    return FetchSpec(
        port=loop.port,
        broker_pids=(loop.pid,),
        topic_id="00" * 16,
        connections=connections,
        requests=50,
        fetch_bytes=1 << 16,
        batches=64,
        copies=copies,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("connections", "batch_bytes"), [(1, 0), (4, 300_000)])
def test_every_frame_is_received_written_and_answered(
    tmp_path: Path, connections: int, batch_bytes: int
) -> None:
    with receive_and_write(tmp_path, TOPIC) as loop:
        spec = produce_spec(loop, connections=connections, batch_bytes=batch_bytes)
        report = run_load(spec)

    batch = spec.batch()
    frame = wire.produce_request(TOPIC, 0, batch.data, acks=1)
    assert report.requests == 50 * connections
    assert report.records == 50 * connections * batch.records
    assert report.moved_bytes == 50 * connections * len(batch.data)
    assert received_file(tmp_path).stat().st_size == 50 * connections * len(frame)


def test_an_error_code_in_an_answer_fails_the_run(tmp_path: Path) -> None:
    answer = bytearray(wire.produce_response(TOPIC))
    answer[wire.produce_error_at(TOPIC) + 1] = 10
    command = [*LOOPS, "receive", str(tmp_path / "file"), answer.hex()]
    with ServerProcess(command, tmp_path / "out") as loop:
        spec = produce_spec(loop, connections=1, batch_bytes=0)
        with pytest.raises(SubjectFailedError, match="error 10"):
            run_load(spec)


@pytest.mark.parametrize(("connections", "copies"), [(1, False), (4, False), (1, True)])
def test_every_fetch_is_answered_from_the_file(
    tmp_path: Path, connections: int, copies: bool
) -> None:
    source = tmp_path / "source"
    source.write_bytes(fetch_batch().data * 65)
    with send_file(tmp_path, source, fetch_bytes=1 << 16) as loop:
        report = run_load(fetch_spec(loop, connections=connections, copies=copies))

    assert report.requests == 50 * connections
    assert report.moved_bytes == 50 * connections << 16


def test_a_fetch_answer_of_another_size_fails_the_run(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(fetch_batch().data * 65)
    with send_file(tmp_path, source, fetch_bytes=1 << 15) as loop:
        spec = fetch_spec(loop, connections=1, copies=False)
        with pytest.raises(SubjectFailedError, match="asked for 65536 bytes, got 32768"):
            run_load(spec)


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    with pytest.raises(SubjectFailedError, match=r"(?s)ended: .*ValueError"):
        ServerProcess([*LOOPS, "receive", str(tmp_path / "f"), "no hex"], tmp_path / "out").start()
