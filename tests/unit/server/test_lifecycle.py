"""One broker in this process: signals whenever they come, exit codes, what a stop leaves behind."""

from __future__ import annotations

import builtins
import gc
import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from millstream.config.broker import BrokerConfig
from millstream.coordinator.transaction.records import decode_record, transaction_from
from millstream.coordinator.transaction.states import TransactionState
from millstream.model.errors import ConfigError
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from millstream.protocol.messages.coordinator_records import TransactionLogValue
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records import kernel
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.produce_kernel import why_not
from millstream.records.record import iter_records
from millstream.runtime.coordinators import coordinator_writes
from millstream.server.lifecycle import run


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """A broker owns its process: give back what it takes for itself, but for the objects that it
    has kept from the garbage collector, of which the tests have many themselves.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    handlers = [signal.getsignal(number) for number in numbers]
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def settings(directory: Path, **more: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **{key.replace("_", "."): text for key, text in more.items()},
        }
    )


def stop_soon(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def is_clean(directory: Path) -> bool:
    return (directory / ".kafka_cleanshutdown").exists()


def call(port: int, request: Request, version: int) -> Response:
    frame = encode_request(request, version, 1, "test").join()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(frame)
        with sock.makefile("rb") as answer:
            size = int.from_bytes(answer.read(4), "big")
            return decode_response(request.API_KEY, version, answer.read(size))[1]


def create_topic(port: int) -> None:
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    call(port, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)


class Client:
    """Talks to the broker from a thread while the broker has this one."""

    def __init__(self, talk: Callable[[int], None]) -> None:
        self._talk = talk
        self._thread: threading.Thread | None = None

    def announce(self, host: str, port: int, directories: list[str]) -> None:
        assert host == "127.0.0.1"
        self._thread = threading.Thread(target=self._run, args=(port,))
        self._thread.start()

    def _run(self, port: int) -> None:
        try:
            self._talk(port)
        finally:
            stop_soon()  # a second signal does no harm

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_broker_and_the_directory_is_closed(
    tmp_path: Path, number: signal.Signals
) -> None:
    client = Client(lambda port: os.kill(os.getpid(), number))
    assert run(settings(tmp_path), client.announce) == 0
    client.join()
    assert is_clean(tmp_path)


def test_a_broker_that_ignores_sighup_survives_a_closed_terminal(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    code: list[int] = []

    def hang_up(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        stop_soon()

    code.append(run(settings(tmp_path), hang_up))
    assert code == [0]


@contextmanager
def stopped_by(name: str) -> Iterator[None]:
    """Send the signal with the first line that a logger writes."""
    handler = logging.Handler()
    handler.emit = stop_soon  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger(name).removeHandler(handler)


def test_a_signal_that_comes_before_the_loop_serves_is_not_lost(tmp_path: Path) -> None:
    assert run(settings(tmp_path), stop_soon) == 0
    assert is_clean(tmp_path)


@pytest.mark.parametrize("has_kernel", [True, False])
def test_a_broker_without_the_kernel_says_what_it_does_not_check(
    tmp_path: Path,
    has_kernel: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if not has_kernel:
        monkeypatch.setattr(kernel, "_loaded", None)
    elif why_not():
        pytest.skip(why_not())
    assert run(settings(tmp_path), stop_soon) == 0
    told = "record.validation=relaxed checks the records of batches of up to 8 records only"
    assert (told in caplog.text) is not has_kernel


def test_a_signal_during_start_up_is_not_lost(tmp_path: Path) -> None:
    """It comes where the directories have been read and nothing listens yet."""
    stray = tmp_path / "orders-0.00112233445566778899aabbccddeeff-stray"
    stray.mkdir()
    announced: list[int] = []
    with stopped_by("millstream.storage.log_manager"):
        code = run(settings(tmp_path), lambda host, port, _: announced.append(port))
    assert (code, len(announced)) == (0, 1)
    assert is_clean(tmp_path)


def test_a_signal_ends_a_start_that_has_logs_to_open(tmp_path: Path) -> None:
    """A recovery may take long: nobody has to wait for its end."""
    client = Client(create_topic)
    assert run(settings(tmp_path), client.announce) == 0
    client.join()
    (tmp_path / "orders-0.00112233445566778899aabbccddeeff-stray").mkdir()
    announced: list[int] = []
    with stopped_by("millstream.storage.log_manager"):
        code = run(settings(tmp_path), lambda host, port, _: announced.append(port))
    assert (code, announced) == (0, [])
    assert is_clean(tmp_path)
    assert run(settings(tmp_path), stop_soon) == 0
    assert (tmp_path / "t-0").is_dir()


def test_a_second_signal_does_no_harm(tmp_path: Path) -> None:
    def impatient(*_: object) -> None:
        stop_soon()
        stop_soon()

    assert run(settings(tmp_path), impatient) == 0
    stop_soon()
    assert is_clean(tmp_path)


def test_without_a_disk_the_broker_ends_with_one(tmp_path: Path) -> None:
    directory = tmp_path / "data"

    def talk(port: int) -> None:
        shutil.rmtree(directory)
        directory.touch()
        create_topic(port)

    client = Client(talk)
    assert run(settings(directory), client.announce) == 1
    client.join()


def test_a_port_that_is_taken_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    assert run(settings(tmp_path), stop_soon) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            run(settings(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}"), stop_soon)
    assert run(settings(tmp_path), stop_soon) == 0
    assert is_clean(tmp_path)


def test_metadata_in_a_directory_that_is_not_the_first_is_not_passed_over(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    both = settings(tmp_path, log_dirs=f"{first},{second}")
    turned = settings(tmp_path, log_dirs=f"{second},{first}")
    assert run(both, stop_soon) == 0
    with pytest.raises(ConfigError, match=f"{first} holds the metadata.*first"):
        run(turned, stop_soon)
    assert is_clean(first)
    assert is_clean(second)
    assert [each.name for each in second.glob("*.sqlite")] == []
    assert run(both, stop_soon) == 0


def test_an_address_that_cannot_be_bound_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    names = "PLAINTEXT://no.such.host:9092"
    with pytest.raises(OSError, match="not known") as caught:
        run(settings(tmp_path, listeners=names), stop_soon)
    assert caught.value.filename == names


def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"PLAINTEXT://no\.\.name:0 has no name of a host"):
        run(settings(tmp_path, listeners="PLAINTEXT://no..name:0"), stop_soon)
    config = settings(tmp_path, max_connections_per_ip_overrides="no..name:7")
    assert run(config, stop_soon) == 0


def test_a_changed_setting_resolves_no_names_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    look_up = socket.getaddrinfo

    def noted(host: object, *rest: object, **named: object) -> object:
        asked.append(host)
        return look_up(host, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", noted)

    def talk(port: int) -> None:
        config = AlterableConfig(name="max.connections", config_operation=0, value="9")
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = call(port, request, 0)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        codes.extend(each.error_code for each in answer.responses)

    codes: list[int] = []
    client = Client(talk)
    config = settings(tmp_path, max_connections_per_ip_overrides="localhost:7")
    assert run(config, client.announce) == 0
    client.join()
    assert codes == [0]
    assert asked.count("localhost") == 1


def test_a_stop_leaves_no_transaction_whose_markers_are_to_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of a completion waits for company, here for longer than a stop takes."""
    monkeypatch.setattr(coordinator_writes, "LINGER_MS", 600_000.0)

    def talk(port: int) -> None:
        create_topic(port)
        call(port, FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 4)
        given: Response | None = None
        while not isinstance(given, InitProducerIdResponse) or given.error_code:
            begin = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
            given = call(port, begin, 4)
        producer = given.producer_id, given.producer_epoch
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        call(port, added, 3)
        end = EndTxnRequest(
            transactional_id="id",
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=True,
        )
        answer = call(port, end, 3)
        assert isinstance(answer, EndTxnResponse)
        codes.append(answer.error_code)
        wait_until(lambda: committed_end(port) > 0, "the marker")
        stop_soon()

    def committed_end(port: int) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsTopic(name="t", partitions=[partition])]
        asked = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics)
        answer = call(port, asked, 5)
        assert isinstance(answer, ListOffsetsResponse)
        return answer.topics[0].partitions[0].offset

    codes: list[int] = []
    client = Client(talk)
    assert run(settings(tmp_path, transaction_state_log_num_partitions="1"), client.announce) == 0
    client.join()
    assert codes == [0]
    stored = (tmp_path / "__transaction_state-0" / f"{0:020}.log").read_bytes()
    states = []
    for batch in iter_batches(stored):
        for record in iter_records(batch):
            decoded = decode_record(record.key or b"", record.value)
            assert decoded is not None
            assert isinstance(decoded.value, TransactionLogValue)
            states.append(transaction_from(decoded.value).state)
    assert states[-1] is TransactionState.COMPLETE_COMMIT


def test_a_stop_acknowledges_nothing_that_is_not_on_disk(tmp_path: Path) -> None:
    """Whatever was acknowledged is there after the stop, also what a signal came into."""
    builder = BatchBuilder(BatchOptions())
    builder.append(1_700_000_000_000, None, b"v")
    records = bytes(builder.build())
    acknowledged = 0

    def talk(port: int) -> None:
        nonlocal acknowledged
        create_topic(port)
        data = PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        frame = encode_request(request, 8, 1, "test").join()
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(frame * 300)
            stop_soon()  # while most of them wait for the disk
            with sock.makefile("rb") as answers:
                try:
                    while size := answers.read(4):
                        body = answers.read(int.from_bytes(size, "big"))
                        response = decode_response(0, 8, body)[1]
                        assert isinstance(response, ProduceResponse)
                        (answer,) = response.responses[0].partition_responses
                        acknowledged += answer.error_code == 0
                except ConnectionError:
                    return

    client = Client(talk)
    assert run(settings(tmp_path), client.announce) == 0
    client.join()
    stored = (tmp_path / "t-0" / f"{0:020}.log").read_bytes()
    assert len(stored) // len(records) >= acknowledged


def test_sigusr1_imports_nothing_where_it_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An import within an import of the same thread fails, and would end the loop."""
    imported: list[str] = []
    real = builtins.__import__

    def watched(name: str, *arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            imported.append(name)
        return real(name, *arguments, **options)

    def diagnose_and_stop(*_: object) -> None:
        monkeypatch.setattr(builtins, "__import__", watched)
        signal.raise_signal(signal.SIGUSR1)
        monkeypatch.undo()
        threading.Thread(target=stop_when_told, daemon=True).start()

    def stop_when_told() -> None:
        wait_until(lambda: "that is all" in caplog.text, "the diagnosis is written")
        stop_soon()

    assert run(settings(tmp_path), diagnose_and_stop) == 0
    assert imported == []
    assert "thread MainThread is at" in caplog.text
