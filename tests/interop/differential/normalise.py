"""What of an answer is compared, and as what.

=====================  ==========================================================================
field                  stands as
=====================  ==========================================================================
names of a scenario    ``$label`` (every run uses fresh names that end in a random suffix)
topic ids              ``<id of $label>``; ids that no topic of the scenario has, ``<uuid N>``
text with a UUID       the UUID as ``<uuid N>`` (member ids: ``client-id-<uuid 1>``)
producer ids           ``<producer N>``, unless the scenario itself made the number up
fetch session ids      ``<session N>``
times                  ``<now>`` when within a day of the present, else the number
cluster id, host, port ``<cluster id>``, ``<host>``, ``<port>``
directories, disk size ``<directory>``, ``<bytes>``
records                one entry per batch: header fields, CRC right or wrong, payload in hex
other bytes            hex
error messages         the text is kept to be read; only null or not null is compared
=====================  ==========================================================================

``N`` counts in order of appearance within the scenario, so that identity is compared: two equal
ids must be equal in both brokers. Lists of structures are sorted by what names their elements,
because Kafka's own order is that of a hash table; lists of numbers keep their order.
Everything else stands as it came.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Final

from tests.interop.differential.batches import describe_batches

MESSAGE_FIELDS: Final = frozenset(
    {"error_message", "batch_index_error_message", "acknowledge_error_message", "documentation"}
)
"""Text for people: compared only for null or not null."""

_ZERO_UUID: Final = "0" * 32
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHORT_UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
"""A UUID as Kafka prints its own, which a broker gives a member that has none."""
_NUMBER: Final = re.compile(r"\b[0-9]{13}\b")
_DAY_MS: Final = 86_400_000
_FIXED: Final = {
    "cluster_id": "<cluster id>",
    "host": "<host>",
    "port": "<port>",
    "log_dir": "<directory>",
    "total_bytes": "<bytes>",
    "usable_bytes": "<bytes>",
}
_SORT_FIELDS: Final = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "partition_index",
    "partition",
    "index",
    "api_key",
    "group_id",
    "key",
    "resource_type",
    "resource_name",
    "broker_id",
    "node_id",
    "group_instance_id",
    "client_id",
    "producer_epoch",
    "member_id",
)


class Normaliser:
    """Knows the names and ids of one scenario and turns its answers into data to compare."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._topic_ids: dict[str, str] = {_ZERO_UUID: "<zero id>"}
        self._numbers: dict[tuple[str, object], int] = {}
        self.literal_producer_ids: set[int] = {-1}

    def know_name(self, name: str, label: str) -> None:
        """Let ``$label`` stand for ``name`` wherever it occurs."""
        self._names[name] = f"${label}"

    def know_topic_id(self, topic_id: str, label: str) -> None:
        """Let ``<id of $label>`` stand for ``topic_id`` (32 hexadecimal digits)."""
        if topic_id in self._topic_ids:
            return
        shown, count = f"<id of ${label}>", 1
        while shown in self._topic_ids.values():
            count += 1
            shown = f"<id of ${label}, creation {count}>"
        self._topic_ids[topic_id] = shown

    def normalise(self, answer: Mapping[str, object]) -> object:
        """Return ``answer`` in the form that is recorded and compared."""
        return self._number(_sorted(self._known(dict(answer), "")))

    def _known(self, value: object, field: str) -> object:
        """First pass: put labels for what the scenario knows, leave random values raw."""
        if isinstance(value, Mapping):
            return {str(key): self._known(each, str(key)) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._known(each, field) for each in value]
        if isinstance(value, (bytes, bytearray, memoryview)):
            data = bytes(value)
            if field == "records":
                return self._known(describe_batches(data), "batches")
            return "0x" + data.hex()
        if isinstance(value, str) and field == "topic_id":
            return self._topic_ids.get(value, value)
        if isinstance(value, str):
            return _FIXED[field] if field in _FIXED and value else self._with_labels(value)
        if field in _FIXED and value != -1:
            return _FIXED[field]
        return _time_of(value) if "time" in field and field != "throttle_time_ms" else value

    def _with_labels(self, text: str) -> str:
        for name, label in self._names.items():
            text = text.replace(name, label)
        return _NUMBER.sub(lambda match: str(_time_of(int(match.group()))), text)

    def _number(self, value: object, field: str = "") -> object:
        """Second pass, in the final order: number what is random."""
        if isinstance(value, dict):
            return {key: self._number(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [self._number(each, field) for each in value]
        if field == "topic_id" and isinstance(value, str) and len(value) == 32:
            return f"<uuid {self._nth('uuid', value)}>"
        if field == "member_id" and isinstance(value, str) and _SHORT_UUID.fullmatch(value):
            return f"<uuid {self._nth('uuid', value)}>"
        if isinstance(value, str):
            return _UUID.sub(lambda match: f"<uuid {self._nth('uuid', match.group())}>", value)
        if field == "producer_id" and value not in self.literal_producer_ids:
            return f"<producer {self._nth('producer', value)}>"
        if field == "session_id" and value != 0:
            return f"<session {self._nth('session', value)}>"
        return value

    def _nth(self, kind: str, value: object) -> int:
        known = sum(1 for each, _ in self._numbers if each == kind)
        return self._numbers.setdefault((kind, value), known + 1)


def _time_of(value: object) -> object:
    if isinstance(value, int) and abs(value - time.time() * 1000) < _DAY_MS:
        return "<now>"
    return value


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    elements = [_sorted(each) for each in value]
    if elements and all(isinstance(each, dict) and "magic" not in each for each in elements):
        elements.sort(key=_sort_key)
    return elements


def _sort_key(element: object) -> tuple[str, ...]:
    assert isinstance(element, dict)
    masked = {key: element[key] for key in _SORT_FIELDS if key in element}
    parts = [
        _masked(f"{each:020d}" if isinstance(each, int) else str(each)) for each in masked.values()
    ]
    return (*parts, _masked(json.dumps(element, sort_keys=True, default=str)))


def _masked(text: str) -> str:
    """Hide random parts, which must not decide an order."""
    return _UUID.sub("~", text)


def differences(expected: object, actual: object, path: str = "") -> list[str]:
    """Return one line for every field in which ``actual`` is not as ``expected``."""
    field = path.rpartition(".")[2]
    if field in MESSAGE_FIELDS:
        if (expected is None) == (actual is None):
            return []
        return [f"{path}: Kafka {_short(expected)}, here {_short(actual)}"]
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            line
            for key in dict.fromkeys([*expected, *actual])
            for line in _field_differences(expected, actual, key, f"{path}.{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list):
        return _list_differences(expected, actual, path)
    if expected != actual or type(expected) is not type(actual):
        return [f"{path}: Kafka {_short(expected)}, here {_short(actual)}"]
    return []


def _field_differences(
    expected: dict[str, object], actual: dict[str, object], key: str, path: str
) -> list[str]:
    if key not in actual:
        return [f"{path}: Kafka {_short(expected[key])}, here missing"]
    if key not in expected:
        return [f"{path}: Kafka has no such field, here {_short(actual[key])}"]
    return differences(expected[key], actual[key], path)


def _list_differences(expected: list[object], actual: list[object], path: str) -> list[str]:
    keys = [_element_name(each) for each in expected + actual]
    named = all(keys) and len(set(keys[: len(expected)])) == len(expected)
    if named and len(set(keys[len(expected) :])) == len(actual):
        return differences(
            dict(zip(keys[: len(expected)], expected, strict=True)),
            dict(zip(keys[len(expected) :], actual, strict=True)),
            path,
        )
    lines = []
    if len(expected) != len(actual):
        lines.append(f"{path}: Kafka has {len(expected)} elements, here {len(actual)}")
    for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
        lines += differences(one, other, f"{path}[{index}]")
    return lines


def _element_name(element: object) -> str | None:
    """What tells an element from its neighbours, so that one missing element is one line."""
    if not isinstance(element, dict) or "magic" in element:
        return None
    for field in ("name", "topic", "api_key", "partition_index", "group_id", "topic_id"):
        if element.get(field) is not None:
            return f"[{field}={element[field]}]"
    return None


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:197] + "..."
