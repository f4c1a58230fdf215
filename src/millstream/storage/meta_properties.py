"""The file ``meta.properties`` of a log directory: whose data it holds.

::

    version=1
    cluster.id=3RkpNn9RQbuJTuMFhRxB1A
    node.id=1
    directory.id=DRzTUXGmTkKzBp0lu5FTDQ

Version 0, which Kafka under ZooKeeper wrote, has ``broker.id`` and perhaps no ``cluster.id``.
Kafka: ``MetaProperties``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConfigError
from millstream.storage.files import FileSystem, read_file, replace_file

FILE_NAME: Final = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Owner and identity of a log directory; ids are 22 characters of base64url."""

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None = None


def parse_meta_properties(text: str, path: str) -> MetaProperties:
    """Read the file's text. Raises ConfigError, naming ``path``."""
    fields = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            fields[key.strip()] = value.strip()
    version = fields.get("version", "0")
    if version not in ("0", "1"):
        raise ConfigError(f"{path}: version {version} is not known")
    node_id = fields.get("node.id", fields.get("broker.id"))
    if node_id is not None and not node_id.lstrip("-").isdecimal():
        raise ConfigError(f"{path}: {node_id!r} is not a node id")
    return MetaProperties(
        fields.get("cluster.id"),
        None if node_id is None else int(node_id),
        fields.get("directory.id"),
    )


def format_meta_properties(properties: MetaProperties) -> str:
    """Return the file's text, version 1."""
    lines = ["version=1", f"cluster.id={properties.cluster_id}", f"node.id={properties.node_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={properties.directory_id}")
    return "\n".join(lines) + "\n"


def read_meta_properties(file_system: FileSystem, directory: str) -> MetaProperties | None:
    """Return the ``meta.properties`` of a log directory; None if there is none.

    Raises ConfigError; OSError.
    """
    path = f"{directory}/{FILE_NAME}"
    try:
        data = read_file(file_system, path)
    except FileNotFoundError:
        return None
    return parse_meta_properties(data.decode("utf-8", "replace"), path)


def write_meta_properties(
    file_system: FileSystem, directory: str, properties: MetaProperties
) -> None:
    """Write the file, flushed. Raises OSError."""
    replace_file(
        file_system,
        f"{directory}/{FILE_NAME}",
        format_meta_properties(properties).encode("utf-8"),
    )
