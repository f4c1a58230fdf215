"""The paths of nodes in the metadata store, which are those that Kafka used in ZooKeeper.

::

    /cluster/id                             the cluster's id
    /controller                             the controller's broker id (ephemeral)
    /controller_epoch                       how many controllers there have been
    /brokers/ids/<id>                       a live broker and where it listens (ephemeral)
    /brokers/topics/<topic>                 topic id and replicas of each partition
    /brokers/topics/<topic>/partitions/<n>/state    leader, leader epoch, in-sync replicas
    /config/topics/<topic>                  settings of a topic; absent when it has none
    /config/brokers/<id or default>         dynamic settings of one broker, or of all
    /config/groups/<group>                  settings of a group; absent when it has none
    /admin/delete_topics/<topic id>         a deleted topic whose directories may still be there
    /feature                                the finalized level of each feature
    /latest_producer_id_block               the block of producer ids given out last
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
GROUP_CONFIGS: Final = "/config/groups"
ALL_BROKERS: Final = "<default>"
DELETED_TOPICS: Final = "/admin/delete_topics"
FEATURES: Final = "/feature"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

PERSISTENT: Final = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    "/admin",
    DELETED_TOPICS,
)
"""Empty nodes that exist from the first start on, parents first."""


def broker(broker_id: int) -> str:
    """Return the path of a live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Return the path above a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    """Return the path above a partition's state."""
    return f"{TOPICS}/{name}/partitions/{index}"


def state(name: str, index: int) -> str:
    """Return the path of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{index}/state"


def topic_config(name: str) -> str:
    """Return the path of a topic's settings."""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(broker: str) -> str:
    """Return the path of the settings of a broker, or of all (``""`` or ALL_BROKERS)."""
    return f"{BROKER_CONFIGS}/{broker or ALL_BROKERS}"


def group_config(group_id: str) -> str:
    """Return the path of a group's settings. A group's id may have any characters."""
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='')}"


def group_of(path: str) -> str:
    """Return the group whose settings have a path."""
    return unquote(path.removeprefix(GROUP_CONFIGS + "/"))


def deleted_topic(topic_id: str) -> str:
    """Return the path of a topic's deletion record."""
    return f"{DELETED_TOPICS}/{topic_id}"
