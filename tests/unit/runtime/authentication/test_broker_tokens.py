"""The token of a broker: there before it is needed, replaced before it ends."""

from __future__ import annotations

import pytest
from tests.unit.runtime.coordinator_site import HandClock, HeldOffload

from millstream.client.errors import ConnectionFailedError
from millstream.client.tokens import TokenSource
from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.model.deferred import Deferred
from millstream.model.errors import ConfigError
from millstream.runtime.authentication.broker_tokens import (
    BrokerTokens,
    RefreshRules,
    open_broker_tokens,
)
from millstream.security.sasl.mechanism import SaslClient

RULES = RefreshRules(min_period_ms=0, buffer_ms=0)
LOGIN = "org.apache.kafka.common.security.oauthbearer."


class Site:
    def __init__(self, lifetime_s: float | None = 100) -> None:
        self.clock = HandClock()
        self.offload = HeldOffload()
        self.lifetime_s = lifetime_s
        self.fetched = 0
        self.is_down = False
        source = TokenSource(self._fetch, clock=lambda: self.clock.now_ms() / 1000)
        self.tokens = BrokerTokens(
            source,
            {},
            rules=lambda: RULES,
            clock=self.clock,
            offload=self.offload,
            chance=lambda: 0.0,
        )

    def _fetch(self) -> object:
        if self.is_down:
            raise ConnectionFailedError("the endpoint is down")
        self.fetched += 1
        if self.lifetime_s is None:
            return f"token-{self.fetched}"
        return f"token-{self.fetched}", self.clock.now_ms() / 1000 + self.lifetime_s


def text(made: Deferred[SaslClient]) -> str:
    return made.result().evaluate(None).decode().split("\x01")[1]


def test_a_token_is_fetched_once_and_replaced_after_four_fifths_of_its_time() -> None:
    site = Site()
    for _ in range(3):
        assert text(site.tokens.client()) == "auth=Bearer token-1"
    site.clock.advance(79_999)
    assert site.fetched == 1
    site.clock.advance(1)
    assert site.fetched == 2
    assert text(site.tokens.client()) == "auth=Bearer token-2"


def test_the_token_of_before_is_used_while_there_is_no_other() -> None:
    site = Site()
    site.is_down = True
    site.clock.advance(99_000)
    assert text(site.tokens.client()) == "auth=Bearer token-1"
    site.clock.advance(1_000)
    waiting = site.tokens.client()
    assert not waiting.done
    site.clock.advance(10_000)
    with pytest.raises(ConnectionFailedError, match="the endpoint is down"):
        waiting.result()
    waiting = site.tokens.client()
    site.is_down = False
    site.clock.advance(10_000)
    assert text(waiting) == "auth=Bearer token-2"


def test_attempts_are_made_less_and_less_often() -> None:
    site = Site()
    site.is_down = True
    site.clock.advance(80_000)
    attempts = []
    for wait_ms in (100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000):
        before = site.tokens._failures
        site.clock.advance(wait_ms - 1)
        attempts.append(site.tokens._failures - before)
        site.clock.advance(1)
        attempts.append(site.tokens._failures - before)
    assert attempts == [0, 1] * 9


def test_connections_wait_for_the_first_token() -> None:
    site = Site()
    site.tokens.close()
    held = HeldOffload()
    held.held = True
    source = TokenSource(lambda: ("late", site.clock.now_ms() / 1000 + 5), clock=lambda: 0.0)
    tokens = BrokerTokens(
        source, {}, rules=lambda: RULES, clock=site.clock, offload=held, chance=lambda: 0.0
    )
    waiting = [tokens.client() for _ in range(3)]
    assert not any(each.done for each in waiting)
    held.release()
    assert {text(each) for each in waiting} == {"auth=Bearer late"}


def test_a_token_without_an_end_is_used_once() -> None:
    site = Site(lifetime_s=None)
    assert text(site.tokens.client()) == "auth=Bearer token-2"
    assert text(site.tokens.client()) == "auth=Bearer token-3"


def test_nothing_is_fetched_after_the_end() -> None:
    site = Site()
    site.tokens.close()
    site.clock.advance(200_000)
    assert site.fetched == 1
    assert site.clock.timers_running == 0


@pytest.mark.parametrize(
    ("lifetime_s", "chance", "after_s"),
    [
        (1000, 0.0, 700),  # the buffer comes before four fifths
        (10_000, 0.0, 8_000),
        (10_000, 1.0, 8_500),
        (370, 0.0, 70),
        (361, 0.0, 61),
        (359, 0.0, 287.2),  # both are passed over where they leave nothing
        (10, 0.0, 8),
    ],
)
def test_when_a_token_is_replaced(lifetime_s: float, chance: float, after_s: float) -> None:
    found = RefreshRules().refresh_after_ms(lifetime_s * 1000, chance)
    assert found == pytest.approx(after_s * 1000)


JAAS = f'{LOGIN}OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs a source of tokens"),
        ({"sasl.login.callback.handler.class": "a.b.C"}, "Millstream has no a.b.C"),
        ({"sasl.oauthbearer.jwt.retriever.class": "a.b.C"}, "Millstream has no a.b.C"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://h/t"}, "client.id is missing"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://h/t"}, "takes https"),
        ({"sasl.jaas.config": JAAS}, "unsecured tokens take"),
    ],
)
def test_settings_that_name_no_token(settings: dict[str, str], message: str) -> None:
    prefix = "listener.name.plaintext.oauthbearer."
    config = BrokerConfig({f"{prefix}{name}": value for name, value in settings.items()})
    with pytest.raises(ConfigError, match=message):
        open_broker_tokens(
            DynamicConfig(config),
            "PLAINTEXT",
            clock=HandClock(),
            offload=HeldOffload(),
            chance=lambda: 0.0,
        )


def test_unsecured_tokens_where_their_class_is_named() -> None:
    prefix = "listener.name.plaintext.oauthbearer.sasl."
    config = BrokerConfig(
        {
            f"{prefix}jaas.config": JAAS,
            f"{prefix}login.callback.handler.class": f"{LOGIN}internals.unsecured."
            "OAuthBearerUnsecuredLoginCallbackHandler",
        }
    )
    offload = HeldOffload()
    tokens = open_broker_tokens(
        DynamicConfig(config), "PLAINTEXT", clock=HandClock(), offload=offload, chance=lambda: 0.0
    )
    # Kafka's tokens have the time of the machine, whatever the clock of the test says.
    assert tokens._token is not None
    assert tokens._token.text.endswith(".")
