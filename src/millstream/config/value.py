"""Types of settings; how a text becomes a value and a value a text, as in Kafka's ConfigDef."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from millstream.model.errors import ConfigError

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""What a text becomes; a list is a tuple of texts, null is None."""

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MAX_DOUBLE: Final = 1.7976931348623157e308


class ConfigType(Enum):
    """The type of a setting; the value is its code in DescribeConfigs responses. UNKNOWN is that of
    a name that no setting has.
    """

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


def format_value(value: Value) -> str | None:
    """Return the text that Kafka prints for a value; null stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """Return ``Double.toString(value)``: plain from 10⁻³ up to 10⁷, an exponent outside."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    power = int(exponent or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    rest = digits[1:].rstrip("0") or "0"
    return f"{'-' if value < 0 else ''}{digits[0]}.{rest}E{power}"


def invalid(name: str, value: Value, reason: str) -> ConfigError:
    """Return the error for a value that its setting refuses, worded as Kafka words it."""
    shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else format_value(value)
    return ConfigError(f"Invalid value {shown} for configuration {name}: {reason}")


def parse_value(config_type: ConfigType, name: str, text: str) -> Value:
    """Return the value of a text; ConfigError names the setting and the reason."""
    return _PARSERS[config_type](name, text.strip())


def _parse_boolean(name: str, text: str) -> Value:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise invalid(name, text, "Expected value to be either true or false")
    return lowered == "true"


def parse_integer(text: str, bits: int) -> int | None:
    """Return the number that a text writes in decimal digits; None when it is none, or has more
    than ``bits`` bits with its sign.
    """
    signed = text.startswith(("+", "-"))
    digits = text[1:] if signed else text
    if not digits.isdecimal():
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(MAX_LONG)):
        return None  # int() refuses thousands of digits with an error of its own
    value = -int(digits) if text.startswith("-") else int(digits)
    return value if -1 << (bits - 1) <= value < 1 << (bits - 1) else None


def _integer_parser(bits: int, type_name: str) -> Callable[[str, str], Value]:
    def parse(name: str, text: str) -> Value:
        value = parse_integer(text, bits)
        if value is None:
            raise invalid(name, text, f"Not a number of type {type_name}")
        return value

    return parse


def _parse_double(name: str, text: str) -> Value:
    plain = text.rstrip("dDfF") if text[:1] not in ("N", "I") else text
    try:
        if "_" in plain or plain.lower().lstrip("+-") in ("nan", "inf", "infinity"):
            return {"NaN": float("nan"), "Infinity": float("inf")}[plain.lstrip("+")]
        return float(plain)
    except (KeyError, ValueError):
        raise invalid(name, text, "Not a number of type DOUBLE") from None


def _parse_text(name: str, text: str) -> Value:
    return text


def _parse_list(name: str, text: str) -> Value:
    if not text:
        return ()
    # A value named twice counts once (Kafka: ConfigDef.parseValue since 4.2).
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


_PARSERS: Final[Mapping[ConfigType, Callable[[str, str], Value]]] = {
    ConfigType.UNKNOWN: _parse_text,
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_text,
    ConfigType.INT: _integer_parser(32, "INT"),
    ConfigType.SHORT: _integer_parser(16, "SHORT"),
    ConfigType.LONG: _integer_parser(64, "LONG"),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_text,
    ConfigType.PASSWORD: _parse_text,
}
