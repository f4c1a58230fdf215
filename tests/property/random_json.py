"""Random JSON objects for a table's columns: fitting ones, nearly fitting ones, broken ones."""

from __future__ import annotations

from random import Random
from typing import Final

import pyarrow as pa

from millstream.spark.lakehouse.formats.format import LOCAL_TIMESTAMP, TIMESTAMP

COLUMNS: Final = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", TIMESTAMP),
        ("lt", LOCAL_TIMESTAMP),
        ("o", pa.struct([("i", pa.int64()), ("t", TIMESTAMP), ("x", pa.float64())])),
        ("l", pa.list_(pa.string())),
        ("lo", pa.list_(pa.struct([("n", pa.int64()), ("x", pa.float64())]))),
        ("ll", pa.list_(pa.list_(pa.float64()))),
    ]
)
NUMBERS: Final = (
    *("0", "-0", "1", "-1", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993"),
    *("999999999999999999", "1000000000000000000", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "9999999999999999999", "9" * 40),
    *("1e5", "1E+5", "1e-5", "1.0", "1.50", "-0.0", "0.1", "0.30000000000000004", "123.789e3"),
    *("1e22", "1e23", "9007199254740993.0", "1e308", "4.9e-324", "2.2250738585072014e-308"),
    *("0e0", "0.0e5", "123456789012345678e-4", "5e-23", "3e-22", "1e000", "1e0005", "-7.25e-3"),
)
WRONG_NUMBERS: Final = ("00", "1.", "01", "-", "1e", "1e+", "0x1", "+1", ".5", "1e5.", "--1", "1_0")
TEXTS: Final = (
    *('""', '"a"', '"12"', '"true"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\uFFFF"'),
    *('"\\n\\t\\r\\b\\f\\"\\\\\\/"', '"\u2028ü"', '"\\ud800"', '"\\udc00a"', '"\\ud800\\u0041"'),
    *('"' + "x" * 70 + '"', '"' + "\\u20ac" * 9 + '"', '"\\x"', '"\\u12"', '"\\ud83d\\uzz00"'),
)
TIMES: Final = (
    *("2024-01-31T10:00:00Z", "2024-01-31 10:00:00", "2024-01-31T10:00:00.123456+02:00"),
    *("2024-01-31T10:00:00.123", "2024-02-29T23:59:59.9-23:59", "1969-12-31T23:59:59.999999Z"),
    *("9998-12-31T23:59:59Z", "0002-01-01T00:00:00Z", "2000-02-29T00:00:00+00:00"),
)
OTHER_TIMES: Final = (
    *("2024-01-31", "2024-01-31T10:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"),
    *("2024-02-30T00:00:00Z", "1900-02-29T00:00:00Z", "2024-01-31T10:00:00+0200", "noon"),
    *("2024-01-31T10:00:00.1234567Z", "2024-01-31T24:00:00Z", "2024-01-31t10:00:00z"),
)
OTHERS: Final = (
    *("true", "false", "null", "[]", "{}", '["a"]', "[null]", "[1,2.5]", "[[1],[2.5,null]]"),
    *('[{"n":1}]', '[{"n":null,"x":2}]', '{"i":5}', '{"i":5,"i":6}', '{"zz":1}', '{"x":1e3}'),
    *("[[]]", "[[[]]]", '{"i":{"a":1}}', '{"t":1}', "nul", "truee", "[1", "{", '{"a"}', "[1,]"),
    *('{"i":1,}', '{"t":"2024-01-31T10:00:00Z"}', "[" * 49 + "]" * 49, "[" * 60 + "]" * 60),
)
NAMES: Final = (*COLUMNS.names, *COLUMNS.names, "N", "new", "\\u006e", "", "ü", "t\\n")
SPACES: Final = ("", "", "", " ", "\n", "\r\t")


def fitting(random: Random, name: str) -> str:
    """Return a value that the column takes, mostly."""
    choose = random.choice
    match name:
        case "n":
            return str(random.randint(-(10**17), 10**17))
        case "i":
            return str(random.randint(-(2**31), 2**31 - 1))
        case "x":
            return choose(NUMBERS)
        case "s":
            return choose(TEXTS[:12])
        case "b":
            return choose(["true", "false"])
        case "t":
            return f'"{choose(TIMES)}"'
        case "lt":
            return f'"{choose(TIMES[1:2] + TIMES[3:4])}"'
        case "o":
            return choose(['{"i":5}', "{}", "null", f'{{"t":"{choose(TIMES)}","x":2.5}}'])
        case "l":
            return choose(["[]", '["a",null]', '["ü" , "b"]'])
        case "lo":
            return choose(['[{"n":1},{"x":2}]', "[]", "[null]", "[{}]"])
        case _:
            return choose(["[[1],[2.5,null]]", "[null]", "[[],[1e3]]"])


def some_object(random: Random, *, is_sound: bool = False) -> bytes:
    """Return an object, or what is nearly one."""
    chosen = random.sample(COLUMNS.names, random.randint(0, 6))
    fields = [(name, fitting(random, name)) for name in chosen]
    if not is_sound and random.random() < 0.6:
        for _ in range(random.randint(1, 2)):
            texts = [f'"{each}"' for each in (*TIMES, *OTHER_TIMES)]
            kind = random.choice([NUMBERS, WRONG_NUMBERS, TEXTS, texts, OTHERS])
            fields.append((random.choice(NAMES), random.choice(kind)))
    space = random.choice(SPACES)
    inside = f"{space},{space}".join(f'"{n}"{space}:{space}{each}' for n, each in fields)
    return f"{space}{{{space}{inside}{space}}}{space}".encode("utf-8", "surrogatepass")
