"""Every error tells whether trying again may help, and what the user can do."""

from __future__ import annotations

import pytest

from millstream.client import errors
from millstream.client.errors import BrokerError, ClientError, advice_for, is_retriable
from millstream.model.errors import ErrorCode


def client_errors() -> list[type[ClientError]]:
    # Whoever derives one elsewhere is held to the same.
    import millstream.client.core.consumer.errors  # noqa: F401

    found = [ClientError]
    for kind in found:
        found += kind.__subclasses__()
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("kind", client_errors(), ids=lambda kind: kind.__name__)
def test_classes(kind: type[ClientError]) -> None:
    assert isinstance(kind.retriable, bool)
    assert kind.advice.endswith(".")
    assert kind.__doc__


@pytest.mark.parametrize("code", [each for each in ErrorCode if each is not ErrorCode.NONE])
def test_codes(code: ErrorCode) -> None:
    error = BrokerError(code, "about")
    assert error.retriable is code.retriable
    assert is_retriable(error) is code.retriable
    assert error.advice == advice_for(code)
    assert len(error.advice) > 20


def test_what_is_no_error_of_the_client_is_not_retriable() -> None:
    assert not is_retriable(ValueError())
    assert is_retriable(errors.ConnectionFailedError())
