"""Settings: Java's names, types, and what is said about a wrong one."""

from __future__ import annotations

import pytest

from millstream.client.core.settings import AdminSettings, ProducerSettings, read_settings
from millstream.client.settings import Address
from millstream.model.errors import ConfigError
from millstream.records.compression import Codec

SERVERS = {"bootstrap.servers": "a:1,b:2"}


def test_dots_and_underscores_are_the_same() -> None:
    read = read_settings(
        ProducerSettings, SERVERS, {"linger_ms": 7, "compression_type": "zstd", "acks": "1"}
    )
    assert read.bootstrap_servers == (Address("a", 1), Address("b", 2))
    assert (read.linger_ms, read.compression_type, read.acks) == (7, Codec.ZSTD, 1)
    assert read_settings(ProducerSettings, SERVERS | {"linger.ms": "7"}).linger_ms == 7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"linger.mss": 5}, r"there is no setting 'linger.mss'; the nearest is 'linger.ms'"),
        ({"batchsize": 5}, r"the nearest is 'batch.size'"),
        ({"qqqqqqqqqqqq": 5}, r"there is no setting 'qqqqqqqqqqqq'$"),
        ({"batch.size": "many"}, r"batch.size = 'many'"),
        ({"batch.size": 1.5}, r"batch.size = 1.5: it takes a whole number"),
        ({"batch.size": True}, r"batch.size = True: it takes a whole number"),
        ({"enable.idempotence": "maybe"}, r"enable.idempotence = 'maybe': it takes true or false"),
        ({"request.timeout.ms": 2**31}, r"request.timeout.ms = 2147483648: it takes 0 to 214748"),
        ({"acks": 2}, r"acks = 2: it takes 0, 1 or all"),
        ({"compression.type": "rar"}, r"compression.type = 'rar'"),
        ({"security.protocol": "SSL"}, r"PLAINTEXT only"),
    ],
)
def test_a_wrong_setting_is_an_error_that_helps(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_settings(ProducerSettings, SERVERS | given)


def test_the_keyword_is_named_as_it_is_spelt() -> None:
    with pytest.raises(ConfigError, match="the nearest is 'linger_ms'"):
        read_settings(ProducerSettings, SERVERS, {"linger_mss": 1})


def test_missing_and_twice() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        read_settings(AdminSettings, {})
    with pytest.raises(ConfigError, match="given twice"):
        read_settings(AdminSettings, SERVERS, {"bootstrap_servers": "c:3"})
