"""How clients say who they are: SASL."""

from __future__ import annotations

from millstream.config.definition import (
    PER_BROKER,
    Config,
    class_name,
    double,
    int16,
    int32,
    int64,
    password,
    string,
    texts,
)
from millstream.config.validators import at_least


class AuthenticationSettings(Config):
    """SASL on listeners that ask for it. Most of these settings may be given for one listener
    (`listener.name.NAME.`) and some for one mechanism of it (`listener.name.NAME.MECHANISM.`).
    """

    sasl_enabled_mechanisms: tuple[str, ...] = texts(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        None,
        "The SASL mechanisms of a listener: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, "
        "`OAUTHBEARER`. GSSAPI, which is Apache Kafka's default, is not served.",
        mode=PER_BROKER,
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        None,
        "The SASL mechanism with which brokers authenticate to each other.",
        mode=PER_BROKER,
    )
    sasl_jaas_config: str | None = password(
        "sasl.jaas.config",
        "The login module of a mechanism, as `listener.name.NAME.MECHANISM.sasl.jaas.config`: the "
        "users of PLAIN, and as whom this broker connects to others; for OAUTHBEARER also the "
        "`ssl.*` options of connections to the endpoints of keys and tokens.",
        mode=PER_BROKER,
    )
    sasl_server_callback_handler_class: str | None = class_name(
        "sasl.server.callback.handler.class",
        None,
        "How OAUTHBEARER validates tokens: Apache Kafka's class for signed tokens, or the one for "
        "unsecured tokens.",
    )
    sasl_server_max_receive_size: int = int32(
        "sasl.server.max.receive.size",
        524_288,
        None,
        "Size in bytes of the largest request before a client is authenticated; more than 135168 "
        "bytes, which no mechanism needs, are never accepted.",
    )
    connections_max_reauth_ms: int = int64(
        "connections.max.reauth.ms",
        0,
        None,
        "Time in milliseconds after which a client must authenticate again; 0 requires this only "
        "when its credentials expire.",
    )
    connection_failed_authentication_delay_ms: int = int32(
        "connection.failed.authentication.delay.ms",
        100,
        at_least(0),
        "Time in milliseconds until a failed authentication is answered and the connection closed.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        None,
        "The keys that verify OAUTHBEARER tokens: a `file:` or `https:` address.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int64(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        at_least(1),
        "Time in milliseconds between two requests for these keys.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = int64(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        at_least(1),
        "Time in milliseconds until the next request after one that failed; it doubles each time.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = int64(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        at_least(1),
        "The longest of these times, and the shortest between two requests because of unknown "
        "keys.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = int32(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        at_least(0),
        "Seconds by which the clock of the issuer of a token may differ.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = texts(
        "sasl.oauthbearer.expected.audience",
        (),
        None,
        "Audiences, one of which a token must contain; without this setting a token with an "
        "audience is refused.",
    )
    sasl_oauthbearer_expected_issuer: str | None = string(
        "sasl.oauthbearer.expected.issuer", None, None, "The issuer that a token must have."
    )
    sasl_oauthbearer_scope_claim_name: str = string(
        "sasl.oauthbearer.scope.claim.name", "scope", None, "The claim with a token's scopes."
    )
    sasl_oauthbearer_sub_claim_name: str = string(
        "sasl.oauthbearer.sub.claim.name", "sub", None, "The claim that names the client."
    )
    sasl_login_callback_handler_class: str | None = class_name(
        "sasl.login.callback.handler.class",
        None,
        "How this broker gets the token for its connections to other brokers with OAUTHBEARER: "
        "Apache Kafka's class for tokens from a file or an endpoint, or the one for unsecured "
        "tokens. Without it the other settings decide.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = string(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        None,
        "Where this broker gets that token: a `file:` with a token, which is read again when "
        "needed, or the `https:` address of an endpoint that issues one for client credentials.",
    )
    sasl_oauthbearer_jwt_retriever_class: str = class_name(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "How this broker gets that token: Apache Kafka's class for client credentials, for files, "
        "or the one that chooses by the address.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = string(
        "sasl.oauthbearer.client.credentials.client.id",
        None,
        None,
        "The client id of this broker at the token endpoint.",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = password(
        "sasl.oauthbearer.client.credentials.client.secret",
        "The client secret of this broker at the token endpoint.",
    )
    sasl_oauthbearer_scope: str | None = string(
        "sasl.oauthbearer.scope", None, None, "The scope that this broker asks a token for."
    )
    sasl_login_connect_timeout_ms: int | None = int32(
        "sasl.login.connect.timeout.ms",
        None,
        None,
        "Time in milliseconds to connect to the token endpoint; 10 seconds if it is not set.",
    )
    sasl_login_read_timeout_ms: int | None = int32(
        "sasl.login.read.timeout.ms",
        None,
        None,
        "Time in milliseconds that the token endpoint may take to answer; 10 seconds if it is not "
        "set.",
    )
    sasl_login_retry_backoff_ms: int = int64(
        "sasl.login.retry.backoff.ms",
        100,
        None,
        "Time in milliseconds until the next attempt to get a token after one that failed; it "
        "doubles each time.",
    )
    sasl_login_retry_backoff_max_ms: int = int64(
        "sasl.login.retry.backoff.max.ms",
        10_000,
        None,
        "The longest of these times.",
    )
    sasl_login_refresh_window_factor: float = double(
        "sasl.login.refresh.window.factor",
        0.8,
        None,
        "The share of a token's lifetime after which this broker gets a new one; 0.5 to 1.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_window_jitter: float = double(
        "sasl.login.refresh.window.jitter",
        0.05,
        None,
        "The largest random share of a token's lifetime that is added to this; 0 to 0.25.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_min_period_seconds: int = int16(
        "sasl.login.refresh.min.period.seconds",
        60,
        None,
        "Shortest time in seconds between two tokens, unless this and the next setting together "
        "exceed the remaining lifetime of a token.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_buffer_seconds: int = int16(
        "sasl.login.refresh.buffer.seconds",
        300,
        None,
        "Seconds before the expiry of a token in which this broker must already have a new one.",
        mode=PER_BROKER,
    )
    delegation_token_secret_key: str | None = password(
        "delegation.token.secret.key",
        "The secret for delegation tokens, the same on every broker; without it there are none.",
    )
    delegation_token_max_lifetime_ms: int = int64(
        "delegation.token.max.lifetime.ms",
        604_800_000,
        at_least(1),
        "Time in milliseconds after which a delegation token cannot be renewed any more.",
    )
    delegation_token_expiry_time_ms: int = int64(
        "delegation.token.expiry.time.ms",
        86_400_000,
        at_least(1),
        "Time in milliseconds for which a delegation token is valid unless it is renewed.",
    )
    delegation_token_expiry_check_interval_ms: int = int64(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        at_least(1),
        "Time in milliseconds between two checks for expired delegation tokens.",
    )
