"""What a request hears when work at a partition's log has failed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.model.errors import (
    CorruptIndexError,
    CorruptLogError,
    ErrorCode,
    KafkaError,
    StorageError,
)
from millstream.storage.log import Log

_log = logging.getLogger(__name__)


def refusal_of(
    error: Exception,
    log: Log,
    damaged: ErrorCode,
    on_storage_error: Callable[[StorageError], None],
) -> KafkaError:
    """Return the answer to a request when work at ``log`` has raised ``error``; ``damaged`` is the
    answer where the log is.

    A disk that fails is told to ``on_storage_error``, which takes its log directory offline.
    Whatever else it is stays here: the other partitions of the request do not notice.
    """
    match error:
        case KafkaError():
            return error
        case StorageError():
            failure = error
        case OSError():
            failure = log.local.failure(error)
            failure.__cause__ = error  # says whether the disk is only full
        case CorruptLogError() | CorruptIndexError():
            _log.error("%s is damaged: %s", log.topic_partition, error)
            return KafkaError(damaged, str(error))
        case _:
            _log.error("a request failed at %s", log.topic_partition, exc_info=error)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    on_storage_error(failure)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
