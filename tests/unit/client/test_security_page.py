"""docs/security.md explains every reason that a client gives for having no TLS connection."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from millstream.client.core.tls import _REASONS, why
from millstream.spark.sessions import DEFAULT_SETTINGS

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
EXPLAINED = [
    line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| it")
] + [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| this")]
EXPLAINED.append("ssl.enabled.protocols leaves no version")


def refused(code: int) -> str:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "because"
    return why(error, "HOST")


@pytest.mark.parametrize("text", [*_REASONS.values(), *map(refused, (1, 9, 10, 18, 62))])
def test_a_reason_stands_in_the_table(text: str) -> None:
    assert any(text.startswith(each) for each in EXPLAINED), text


def test_the_expression_for_spark_is_the_one_of_our_sessions() -> None:
    assert f"\n{DEFAULT_SETTINGS['spark.redaction.regex']}\n" in PAGE
