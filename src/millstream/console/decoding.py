"""Keys, values and headers of records as JSON: decoded as asked for, or as they look."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from millstream.client.core.consumer.record import ConsumerRecord
from millstream.console.problems import ProblemError
from millstream.console.schema_values import Headers, SchemaValues

DECODERS: Final = ("auto", "schema", "text", "json", "hex", "base64")
_SHOWN_BYTES: Final = 256 * 1024
"""Of one key or value: a page with a hundred larger ones would be of no use to anybody."""
_MAX_DEPTH: Final = 200
"""What is nested deeper is shown as text."""
_UNNAMED: Final = "This names no schema; it is shown as it looks."


def content(data: bytes | None, decoder: str) -> dict[str, Any] | None:
    """Return one key or value: ``kind``, ``size`` in bytes, and ``json`` or ``text``."""
    if data is None:
        return None
    found: dict[str, Any] = {"kind": decoder, "size": len(data)}
    if decoder in ("auto", "json"):
        parsed, is_json = _json(data, anything=decoder == "json")
        if is_json:
            return found | {"kind": "json", "json": parsed}
        if decoder == "json":
            found["error"] = "This is not JSON; it is shown as text."
    shown = data[:_SHOWN_BYTES]
    if len(shown) < len(data):
        found["error"] = f"Only the first {_SHOWN_BYTES:,} of {len(data):,} bytes are shown."
    if decoder == "hex":
        return found | {"text": shown.hex(" ")}
    if decoder == "base64":
        return found | {"text": base64.b64encode(shown).decode()}
    try:
        text = shown.decode("utf-8", "strict" if len(shown) == len(data) else "ignore")
    except UnicodeDecodeError:
        if decoder == "auto":
            return found | {"kind": "binary, as hex", "text": shown.hex(" ")}
        return found | {"kind": "text", "text": shown.decode("utf-8", "replace")}
    return found | {"kind": "text", "text": text}


def check_decoder(name: str) -> str:
    """Return the name of a decoder. Raises ProblemError."""
    if name not in DECODERS:
        raise ProblemError(
            400, f"There is no decoder {name!r}.", "decoder", f"Choose {', '.join(DECODERS)}."
        )
    return name


def shown(
    record: ConsumerRecord[bytes, bytes], decoder: str, schemas: SchemaValues | None = None
) -> dict[str, Any]:
    """Return a record as the page gets it."""
    headers = record.headers

    def part(data: bytes | None, *, is_key: bool) -> dict[str, Any] | None:
        if data is None or decoder not in ("auto", "schema"):
            return content(data, decoder)
        return _by_schema(data, headers, schemas, is_asked=decoder == "schema", is_key=is_key)

    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "append" if record.timestamp_type == 1 else "create",
        "key": part(record.key, is_key=True),
        "value": part(record.value, is_key=False),
        "headers": [
            {"name": name, "value": None if value is None else content(value, "auto")}
            for name, value in record.headers
        ],
    }


def _by_schema(
    data: bytes,
    headers: Headers,
    schemas: SchemaValues | None,
    *,
    is_asked: bool,
    is_key: bool,
) -> dict[str, Any] | None:
    """Return what a schema says of the bytes; where none does, how they look."""
    found = None
    if schemas is not None and len(data) <= _SHOWN_BYTES:
        found = schemas.decode(data, headers, is_key=is_key)
    if found is None:
        looks = content(data, "auto")
        return {**(looks or {}), "error": _UNNAMED} if is_asked else looks
    if found.error is None and _depth(found.json) <= _MAX_DEPTH:
        size = len(data)
        return {"kind": found.kind, "size": size, "schema": found.schema, "json": found.json}
    error = found.error or "It is nested too deeply to be shown."
    return {**(content(data, "auto") or {}), "error": error}


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same record as a filter sees it: values instead of how they look."""
    return {
        **record,
        "key": _plain(record["key"]),
        "value": _plain(record["value"]),
        "headers": {each["name"]: _plain(each["value"]) for each in record["headers"]},
    }


def _plain(part: Mapping[str, Any] | None) -> Any:
    return None if part is None else part["json"] if "json" in part else part["text"]


def _json(data: bytes, *, anything: bool) -> tuple[Any, bool]:
    """Return what JSON says, and whether it is that; a bare word or number only if asked for."""
    if len(data) > _SHOWN_BYTES or (not anything and data[:1] not in (b"{", b"[")):
        return None, False
    try:
        found = _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
        # The answer has it some levels deeper, and must not be what fails.
        is_flat = data.count(b"{") + data.count(b"[") <= _MAX_DEPTH
        return found, is_flat or _depth(found) <= _MAX_DEPTH
    except (ValueError, RecursionError):
        return None, False


def _depth(value: Any) -> int:
    """Return how deeply objects and lists are nested, or just more than is allowed."""
    level, depth = [value], 0
    while level and depth <= _MAX_DEPTH:
        level = [
            each
            for inner in level
            if isinstance(inner, dict | list)
            for each in (inner.values() if isinstance(inner, dict) else inner)
        ]
        depth += 1
    return depth


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refuse(text)
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
"""``json.loads`` would make one for each value."""
