"""The identity of the broker, and where its metadata is stored."""

from __future__ import annotations

from millstream.config.definition import Config, boolean, int32, string, texts
from millstream.config.validators import at_least, each_of


class IdentitySettings(Config):
    """Identity, roles and metadata of the broker."""

    node_id: int | None = int32(
        "node.id",
        None,
        at_least(0),
        "The broker's id, unique in the cluster; when neither this nor `broker.id` is set it is 1.",
    )
    broker_id: int = int32(
        "broker.id",
        -1,
        None,
        "Older name of `node.id`.",
    )
    process_roles: tuple[str, ...] | None = texts(
        "process.roles",
        None,
        each_of("broker", "controller"),
        "Roles of a KRaft node; Millstream has no controller of its own, so the list must "
        "contain `broker`.",
    )
    broker_rack: str | None = string(
        "broker.rack",
        None,
        None,
        "Rack or zone of the broker; clients use it to fetch nearby.",
    )
    controller_listener_names: tuple[str, ...] | None = texts(
        "controller.listener.names",
        None,
        None,
        "Names of the listeners that a KRaft controller would open; listeners of these names "
        "are not opened.",
    )
    delete_topic_enable: bool = boolean(
        "delete.topic.enable",
        True,
        "Whether topics may be deleted.",
    )
    auto_create_topics_enable: bool = boolean(
        "auto.create.topics.enable",
        True,
        "Whether a metadata request for an unknown topic creates the topic, if the client allows "
        "it.",
    )
    auto_create_topics_max_count: int = int32(
        "auto.create.topics.max.count",
        100_000,
        at_least(0),
        "Number of topics above which metadata requests create no more.",
        kafka=False,
    )
    num_partitions: int = int32(
        "num.partitions",
        1,
        at_least(1),
        "Partitions of a topic that is created without a number of partitions.",
    )
    default_replication_factor: int = int32(
        "default.replication.factor",
        1,
        None,
        "Replicas of a topic that is created without a replication factor.",
    )
    zookeeper_connect: str | None = string(
        "zookeeper.connect",
        None,
        None,
        "The ZooKeeper ensemble of a cluster as host:port,host:port/chroot. Without it the broker "
        "is on its own and keeps its metadata in its first log directory.",
        internal=True,
    )
    metadata_keeper_socket: str | None = string(
        "metadata.keeper.socket",
        None,
        None,
        "The socket of the keeper that has the metadata of a cluster on one machine, in place of "
        "`zookeeper.connect`. `millstream serve --brokers` sets it.",
        internal=True,
        kafka=False,
    )
    zookeeper_session_timeout_ms: int = int32(
        "zookeeper.session.timeout.ms",
        9_000,
        at_least(1),
        "Time in milliseconds without a heartbeat after which ZooKeeper, or a keeper, considers a "
        "broker dead. If a broker's process exits, that is noticed at once.",
        internal=True,
    )
    zookeeper_connection_timeout_ms: int | None = int32(
        "zookeeper.connection.timeout.ms",
        None,
        None,
        "Time in milliseconds that a start waits for ZooKeeper, or a keeper; by default twice the "
        "session time-out.",
        internal=True,
    )
