"""How keys and values look."""

from __future__ import annotations

import pytest

from millstream.console.decoding import content


@pytest.mark.parametrize(
    ("data", "decoder", "expected"),
    [
        (b'{"a": [1]}', "auto", {"kind": "json", "json": {"a": [1]}}),
        (b"17", "auto", {"kind": "text", "text": "17"}),
        (b"17", "json", {"kind": "json", "json": 17}),
        (b"\x00\xff", "auto", {"kind": "binary, as hex", "text": "00 ff"}),
        (b"\x00\xff", "base64", {"kind": "base64", "text": "AP8="}),
        (b"<b>", "auto", {"kind": "text", "text": "<b>"}),
        (b"[" * 100_000, "auto", {"kind": "text", "text": "[" * 100_000}),
        (b'{"a": NaN}', "auto", {"kind": "text", "text": '{"a": NaN}'}),
        (b"[1e999]", "auto", {"kind": "text", "text": "[1e999]"}),
        (b"[" * 300 + b"]" * 300, "auto", {"kind": "text", "text": "[" * 300 + "]" * 300}),
        (b'["\\ud800"]', "auto", {"kind": "json", "json": ["\ud800"]}),
    ],
)
def test_a_value_is_shown_as_it_looks_or_as_asked(
    data: bytes, decoder: str, expected: dict[str, object]
) -> None:
    found = content(data, decoder)
    assert found == {**expected, "size": len(data)}


def test_null_is_told_apart_from_nothing() -> None:
    assert content(None, "auto") is None
    assert content(b"", "auto") == {"kind": "text", "size": 0, "text": ""}


def test_what_is_not_json_says_so() -> None:
    found = content(b"{", "json")
    assert found is not None
    assert found["text"] == "{"
    assert "not JSON" in found["error"]


def test_a_very_large_value_is_cut_and_says_so() -> None:
    found = content(b"\xc3\xa4" * 300_000, "auto")
    assert found is not None
    assert "Only the first" in found["error"]
    assert found["size"] == 600_000
