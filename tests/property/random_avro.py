"""Random Avro schemas, what else they may be read by, and datums of them. By a seed alone."""

from __future__ import annotations

import copy
import io
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

import fastavro

from millstream.spark.lakehouse.formats import FormatSpec

INTS: Final = (0, 1, -1, 63, -64, 64, -65, 2**31 - 1, -(2**31), 8191, 8192)
LONGS: Final = (*INTS, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
FLOATS: Final = (0.0, -0.0, 1.5, -0.25, float("inf"), float("-inf"), float("nan"), 2.0**127)
TEXTS: Final = ("", "a", "plain ascii", "ü\u2028", "\U0001f600", "\0", "x" * 70)
FIRST: Final = datetime(1, 1, 1)
SYMBOLS: Final = ("A", "B_2", "C" * 40)

_PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class AvroSource:
    """A record and datums of it."""

    def __init__(self, random: Random, *, left: int = 3, most_fields: int = 5) -> None:
        self._random = random
        self._names = 0
        self._most_fields = most_fields
        self.schema = self._record(left)
        self._parsed: Any = fastavro.parse_schema(copy.deepcopy(self.schema))

    def datum(self) -> bytes:
        """Return a datum as it should be."""
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._parsed, self._value(self.schema))
        return out.getvalue()

    def spec(self) -> FormatSpec:
        """Return how datums are read: by their own schema, or by another one."""
        own = json.dumps(self.schema).encode()
        if self._random.random() < 0.5:
            return FormatSpec(kind="avro", definition=own)
        return FormatSpec(kind="avro", definition=json.dumps(self._reader()).encode(), writer=own)

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _record(self, left: int) -> dict[str, Any]:
        name, count = self._name("R"), self._random.randint(1, self._most_fields)
        fields = [{"name": f"f{place}", "type": self._kind(left)} for place in range(count)]
        return {"type": "record", "name": name, "fields": fields}

    def _kind(self, left: int) -> Any:
        choose = self._random.choice
        deeper = ["array", "map", "record", "array", "record"] if left > 0 else []
        kind = choose(["simple"] * 5 + ["logical"] * 3 + ["enum", "fixed", "optional"] + deeper)
        if kind == "simple":
            return choose(["boolean", "int", "long", "float", "double", "bytes", "string", "null"])
        if kind == "logical":
            return self._logical()
        if kind == "enum":
            symbols = list(SYMBOLS[: self._random.randint(1, 3)])
            return {"type": "enum", "name": self._name("E"), "symbols": symbols}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name("F"), "size": choose([1, 3, 40])}
        if kind == "optional":
            inner = self._kind(left - 1)
            if isinstance(inner, list) or inner == "null":
                inner = "int"
            return choose([["null", inner], [inner, "null"], [inner]])
        if kind == "record":
            return self._record(left - 1)
        inner = self._kind(left - 1)
        inner = "string" if inner == "null" else inner
        return {"type": kind, "items" if kind == "array" else "values": inner}

    def _logical(self) -> dict[str, Any]:
        kind, logical = self._random.choice(
            [
                *(("int", "date"), ("int", "time-millis"), ("long", "time-micros")),
                *(("long", "timestamp-millis"), ("long", "timestamp-micros")),
                *(("long", "local-timestamp-millis"), ("long", "local-timestamp-micros")),
                *(("string", "uuid"), ("bytes", "decimal"), ("fixed", "decimal")),
                ("long", "unknown"),
            ]
        )
        found: dict[str, Any] = {"type": kind, "logicalType": logical}
        if logical == "decimal":
            digits = self._random.choice([1, 9, 18, 38])
            found |= {"precision": digits, "scale": self._random.choice([0, digits // 2, digits])}
        if kind == "fixed":
            found |= {"name": self._name("D"), "size": 16}
        return found

    def _value(self, schema: Any) -> Any:
        choose = self._random.choice
        if isinstance(schema, list):
            return self._value(choose(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(schema, str) and "logicalType" in schema:
            return self._logical_value(schema)
        match kind:
            case "null":
                return None
            case "boolean":
                return choose([True, False])
            case "int" | "long":
                return choose(INTS if kind == "int" else LONGS)
            case "float" | "double":
                return choose(FLOATS if kind == "float" else (*FLOATS, 0.1, 5e-324, 1.7e308))
            case "bytes":
                return choose(TEXTS).encode()
            case "string":
                return choose(TEXTS)
            case "enum":
                return choose(schema["symbols"])
            case "fixed":
                return self._random.randbytes(schema["size"])
            case "array":
                return [self._value(schema["items"]) for _ in range(choose([0, 1, 3, 70]))]
            case "map":
                keys = self._random.sample(TEXTS, choose([0, 1, 4]))
                return {key: self._value(schema["values"]) for key in keys}
            case _:
                return {each["name"]: self._value(each["type"]) for each in schema["fields"]}

    def _logical_value(self, schema: dict[str, Any]) -> Any:
        choose, random = self._random.choice, self._random
        match schema["logicalType"]:
            case "date":
                return choose([date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1)])
            case "time-millis":
                return time(23, 59, 59, 999_000) if random.random() < 0.5 else time()
            case "time-micros":
                return choose([time(), time(23, 59, 59, 999_999)])
            case "uuid":
                return UUID(int=random.getrandbits(128))
            case "unknown":
                return choose(LONGS)
            case "decimal":
                digits = schema["precision"]
                most = 10**digits - 1
                number = choose([0, 1, -1, most, -most, random.randint(-most, most)])
                return Decimal((number < 0, tuple(map(int, str(abs(number)))), -schema["scale"]))
            case logical:
                instant = FIRST + timedelta(milliseconds=random.randrange(315_537_897_600_000))
                return instant.replace(tzinfo=None if logical.startswith("local") else UTC)

    def _reader(self) -> dict[str, Any]:
        """Return a schema by which datums can often be read: the fields in another order, without
        some, promoted, renamed, with new ones that have defaults.
        """
        random = self._random
        fields = [copy.deepcopy(each) for each in self.schema["fields"] if random.random() < 0.8]
        for each in fields:
            if isinstance(each["type"], str) and random.random() < 0.5:
                each["type"] = random.choice([each["type"], *_PROMOTED.get(each["type"], ())])
            elif isinstance(each["type"], str) and each["type"] != "null" and random.random() < 0.3:
                each["type"] = ["null", each["type"]]
            if random.random() < 0.2:
                each["aliases"] = [each["name"]]
                each["name"] = f"new_{each['name']}"
        fields.append({"name": "d", "type": "string", "default": "ü"})
        if random.random() < 0.3:
            items = {"type": "array", "items": "int"}
            fields.append({"name": "e", "type": items, "default": [1, 2]})
        random.shuffle(fields)
        return {**self.schema, "fields": fields}
