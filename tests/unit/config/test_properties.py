"""Java properties, overrides and environment variables."""

from __future__ import annotations

import pytest

from millstream.config.properties import from_environment, parse_overrides, parse_properties
from millstream.model.errors import ConfigError
from millstream.native.loader import SWITCH


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("# a=1\n! b=2\n   # c=3", {}),
        ("a=1\nb = 2\nc:3\nd 4\n e\t=\t5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a= 1 ", {"a": "1 "}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=1\na=2", {"a": "2"}),
        ("list=one,\\\n    two,\\\n\tthree", {"list": "one,two,three"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=C:\\\\dir\\ttab\\nline", {"a": "C:\\dir\ttab\nline"}),
        ("a\\ b\\=c=1", {"a b=c": "1"}),
        ("a=\\u00e4\\u4E2D", {"a": "ä中"}),
        ("a=\\q\\:", {"a": "q:"}),
        ("\ufeffa=1", {"a": "1"}),  # not Java: it would take the mark for part of the name
        ("a=x\\", {"a": "x"}),
        ("a=x\\\\", {"a": "x\\"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


def test_a_broken_unicode_escape_is_an_error() -> None:
    with pytest.raises(ConfigError, match="uxxxx"):
        parse_properties("a=\\u12")


def test_overrides() -> None:
    assert parse_overrides(["a=1", " b = x=y ", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1", " =1"):
        with pytest.raises(ConfigError, match="name=value"):
            parse_overrides([wrong])


NAMES = ["log.dirs", "log.dir", "log.retention.ms"]


def test_environment_variables() -> None:
    environment = {"MILLSTREAM_LOG_DIRS": "/x", "LOG_DIR": "/y", "PATH": "/bin"}
    assert from_environment(environment, NAMES) == {"log.dirs": "/x"}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("MILLSTREAM_LOG_DRIS", "MILLSTREAM_LOG_DRIS sets nothing; the nearest is MILLSTREAM_LOG_"),
        ("MILLSTREAM_LOGRETENTION_MS", "; the nearest is MILLSTREAM_LOG_RETENTION_MS$"),
        ("MILLSTREAM_log_dirs", "; the nearest is MILLSTREAM_LOG_DIRS$"),
        ("MILLSTREAM_KERNAL", "; the nearest is MILLSTREAM_KERNEL$"),
        ("MILLSTREAM_XYZZY", "MILLSTREAM_XYZZY sets nothing$"),
        ("MILLSTREAM_PORT", "MILLSTREAM_PORT sets nothing$"),
        ("MILLSTREAM_", "MILLSTREAM_ sets nothing$"),
    ],
)
def test_a_variable_that_sets_nothing_is_refused(variable: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_environment({variable: "/x"}, NAMES)


def test_variables_that_other_parts_of_millstream_read() -> None:
    environment = {SWITCH: "off", "MILLSTREAM_BOOTSTRAP_SERVERS": "h:9092"}
    environment["MILLSTREAM_CATALOG__PROD__URI"] = "http://h:8080"
    assert from_environment(environment, NAMES) == {}


def test_variables_that_kubernetes_sets_for_a_service_of_that_name() -> None:
    environment = {
        "MILLSTREAM_SERVICE_HOST": "10.0.0.11",
        "MILLSTREAM_SERVICE_PORT": "9092",
        "MILLSTREAM_SERVICE_PORT_KAFKA": "9092",
        "MILLSTREAM_PORT": "tcp://10.0.0.11:9092",
        "MILLSTREAM_PORT_9092_TCP": "tcp://10.0.0.11:9092",
        "MILLSTREAM_PORT_9092_TCP_PROTO": "tcp",
        "MILLSTREAM_PORT_9092_TCP_PORT": "9092",
        "MILLSTREAM_PORT_9092_TCP_ADDR": "10.0.0.11",
        "MILLSTREAM_HEADLESS_SERVICE_HOST": "10.0.0.12",
        "MILLSTREAM_HEADLESS_PORT": "tcp://10.0.0.12:9092",
    }
    assert from_environment(environment, NAMES) == {}
