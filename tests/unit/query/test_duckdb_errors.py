"""What DuckDB tells of files is an error of the system, with its number and the file."""

from __future__ import annotations

import errno

import pytest

from millstream.query.duckdb_errors import error_of_a_file


@pytest.mark.parametrize(
    ("text", "number", "path"),
    [
        ('IO Error: Could not write file "/a b/c": Broken pipe', errno.EPIPE, "/a b/c"),
        (
            'Async write failed for range [offset=0, size=8]: {"exception_type":"IO",'
            '"exception_message":"Could not write file \\"/dev/full\\": No space left on device",'
            '"errno":"28"}',
            errno.ENOSPC,
            "/dev/full",
        ),
        ('IO Error: Cannot open file "x": No such file or directory', errno.ENOENT, "x"),
    ],
)
def test_errors_of_files(text: str, number: int, path: str) -> None:
    found = error_of_a_file(RuntimeError(text))
    assert found is not None
    assert (found.errno, found.filename) == (number, path)


@pytest.mark.parametrize(
    "text",
    [
        'Binder Error: Referenced column "x" not found',
        'Could not write file "x": Something of its own',
        "",
    ],
)
def test_other_errors(text: str) -> None:
    assert error_of_a_file(RuntimeError(text)) is None
