"""Listeners, connections, and the limits of both."""

from __future__ import annotations

from millstream.config.definition import (
    CLUSTER_WIDE,
    Config,
    int32,
    int64,
    string,
    texts,
)
from millstream.config.validators import at_least, host_counts, not_empty, one_of
from millstream.config.value import MAX_INT


class NetworkSettings(Config):
    """Listeners, connections, requests and their limits."""

    listeners: tuple[str, ...] = texts(
        "listeners",
        ("PLAINTEXT://:9092",),
        not_empty,
        "Where the broker listens: `NAME://host:port`, separated by commas; port 0 lets the "
        "system choose, an empty host means every address. They do not change while the broker "
        "runs.",
    )
    advertised_listeners: tuple[str, ...] | None = texts(
        "advertised.listeners",
        None,
        not_empty,
        "The addresses at which clients connect; by default those of `listeners`.",
    )
    listener_security_protocol_map: str = string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        "The security protocol of each listener name.",
    )
    inter_broker_listener_name: str | None = string(
        "inter.broker.listener.name",
        None,
        None,
        "The listener that other brokers connect to.",
    )
    security_inter_broker_protocol: str = string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "The protocol between brokers where `inter.broker.listener.name` is not set.",
    )
    socket_send_buffer_bytes: int = int32(
        "socket.send.buffer.bytes",
        102_400,
        None,
        "Size in bytes of a connection's send buffer; −1 leaves it to the system.",
    )
    socket_receive_buffer_bytes: int = int32(
        "socket.receive.buffer.bytes",
        102_400,
        None,
        "Size in bytes of a connection's receive buffer; −1 leaves it to the system.",
    )
    socket_request_max_bytes: int = int32(
        "socket.request.max.bytes",
        104_857_600,
        at_least(1),
        "Size in bytes of the largest request; a larger one closes the connection.",
    )
    socket_listen_backlog_size: int = int32(
        "socket.listen.backlog.size",
        50,
        at_least(1),
        "Connections that may wait to be accepted.",
    )
    max_connections: int = int32(
        "max.connections",
        MAX_INT,
        at_least(0),
        "Connections that may be open at once.",
        mode=CLUSTER_WIDE,
    )
    max_connections_per_ip: int = int32(
        "max.connections.per.ip",
        MAX_INT,
        at_least(0),
        "Connections that one address may have open.",
        mode=CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: str = string(
        "max.connections.per.ip.overrides",
        "",
        host_counts,
        "Other limits for some addresses: `host:count`, separated by commas.",
        mode=CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = int32(
        "max.connection.creation.rate",
        MAX_INT,
        at_least(0),
        "New connections accepted per second.",
        mode=CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = int64(
        "connections.max.idle.ms",
        600_000,
        None,
        "Time in milliseconds after which an idle connection is closed.",
    )
    queued_max_request_bytes: int = int64(
        "queued.max.request.bytes",
        -1,
        None,
        "Bytes of unanswered requests above which no more requests are read; 0 and less set no "
        "limit.",
    )
    fetch_max_bytes: int = int32(
        "fetch.max.bytes",
        57_671_680,
        at_least(1_024),
        "Largest response in bytes to one fetch, whatever the consumer asks for.",
    )
    max_incremental_fetch_session_cache_slots: int = int32(
        "max.incremental.fetch.session.cache.slots",
        1_000,
        at_least(0),
        "Number of fetch sessions that are kept.",
    )
    max_request_partition_size_limit: int = int32(
        "max.request.partition.size.limit",
        2_000,
        at_least(1),
        "Partitions that one page of DescribeTopicPartitions may hold.",
    )
    request_timeout_ms: int = int32(
        "request.timeout.ms",
        30_000,
        None,
        "Time in milliseconds that a request between brokers may take.",
    )
    socket_request_read_timeout_ms: int = int64(
        "socket.request.read.timeout.ms",
        30_000,
        at_least(1),
        "Time in milliseconds from the first byte of a request to its last; a slower client is "
        "disconnected.",
        kafka=False,
    )
    socket_unsent_max_bytes: int = int64(
        "socket.unsent.max.bytes",
        268_435_456,
        at_least(1),
        "Bytes of answers that may wait for a client that does not read them; beyond, it is "
        "disconnected.",
        kafka=False,
    )
