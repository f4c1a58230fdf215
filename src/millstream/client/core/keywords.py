"""The keywords of the clients as types, so that an editor completes them and a type checker reads
their values.

One TypedDict for each kind of settings (`settings`, `consumer/settings`, `share/settings`), with
the same names. A keyword may be left out. Names ending in ``_ms`` are milliseconds. What each one
does stands at the settings; ``tests/unit/client/test_keywords.py`` holds the two to each other.
Numbers as text, which a mapping with dots may have, are read from keywords too, and a type checker
refuses them there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from millstream.client.core.consumer.assignors.assignor import Assignor
from millstream.client.core.consumer.reset import ResetStrategy
from millstream.client.core.statistics import Statistics
from millstream.records.compression import Codec

if TYPE_CHECKING:
    from ssl import SSLContext

    from opentelemetry.trace import TracerProvider


class SecurityKeywords(TypedDict, total=False):
    """Keywords of TLS and SASL (:class:`SecuritySettings`)."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_context: SSLContext | None
    ssl_truststore_location: str | None
    ssl_truststore_type: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_location: str | None
    ssl_keystore_type: str | None
    ssl_keystore_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    ssl_enabled_protocols: str | Sequence[str]
    ssl_protocol: str | None
    ssl_cipher_suites: str | Sequence[str]
    ssl_endpoint_identification_algorithm: str
    sasl_mechanism: str | None
    sasl_jaas_config: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_oauth_token: Callable[..., Any] | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: str | Sequence[str]
    sasl_login_callback_handler_class: str | None
    sasl_login_connect_timeout_ms: float
    sasl_login_read_timeout_ms: float
    sasl_login_refresh_window_factor: float
    https_ca_location: str | None
    sasl_mechanisms: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    ssl_ca_location: str | None
    ssl_cafile: str | None
    ssl_ca_pem: str | None
    ssl_certificate_location: str | None
    ssl_certfile: str | None
    ssl_certificate_pem: str | None
    ssl_keyfile: str | None
    ssl_key_pem: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None


class ClientKeywords(SecurityKeywords, total=False):
    """Keywords of every client."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_rack: str
    request_timeout_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    reconnect_backoff_ms: float
    reconnect_backoff_max_ms: float
    connections_max_idle_ms: float
    socket_connection_setup_timeout_ms: float
    socket_connection_setup_timeout_max_ms: float
    send_buffer_bytes: int
    receive_buffer_bytes: int
    metadata_max_age_ms: float
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: float


class ObservedKeywords(ClientKeywords, total=False):
    """Keywords of what producers and consumers tell of themselves."""

    statistics_interval_ms: float
    statistics_callback: Callable[[Statistics], Any] | None
    tracing: bool | TracerProvider | None


class ProducerKeywords(ObservedKeywords, total=False):
    """Keywords of a producer."""

    acks: Literal[0, 1, -1, "0", "1", "-1", "all"]
    batch_size: int
    linger_ms: float
    buffer_memory: int
    max_block_ms: float
    max_request_size: int
    max_in_flight_requests_per_connection: int
    retries: int
    delivery_timeout_ms: float
    enable_idempotence: bool
    compression_type: Codec | Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner: str | Callable[..., int] | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: float
    key_serializer: Callable[..., Any] | None
    value_serializer: Callable[..., Any] | None
    metadata_max_idle_ms: float
    allow_auto_create_topics: bool
    transactional_id: str | None
    transaction_timeout_ms: int


class AdminKeywords(ClientKeywords, total=False):
    """Keywords of an admin client."""

    default_api_timeout_ms: float
    retries: int


class ConsumerKeywords(ObservedKeywords, total=False):
    """Keywords of a consumer."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Assignor | Sequence[str | Assignor]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    auto_offset_reset: str | ResetStrategy
    isolation_level: Literal["read_uncommitted", "read_committed"]
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    fetch_buffer_bytes: int
    check_crcs: bool
    default_api_timeout_ms: float
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    internal_leave_group_on_close: bool
    key_deserializer: Callable[..., Any] | None
    value_deserializer: Callable[..., Any] | None


class ShareConsumerKeywords(ObservedKeywords, total=False):
    """Keywords of a share consumer."""

    group_id: str | None
    share_acknowledgement_mode: Literal["implicit", "explicit"]
    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool
    default_api_timeout_ms: float
    allow_auto_create_topics: bool
    key_deserializer: Callable[..., Any] | None
    value_deserializer: Callable[..., Any] | None
