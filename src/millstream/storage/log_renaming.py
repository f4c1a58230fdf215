"""Gives the directory of a log another name in its log directory, by what is to become of it."""

from __future__ import annotations

from millstream.model.errors import StorageError
from millstream.storage.directory import DirectoryKind, PartitionDirectory, directory_name
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log


def rename_log(environment: LogEnvironment, log: Log, kind: DirectoryKind) -> PartitionDirectory:
    """Rename the directory of a log, which may be used on; the name is on disk after the next flush
    of its log directory. Return what it is now. Raises StorageError, and has changed nothing then.
    """
    name = directory_name(log.topic_partition, kind, environment.new_id().hex())
    renamed = PartitionDirectory(log.log_directory, name, log.topic_partition)
    try:
        environment.file_system.rename(log.directory, renamed.path)
    except OSError as error:
        raise StorageError(log.log_directory, str(error)) from error
    log.moved(log.log_directory, name)
    return renamed
