"""The identity of the log directories: cluster id, node id, directory id (KIP-858)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection

from millstream.model.errors import ConfigError
from millstream.storage.log_directory import LogDirectory
from millstream.storage.meta_properties import MetaProperties


def check_identity(directories: Collection[LogDirectory], node_id: int) -> None:
    """Raise ConfigError where a directory belongs to another node, or two to different clusters."""
    cluster_id = cluster_id_of(directories)
    for directory in directories:
        meta = directory.meta
        if meta is None:
            continue
        if meta.node_id not in (None, node_id):
            raise ConfigError(f"{directory.path} belongs to node {meta.node_id}, not to {node_id}")
        if meta.cluster_id not in (None, cluster_id):
            raise ConfigError(
                f"{directory.path} belongs to cluster {meta.cluster_id}, "
                f"another one to {cluster_id}"
            )


def cluster_id_of(directories: Collection[LogDirectory]) -> str | None:
    """Return the first cluster id that stands in a ``meta.properties``, if one does."""
    for directory in directories:
        if directory.meta is not None and directory.meta.cluster_id is not None:
            return directory.meta.cluster_id
    return None


def complete_identity(
    directory: LogDirectory, cluster_id: str, node_id: int, new_id: Callable[[], bytes]
) -> None:
    """Write ``meta.properties`` where it is missing or of an older version. Raises StorageError."""
    meta = directory.meta
    if meta is None or meta.cluster_id is None or meta.directory_id is None:
        directory_id = meta.directory_id if meta is not None else None
        text = base64.urlsafe_b64encode(new_id()).decode().rstrip("=")
        directory.write_meta(MetaProperties(cluster_id, node_id, directory_id or text))
