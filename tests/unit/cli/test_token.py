"""The settings of a client that `millstream token create --output` writes."""

from __future__ import annotations

import pytest

from millstream.cli.token import _mechanism, _settings
from millstream.config.properties import parse_properties


@pytest.mark.parametrize(
    ("own", "written"),
    [
        ("SCRAM-SHA-512", "SCRAM-SHA-512"),
        ("SCRAM-SHA-256", "SCRAM-SHA-256"),
        ("PLAIN", "SCRAM-SHA-256"),
        (None, "SCRAM-SHA-256"),
    ],
)
def test_the_mechanism_is_one_that_the_broker_is_known_to_have(
    own: str | None, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if own is not None:
        monkeypatch.setenv("MILLSTREAM_CLIENT_SASL_MECHANISM", own)
    settings = parse_properties(_settings("an-id", "c2VjcmV0", _mechanism()))
    assert settings["sasl.mechanism"] == written
    assert settings["sasl.jaas.config"].endswith(
        'required username="an-id" password="c2VjcmV0" tokenauth="true";'
    )
