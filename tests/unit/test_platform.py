"""The ways of systems other than Linux, tried on Linux."""

from __future__ import annotations

import errno
import os
import re
import selectors
import socket
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from tests.unit.client.scripted_broker import ScriptedBroker

from millstream import platform

SOURCES = Path(platform.__file__).parent
ONLY_IN_PLATFORM = re.compile(
    r"os\.sendfile|DefaultSelector|EpollSelector|select\.epoll|register_at_fork|EINPROGRESS"
    r"|F_FULLFSYNC|os\.fdatasync|os\.fsync|['.\"]RWF_NOWAIT"
)
WITHOUT = """
import os, selectors, signal, socket, sys
for name in ("fcntl", "resource", "uvloop", "grp", "pwd", "termios"):
    sys.modules[name] = None
for name in {names!r}:
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGSTOP", "SIGUSR1", "SIGPIPE"):
    delattr(signal, name)
socket.socket.sendmsg = property()  # of an instance: AttributeError
selectors.DefaultSelector = selectors.SelectSelector
"""
CLIENT = """
from millstream import platform
from millstream.client import Consumer, Producer, TopicPartition
assert platform.send_pieces is platform._send_joined, platform.send_pieces
with Producer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send_values([b"%d" % number for number in range(500)], "t")
with Consumer(bootstrap_servers=sys.argv[1]) as consumer:
    consumer.assign([TopicPartition("t", 0)])
    consumer.seek_to_beginning()
    values = []
    while len(values) < 500:
        values += [record.value for record in consumer.poll(10)]
assert values == [b"%d" % number for number in range(500)], values[:5]
print("read", len(values))
"""
NOT_ON_WINDOWS = [
    "O_DIRECTORY",
    "fdatasync",
    "fork",
    "getuid",
    "killpg",
    "memfd_create",
    "pread",
    "preadv",
    "pwrite",
    "pwritev",
    "register_at_fork",
    "sched_getaffinity",
    "sendfile",
    "statvfs",
]


def run(script: str, address: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, address],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_client_works_where_only_the_names_of_windows_are_there() -> None:
    script = WITHOUT.format(names=NOT_ON_WINDOWS) + CLIENT
    with ScriptedBroker() as broker:
        assert run(script, broker.bootstrap, MILLSTREAM_PORTABLE="1") == "read 500"


def test_the_switch_has_the_client_work_in_the_ways_of_every_system() -> None:
    with ScriptedBroker() as broker:
        assert run("import sys\n" + CLIENT, broker.bootstrap, MILLSTREAM_PORTABLE="1") == "read 500"


def test_a_file_is_copied_as_sendfile_sends_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 4)
    one, other = socket.socketpair()
    with one, other, path.open("rb") as file:
        one.setblocking(False)
        assert platform._send_copied(one.fileno(), file.fileno(), 10, 500) == 500
        assert other.recv(1000) == path.read_bytes()[10:510]
        assert platform._send_copied(one.fileno(), file.fileno(), 1020, 500) == 4
        assert platform._send_copied(one.fileno(), file.fileno(), 1024, 500) == 0
        one.setblocking(False)
        with suppress(BlockingIOError):
            while one.send(bytes(1 << 16)):
                pass
        with pytest.raises(BlockingIOError):
            platform._send_copied(one.fileno(), file.fileno(), 0, 1024)


def test_pieces_leave_in_order_and_as_many_as_one_call_takes() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        pieces = [b"a" * 10, memoryview(b"b" * 20), b"", b"c" * platform._STEP_BYTES]
        sent = platform._send_joined(one, pieces)
        other.settimeout(10)
        got = b""
        while len(got) < sent:
            got += other.recv(1 << 20)
        assert 30 < sent <= platform._STEP_BYTES
        assert got == b"".join(pieces)[:sent]


def test_select_without_a_socket_waits_and_finds_nothing() -> None:
    with platform.PortableSelector() as selector:
        assert selector.select(0) == []
        one, other = socket.socketpair()
        with one, other:
            selector.register(one, selectors.EVENT_READ)
            other.send(b"x")
            assert [key.fileobj for key, _ in selector.select(10)] == [one]


def test_a_read_fills_its_buffers_as_preadv_does(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    with path.open("rb") as file:
        for position, sizes in ((0, (10, 20)), (90, (4, 20)), (100, (5,)), (7, (0, 3))):
            one, other = ([bytearray(size) for size in sizes] for _ in range(2))
            read = platform._read_copied(file.fileno(), one, position)
            assert read == os.preadv(file.fileno(), other, position)
            assert one == other


@pytest.mark.parametrize(
    ("answer", "flushes"),
    [(None, ["drive"]), (errno.ENOTSUP, ["drive", "fsync"]), (errno.EIO, ["drive"])],
)
def test_macos_flushes_the_cache_of_the_drive(
    monkeypatch: pytest.MonkeyPatch, answer: int | None, flushes: list[str]
) -> None:
    done: list[str] = []

    def control(descriptor: int, command: int) -> None:
        assert (descriptor, command) == (5, 51)
        done.append("drive")
        if answer is not None:
            raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(platform, "_FULL_FLUSH", 51)
    monkeypatch.setattr(platform.fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("fsync"))
    with pytest.raises(OSError, match="error") if answer == errno.EIO else nullcontext():
        platform._flush_drive(5)
    assert done == flushes


def test_macos_has_its_own_flush_chosen() -> None:
    script = (
        "import fcntl, sys; fcntl.F_FULLFSYNC = 51\n"
        "from millstream import platform\n"
        "print(platform.flush_file is platform.flush_data is platform._flush_drive)"
    )
    assert run(script, "") == "True"


def test_only_the_module_for_it_names_what_linux_or_unix_alone_have() -> None:
    named = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if ONLY_IN_PLATFORM.search(path.read_text())
    }
    assert named == {"platform.py"}
