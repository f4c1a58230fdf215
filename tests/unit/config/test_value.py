"""Texts and values: what Kafka accepts, refuses and prints."""

from __future__ import annotations

import pytest

from millstream.config.definition import ConfigKey
from millstream.config.validators import (
    Validator,
    at_least,
    between,
    each_of,
    gzip_level,
    one_of,
    throttled_replicas,
)
from millstream.config.value import ConfigType, Value, format_value
from millstream.model.errors import ConfigError


def parse(kind: ConfigType, text: str, validator: Validator | None = None) -> Value:
    return ConfigKey("x.y", kind, None, validator).parse(text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.INT, " 12 ", 12),
        (ConfigType.INT, "+12", 12),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.INT, "٣", 3),  # Java reads the digits of any script
        (ConfigType.INT, "-" + "0" * 5000 + "7", -7),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.DOUBLE, "0.3f", 0.3),
        (ConfigType.DOUBLE, "Infinity", float("inf")),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.STRING, "", ""),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b ,a", ("a", "b")),
        (ConfigType.LIST, "a,,b", ("a", "", "b")),
        (ConfigType.PASSWORD, " secret ", "secret"),
    ],
)
def test_texts_that_are_accepted(kind: ConfigType, text: str, value: Value) -> None:
    assert parse(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.INT, "x", "Not a number of type INT"),
        (ConfigType.INT, "0x10", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "--1", "Not a number of type INT"),
        (ConfigType.INT, "1" * 5000, "Not a number of type INT"),
        (ConfigType.INT, "²", "Not a number of type INT"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.LONG, "1.5", "Not a number of type LONG"),
        (ConfigType.LONG, "9223372036854775808", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "abc", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "inf", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "1_0", "Not a number of type DOUBLE"),
    ],
)
def test_texts_that_are_refused(kind: ConfigType, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(kind, text)
    assert str(raised.value) == f"Invalid value {text} for configuration x.y: {reason}"


@pytest.mark.parametrize(
    ("kind", "validator", "text", "message"),
    [
        (ConfigType.INT, at_least(1), "0", "Value must be at least 1"),
        (ConfigType.DOUBLE, between(0, 1), "1.5", "Value must be no more than 1"),
        (ConfigType.STRING, one_of("a", "b"), "c", "String must be one of: a, b"),
        (ConfigType.STRING, one_of("a", "b"), "A", "String must be one of: a, b"),
        (ConfigType.LIST, each_of("a", "b"), "a,c", "String must be one of: a, b"),
        (ConfigType.INT, gzip_level, "0", "Value must be between 1 and 9 or equal to -1"),
        (ConfigType.INT, gzip_level, "10", "Value must be between 1 and 9 or equal to -1"),
        (ConfigType.LIST, throttled_replicas, "x", "x.y must be the literal '*' or a list"),
        (ConfigType.LIST, throttled_replicas, "1:2,*", "x.y must be the literal '*' or a list"),
        (ConfigType.LIST, throttled_replicas, "1:2147483648", "x.y must be the literal '*' or"),
        (ConfigType.LIST, throttled_replicas, "9" * 5000 + ":1", "x.y must be the literal '*' or"),
    ],
)
def test_values_that_are_refused(
    kind: ConfigType, validator: Validator, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=r"^Invalid value .* for configuration x.y: ") as raised:
        parse(kind, text, validator)
    assert message in str(raised.value)


def test_a_list_has_no_empty_items() -> None:
    with pytest.raises(ConfigError) as raised:
        parse(ConfigType.LIST, "a,,b", each_of("a", "b"))
    assert str(raised.value) == "Configuration 'x.y' values must not be empty."


@pytest.mark.parametrize(
    ("kind", "validator", "text"),
    [
        (ConfigType.INT, between(1, 2), "2"),
        (ConfigType.INT, gzip_level, "-1"),
        (ConfigType.LIST, each_of("a"), ""),
        (ConfigType.LIST, throttled_replicas, ""),
        (ConfigType.LIST, throttled_replicas, "*"),
        (ConfigType.LIST, throttled_replicas, "0:1,22:3"),
    ],
)
def test_values_that_are_accepted(kind: ConfigType, validator: Validator, text: str) -> None:
    parse(kind, text, validator)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (7, "7"),
        ((), ""),
        (("a", "b"), "a,b"),
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (-1.5e-7, "-1.5E-7"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.25, "1.2345678925E8"),
        (1e22, "1.0E22"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_values_are_printed_as_java_prints_them(value: Value, text: str | None) -> None:
    assert format_value(value) == text
