"""The file ``cleaner-offset-checkpoint`` of a log directory: the first dirty offset of each log.

Its text is that of the other checkpoints (``checkpoint``), and it is written as they are
(``LogDirectory.cleaner_checkpoint_plan``). A log that does not stand in it, or where it cannot be
right, is taken for dirty from its start. Kafka: ``LogCleanerManager``.
"""

from __future__ import annotations

import logging

from millstream.model.errors import StorageError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.storage.checkpoint import (
    CLEANER_OFFSETS,
    CorruptCheckpointError,
    parse_offsets,
)
from millstream.storage.files import FileSystem, read_file

_log = logging.getLogger(__name__)


def read_cleaner_checkpoint(
    file_system: FileSystem, log_directory: str
) -> dict[TopicPartition, Offset]:
    """Return the first dirty offsets; nothing where the file is missing or damaged.

    Raises StorageError.
    """
    path = f"{log_directory}/{CLEANER_OFFSETS}"
    try:
        return parse_offsets(read_file(file_system, path).decode("utf-8", "replace"))
    except FileNotFoundError:
        return {}
    except CorruptCheckpointError as error:
        _log.warning("%s is not used: %s", path, error)
        return {}
    except OSError as error:
        raise StorageError(log_directory, str(error)) from error
