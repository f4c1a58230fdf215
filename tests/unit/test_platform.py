"""The ways of systems other than Linux, tried on Linux."""

from __future__ import annotations

import errno
import os
import re
import resource
import selectors
import socket
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import psutil
import pytest
from tests.unit.client.scripted_broker import ScriptedBroker
from tests.waiting import wait_until

from millstream import platform
from millstream.storage import files

SOURCES = Path(platform.__file__).parent
ONLY_IN_PLATFORM = re.compile(
    r"os\.sendfile|DefaultSelector|EpollSelector|select\.epoll|register_at_fork|EINPROGRESS"
    r"|F_FULLFSYNC|os\.fdatasync|os\.fsync|['.\"]RWF_NOWAIT|^import (fcntl|resource)|\"/proc/(?!\")"
    r"|PDEATHSIG|preexec_fn=(?!before_exec)|os\.sched_|memfd_create|SO_PEERCRED|SETPIPE|MSG_MORE"
    r"|uvloop\.new|\.syncfs|O_DIRECTORY|sys\.platform ",
    re.MULTILINE,
)
SYSTEM_BY_NATURE = {
    "sim/disk.py": "the boot id of a simulated machine",
}
WITHOUT = """
import os, selectors, signal, socket, sys
for name in ("fcntl", "resource", "uvloop", "grp", "pwd", "termios"):
    sys.modules[name] = None
for name in {names!r}:
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGSTOP", "SIGUSR1", "SIGPIPE", "SIGCHLD", "SIGCONT"):
    delattr(signal, name)
pair, unix = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *kind: pair(unix)  # Windows makes one of two TCP connections
del socket.AF_UNIX
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
IMPORTS = """
import importlib, pkgutil, millstream
failed = []
for found in pkgutil.walk_packages(millstream.__path__, "millstream.", onerror=lambda name: None):
    if ".spark" in found.name or found.name.endswith(("__main__", "._kernel")):
        continue
    try:
        importlib.import_module(found.name)
    except Exception as error:
        failed.append((found.name, error))
print(failed)
"""
NOT_ON_WINDOWS = [
    "O_DIRECTORY",
    "fdatasync",
    "fork",
    "fstatvfs",
    "geteuid",
    "getuid",
    "killpg",
    "memfd_create",
    "pread",
    "preadv",
    "pwrite",
    "pwritev",
    "register_at_fork",
    "sched_getaffinity",
    "sched_setaffinity",
    "sendfile",
    "set_blocking",
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


@pytest.mark.slow
def test_the_client_works_where_only_the_names_of_windows_are_there() -> None:
    script = WITHOUT.format(names=NOT_ON_WINDOWS) + CLIENT
    with ScriptedBroker() as broker:
        assert run(script, broker.bootstrap, MILLSTREAM_PORTABLE="1") == "read 500"


@pytest.mark.slow
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


def test_a_volume_is_flushed_file_by_file_where_no_call_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t-0").mkdir()
    for name in ("t-0/one", "two"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    flushed: list[str] = []

    def note(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(files, "_volume_flush", lambda: None)
    monkeypatch.setattr(platform, "hand_to_drive", note)
    monkeypatch.setattr(platform, "flush_file", note)
    with socket.socket(socket.AF_UNIX) as here:
        here.bind(str(tmp_path / "a.sock"))
        files.LocalFileSystem().sync_all(str(tmp_path))
    whole = [tmp_path / "t-0" / "one", tmp_path / "t-0", tmp_path / "two", tmp_path]
    assert sorted(flushed[:-1]) == sorted(map(str, whole))
    assert flushed[-1] == str(tmp_path), "the drive is asked to empty its cache last"


@pytest.mark.parametrize(
    ("release", "hides"),
    [
        ("4.18.0-553.el8.x86_64", True),
        ("5.4.0-1103-aws", True),
        ("5.7.19", True),
        ("5.8", False),
        ("5.8-rc1", False),
        ("5.14.0-70.el9.x86_64", False),
        ("6.18.44-fc-v782", False),
        ("10.0", False),
        ("unheard of", True),
    ],
)
def test_a_volume_is_not_flushed_as_a_whole_where_that_hides_failures(
    release: str, hides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert platform.hides_failed_writes(release) == hides
    monkeypatch.setattr(platform, "FLUSHES_FILES_ONLY", hides)
    monkeypatch.setattr(platform, "IS_LINUX", True)
    assert (platform.volume_flush() is None) == hides


def test_the_flush_of_a_volume_is_told_of_what_another_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor that is opened for the flush alone would miss it."""
    used: list[str] = []

    def flush(descriptor: int) -> int:
        used.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return len(used) > 3

    monkeypatch.setattr(files, "_volume_flush", lambda: flush)
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    whole, lock = str(tmp_path / "logs"), str(tmp_path / "logs" / ".lock")
    file_system = files.LocalFileSystem()
    file_system.sync_all(whole)
    held = file_system.lock(str(tmp_path / "link" / ".lock"))
    file_system.sync_all(whole)
    file_system.sync_all(str(tmp_path / "link"))
    with pytest.raises(OSError, match="the volume could not be flushed"):
        file_system.sync_all(whole)
    held.release()
    with pytest.raises(OSError, match="the volume could not be flushed"):
        file_system.sync_all(whole)
    assert used == [whole, lock, lock, lock, whole]


def test_a_failed_flush_of_one_file_fails_the_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    (tmp_path / "one").write_bytes(b"x")
    monkeypatch.setattr(files, "_volume_flush", lambda: None)
    monkeypatch.setattr(platform, "hand_to_drive", fail)
    with pytest.raises(OSError, match="broken"):
        files.LocalFileSystem().sync_all(str(tmp_path))


@pytest.mark.parametrize("is_portable", [True, False])
def test_a_private_file_has_a_name_and_is_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch, is_portable: bool
) -> None:
    monkeypatch.setattr(platform, "IS_PORTABLE", is_portable)
    with platform.private_file(b"a key") as name:
        assert Path(name).read_bytes() == b"a key"
        assert Path(name).stat().st_mode & 0o077 == 0 or not is_portable
    assert not Path(name).exists()


def test_bytes_are_read_where_there_is_no_pread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    with path.open("rb", buffering=0) as file:
        expected = platform.read_at(file.fileno(), 20, 30)
        monkeypatch.delattr(os, "pread")
        assert platform.read_at(file.fileno(), 20, 30) == expected == bytes(range(30, 50))


@pytest.mark.parametrize(
    ("limits", "refused", "result"),
    [
        ((256, resource.RLIM_INFINITY), {1 << 20}, 10_240),  # macOS
        ((256, resource.RLIM_INFINITY), {1 << 20, 10_240}, 256),
        ((1_024, 4_096), set(), 4_096),
        ((4_096, 4_096), set(), 4_096),
        ((1_024, 4_096), {4_096}, 1_024),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), set(), 1 << 20),
    ],
)
def test_as_many_files_may_be_open_as_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], refused: set[int], result: int
) -> None:
    asked: list[tuple[int, int]] = []

    def setrlimit(which: int, wanted: tuple[int, int]) -> None:
        if wanted[0] in refused:
            raise ValueError("current limit exceeds maximum limit")
        asked.append(wanted)

    monkeypatch.setattr(platform.resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(platform.resource, "setrlimit", setrlimit)
    assert platform.raise_open_file_limit() == result
    assert asked == ([] if result == limits[0] or limits[0] < 0 else [(result, limits[1])])


ENDLESS = "import time; time.sleep(1_000)"
PARENT = f"""
import os, subprocess, sys
from millstream import platform
child = subprocess.Popen([sys.executable, "-c", {ENDLESS!r}])
platform.end_with_this_process(child)
print(child.pid, flush=True)
if sys.argv[1] == "stop":
    child.kill()
    child.wait()
    del child
    print("over", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["kill", "end"])
def test_a_child_ends_with_its_parent_where_the_system_does_not_see_to_it(way: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"MILLSTREAM_PORTABLE": "1"},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        child = psutil.Process(int(parent.stdout.readline()))
        if way == "kill":
            parent.kill()
        else:
            parent.stdin.close()
        wait_until(lambda: not child.is_running(), "the child has ended")


def test_nobody_watches_a_child_that_is_over() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "stop"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"MILLSTREAM_PORTABLE": "1"},
    ) as parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline()[-1:], parent.stdout.readline()] == [b"\n", b"over\n"]
        assert psutil.Process(parent.pid).children() == []
        parent.communicate()


def test_the_holder_of_a_lock_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("rb+") as mine:
        assert platform.record_lock_holder(mine.fileno()) is None
        script = (
            "import sys; from millstream import platform; file = open(sys.argv[1], 'rb+')\n"
            "platform.lock_records(file.fileno()); print('locked', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"locked\n"
            assert platform.record_lock_holder(mine.fileno()) == other.pid
            with pytest.raises(BlockingIOError):
                platform.lock_records(mine.fileno())
            other.communicate()


@pytest.mark.slow
def test_everything_can_be_imported_where_only_the_names_of_windows_are_there() -> None:
    script = WITHOUT.format(names=NOT_ON_WINDOWS) + IMPORTS
    assert run(script, "") == "[]"


@pytest.mark.slow
def test_only_the_module_for_it_names_what_linux_or_unix_alone_have() -> None:
    named = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if ONLY_IN_PLATFORM.search(path.read_text())
    }
    assert named == {"platform.py", *SYSTEM_BY_NATURE}
