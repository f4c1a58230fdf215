"""When a load that failed is started again."""

from __future__ import annotations

import errno
import re
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from millstream.client.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionFailedError,
    TimedOutError,
)
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.lakehouse import jobs
from millstream.spark.lakehouse.full_disk import FullDiskError
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import ConcurrentLoadError, TableName
from millstream.spark.locations.location import StoreError
from millstream.spark.plan import DataLossError


def run(error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, *, follow: bool) -> int:
    """Return how often a load is started that always fails so, at most 20 times."""
    starts = 0

    class Failing:
        def run(self, should_stop: Any) -> None:
            nonlocal starts
            starts += 1
            if starts < 20 and not should_stop():
                raise error

    monkeypatch.setattr(jobs, "_loader", lambda *_: Failing())
    monkeypatch.setattr(jobs, "_sleep", lambda *_: None)
    table = TableName("delta", tmp_path / "t")
    jobs.run_load(LoadSettings(source={"subscribe": "t"}, table=table, follow=follow))
    return starts


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailedError("no broker answers"),
        TimedOutError("no answer in time"),
        BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fetch"),
        ConcurrentLoadError("another load has committed"),
        TimeoutError("nothing came"),
        StoreError("s3://lake/t: operation timed out"),
        OSError("Generic S3 error: operation timed out"),
        CommitStateUnknownException("the catalogue did not answer"),
        RuntimeError("PythonException: millstream.client.errors.ConnectionFailedError: no broker"),
    ],
)
def test_a_load_that_follows_waits_for_what_passes(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    assert run(error, monkeypatch, tmp_path, follow=True) == 20
    with pytest.raises(type(error)):
        run(error, monkeypatch, tmp_path, follow=False)


@pytest.mark.parametrize(
    ("error", "starts"),
    [
        (AuthenticationError("wrong password"), 5),
        (BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "fetch"), 5),
        (MillstreamError("the log is damaged"), 5),
        (PermissionError(13, "Permission denied"), 5),
        (AssertionError(), 5),
        (RuntimeError("the JVM died"), 5),
        (DataLossError("offsets are gone"), 1),
    ],
)
def test_it_does_not_wait_for_what_does_not(
    error: Exception, starts: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    seen: list[int] = []
    failed = jobs._Attempts.failed

    def counted(self: Any, error: Exception) -> float:
        seen.append(1)
        return failed(self, error)

    monkeypatch.setattr(jobs._Attempts, "failed", counted)
    with pytest.raises(type(error)):
        run(error, monkeypatch, tmp_path, follow=True)
    assert max(len(seen), 1) == starts


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "/nope"),
        NotADirectoryError(20, "Not a directory", "file/t"),
        PermissionError(13, "Permission denied", "/root/t"),
    ],
)
def test_a_path_that_the_system_refuses_is_not_tried_again(
    error: OSError, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    starts = 0

    class NoTable:
        def run(self, should_stop: Any) -> None:
            nonlocal starts
            starts += 1
            raise error

    monkeypatch.setattr(jobs, "_loader", lambda *_: NoTable())
    monkeypatch.setattr(jobs, "_sleep", lambda *_: None)
    settings = LoadSettings(
        source={"subscribe": "t"}, table=TableName("delta", tmp_path / "t"), follow=True
    )
    with pytest.raises(type(error)):
        jobs.run_load(settings)
    assert starts == 1


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "/x/y"),
        RuntimeError("Generic LocalFileSystem error: No space left on device (os error 28)"),
        RuntimeError("PythonException: OSError: [Errno 28] No space left on device"),
    ],
)
@pytest.mark.parametrize("follow", [False, True])
def test_a_full_disk_is_told_at_once(
    error: Exception, follow: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    with pytest.raises(FullDiskError) as raised:
        run(error, monkeypatch, tmp_path, follow=follow)
    said = str(raised.value)
    assert re.match(r"(No space left on device|Disk quota exceeded): /", said)
    # A quota is one of the disk of the file that was to be written.
    assert "/x/y has " in said if "quota" in said else f"{tmp_path}/t has " in said
    assert " free" in said
