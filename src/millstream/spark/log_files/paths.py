"""The option ``path``: a log directory, or the directory of one partition."""

from __future__ import annotations

import os
from pathlib import Path

from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.storage.directory import LOG, DirectoryKind, parse_directory_name


def read_path(text: str) -> tuple[str, TopicPartition | None]:
    """Return the log directory, and the partition when it is a partition's; raises ConfigError."""
    path = Path(os.path.abspath(text.removeprefix("file://")))
    if not path.is_dir():
        raise ConfigError(f"option path: there is no directory {path}")
    parsed = parse_directory_name(path.name)
    if parsed is None or parsed[1] is not DirectoryKind.CURRENT or not any(path.glob(f"*{LOG}")):
        return str(path), None
    return str(path.parent), parsed[0]
