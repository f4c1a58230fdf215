"""The payloads of the nodes of the metadata store: Kafka's JSON, to and from values.

What is read may come from elsewhere (a shared ZooKeeper, a damaged file), so a malformed payload
raises :class:`PayloadError` and never leads to a wrong decision.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, cast

from millstream.model.broker import NO_BROKER_EPOCH, BrokerId, BrokerNode, Endpoint
from millstream.model.errors import MillstreamError
from millstream.model.features import SUPPORTED, LevelRange
from millstream.model.leadership import IsrMember, LeaderRecoveryState, PartitionState
from millstream.model.topic import TopicId, topic_id_from_text, topic_id_to_text

PROTOCOL_BY_DEFAULT: Final = "PLAINTEXT"


class PayloadError(MillstreamError):
    """A node of the metadata store has a malformed payload."""


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(path: str, data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise PayloadError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise PayloadError(f"{path}: not a JSON object")
    return value


def cluster_id(identifier: str) -> bytes:
    """Return the payload of `/cluster/id`."""
    return _dump({"version": "1", "id": identifier})


def read_cluster_id(path: str, data: bytes) -> str:
    """Return the cluster id."""
    identifier = _load(path, data).get("id")
    if not isinstance(identifier, str):
        raise PayloadError(f"{path}: no cluster id")
    return identifier


def controller(broker_id: BrokerId, now_ms: int) -> bytes:
    """Return the payload of `/controller`."""
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def read_controller(path: str, data: bytes) -> BrokerId:
    """Return the controller's broker id."""
    broker_id = _load(path, data).get("brokerid")
    if not isinstance(broker_id, int):
        raise PayloadError(f"{path}: no broker id")
    return BrokerId(broker_id)


def read_controller_epoch(path: str, data: bytes) -> int:
    """Return the epoch that `/controller_epoch` holds, a bare number."""
    try:
        return int(data)
    except ValueError as error:
        raise PayloadError(f"{path}: no controller epoch: {error}") from error


TRUSTED_SINCE_EVER: Final = NO_BROKER_EPOCH
"""The continuity of a broker that never lost data: below every broker epoch."""


class Registration(NamedTuple):
    """The fields of a broker's registration besides its addresses.

    ``directory_id`` identifies its log directories, so that a broker recognises its own older
    registration. ``continuity`` is the broker epoch since which it has lost no data; None if that
    begins with this registration. ``features`` are the levels that it supports; empty for a broker
    from before there were any.
    """

    directory_id: str = ""
    continuity: int | None = TRUSTED_SINCE_EVER
    features: Mapping[str, LevelRange] = SUPPORTED


def broker(node: BrokerNode, now_ms: int, registration: Registration | None = None) -> bytes:
    """Return the payload of `/brokers/ids/<id>`."""
    first = node.endpoints[0]
    value: dict[str, object] = {
        "version": 5,
        "host": first.host,
        "port": first.port,
        "endpoints": [f"{each.listener}://{_host(each)}:{each.port}" for each in node.endpoints],
        "listener_security_protocol_map": {
            each.listener: PROTOCOL_BY_DEFAULT for each in node.endpoints
        },
        "rack": node.rack,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "features": {
            name: {"min_version": levels.lowest, "max_version": levels.highest}
            for name, levels in (
                SUPPORTED if registration is None else registration.features
            ).items()
        },
    }
    if registration is not None:
        value["directory_id"] = registration.directory_id
        value["continuity"] = registration.continuity
    return _dump(value)


def _host(endpoint: Endpoint) -> str:
    return f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host


def read_broker(
    path: str, data: bytes, *, broker_id: BrokerId, epoch: int
) -> tuple[BrokerNode, Registration]:
    """Return a registered broker; ``epoch`` is the creation id of its node."""
    value = _load(path, data)
    try:
        endpoints = tuple(_read_endpoint(each) for each in cast("list[str]", value["endpoints"]))
        rack = cast("str | None", value.get("rack"))
        if not endpoints:
            raise ValueError("no endpoint")
        continuity = cast("int | None", value.get("continuity", TRUSTED_SINCE_EVER))
        directory_id = str(value.get("directory_id", ""))
        features = {
            name: LevelRange(int(levels["min_version"]), int(levels["max_version"]))
            for name, levels in cast(
                "dict[str, dict[str, int]]", value.get("features") or {}
            ).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PayloadError(f"{path}: no broker: {error!r}") from error
    node = BrokerNode(broker_id, endpoints, rack, epoch)
    return node, Registration(directory_id, continuity, features)


def _read_endpoint(text: str) -> Endpoint:
    listener, _, place = text.partition("://")
    host, _, port = place.rpartition(":")
    return Endpoint(listener, host.strip("[]"), int(port))


_FEATURES_ENABLED: Final = 1
_FIRST_VERSION_OF_ONE_LEVEL: Final = 2


def features(levels: Mapping[str, int]) -> bytes:
    """Return the payload of `/feature` (Kafka: ``FeatureZNode``)."""
    return _dump(
        {
            "version": _FIRST_VERSION_OF_ONE_LEVEL,
            "status": _FEATURES_ENABLED,
            "features": dict(levels),
        }
    )


def read_features(path: str, data: bytes) -> dict[str, int]:
    """Return the finalized level of each feature; none where they are disabled."""
    value = _load(path, data)
    try:
        version = int(cast("int", value["version"]))
        if value["status"] != _FEATURES_ENABLED:
            return {}
        found = cast("dict[str, object]", value["features"])
        if version >= _FIRST_VERSION_OF_ONE_LEVEL:
            return {name: int(cast("int", level)) for name, level in found.items()}
        # Version 1 has a range of levels for each.
        ranges = cast("dict[str, dict[str, int]]", found)
        return {name: int(levels["max_version_level"]) for name, levels in ranges.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PayloadError(f"{path}: no features: {error!r}") from error


class Assignment(NamedTuple):
    """The payload of `/brokers/topics/<topic>`: replicas by partition, and ongoing
    reassignments.
    """

    topic_id: TopicId
    replicas: list[tuple[BrokerId, ...]]
    adding: Mapping[int, tuple[BrokerId, ...]] = {}
    removing: Mapping[int, tuple[BrokerId, ...]] = {}


def topic(topic_id: TopicId, partitions: Sequence[PartitionState]) -> bytes:
    """Return the payload of `/brokers/topics/<topic>`: the replicas of each partition by index."""
    return _dump(
        {
            "version": 3,
            "topic_id": topic_id_to_text(topic_id),
            "partitions": {str(i): list(each.replicas) for i, each in enumerate(partitions)},
            "adding_replicas": {
                str(i): list(each.adding_replicas)
                for i, each in enumerate(partitions)
                if each.adding_replicas
            },
            "removing_replicas": {
                str(i): list(each.removing_replicas)
                for i, each in enumerate(partitions)
                if each.removing_replicas
            },
        }
    )


def read_topic(path: str, data: bytes) -> Assignment:
    """Return a topic's id and its replicas."""
    value = _load(path, data)
    try:
        topic_id = topic_id_from_text(cast(str, value["topic_id"]))
        by_index = cast("dict[str, list[BrokerId]]", value["partitions"])
        replicas = [tuple(by_index[str(index)]) for index in range(len(by_index))]
        if not replicas:
            raise ValueError("no partitions")
        adding = _read_replicas(value.get("adding_replicas"))
        removing = _read_replicas(value.get("removing_replicas"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PayloadError(f"{path}: no topic: {error!r}") from error
    return Assignment(topic_id, replicas, adding, removing)


def _read_replicas(value: object) -> dict[int, tuple[BrokerId, ...]]:
    by_index = cast("dict[str, list[BrokerId]]", value or {})
    return {int(index): tuple(replicas) for index, replicas in by_index.items()}


def state(partition: PartitionState) -> bytes:
    """Return the payload of a partition's state; its replicas are in the topic's node.

    Fields that Kafka's payload does not have are left out if they have their default.
    """
    value: dict[str, object] = {
        "controller_epoch": partition.controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
    }
    if partition.leader_recovery_state is not LeaderRecoveryState.RECOVERED:
        value["leader_recovery_state"] = partition.leader_recovery_state.value
    if partition.elr:
        value["elr"] = list(partition.elr)
    if partition.last_known_elr:
        value["last_known_elr"] = list(partition.last_known_elr)
    if partition.isr_broker_epochs:
        value["isr_broker_epochs"] = {
            str(each.broker_id): each.broker_epoch for each in partition.isr_broker_epochs
        }
    return _dump(value)


def read_state(
    path: str,
    data: bytes,
    *,
    replicas: tuple[BrokerId, ...],
    version: int,
    adding: tuple[BrokerId, ...] = (),
    removing: tuple[BrokerId, ...] = (),
) -> PartitionState:
    """Return a partition's state; ``version`` is that of the node."""
    value = _load(path, data)
    try:
        leader = cast(BrokerId, value["leader"])
        leader_epoch = cast(int, value["leader_epoch"])
        isr = tuple(cast("list[BrokerId]", value["isr"]))
        controller_epoch = cast(int, value["controller_epoch"])
        elr = tuple(cast("list[BrokerId]", value.get("elr", ())))
        last_known_elr = tuple(cast("list[BrokerId]", value.get("last_known_elr", ())))
        numbers = (leader, leader_epoch, controller_epoch, *isr, *elr, *last_known_elr)
        if not all(isinstance(n, int) for n in numbers):
            raise TypeError("a number is not a number")
        recovery = LeaderRecoveryState(value.get("leader_recovery_state", 0))
        epochs = cast("dict[str, int]", value.get("isr_broker_epochs", {}))
        members = tuple(IsrMember(BrokerId(int(each)), epochs[each]) for each in epochs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PayloadError(f"{path}: no partition state: {error!r}") from error
    if isr == replicas:
        isr = replicas  # one tuple instead of two, for each of ten thousand partitions
    return PartitionState(
        replicas,
        leader,
        leader_epoch,
        isr,
        version,
        controller_epoch,
        adding_replicas=adding,
        removing_replicas=removing,
        elr=elr,
        last_known_elr=last_known_elr,
        leader_recovery_state=recovery,
        isr_broker_epochs=members,
    )


def config(texts: Mapping[str, str]) -> bytes:
    """Return the payload of a node under `/config`."""
    return _dump({"version": 1, "config": dict(texts)})


def read_config(path: str, data: bytes) -> dict[str, str]:
    """Return the settings that a node under `/config` holds."""
    texts = _load(path, data).get("config")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise PayloadError(f"{path}: no settings")
    return texts


def producer_id_block(*, broker_id: BrokerId, first: int, last: int) -> bytes:
    """Return the payload of `/latest_producer_id_block`; both ends belong to the block."""
    return _dump(
        {"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)}
    )


def read_producer_id_block(path: str, data: bytes) -> int:
    """Return the last producer id of the block given out last."""
    try:
        return int(cast(str, _load(path, data)["block_end"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PayloadError(f"{path}: no block of producer ids: {error!r}") from error


def deleted_topic(name: str, brokers: Collection[BrokerId] = ()) -> bytes:
    """Return the payload of a topic's deletion record, with the brokers that host replicas."""
    value: dict[str, object] = {"version": 1, "topic": name}
    if brokers:
        value["brokers"] = sorted(brokers)
    return _dump(value)


def read_deleted_topic(path: str, data: bytes) -> tuple[str, frozenset[BrokerId]]:
    """Return the name of a deleted topic and the brokers that host replicas of it."""
    value = _load(path, data)
    name, brokers = value.get("topic"), value.get("brokers", [])
    if not isinstance(name, str) or not isinstance(brokers, list):
        raise PayloadError(f"{path}: no deleted topic")
    return name, frozenset(brokers)
