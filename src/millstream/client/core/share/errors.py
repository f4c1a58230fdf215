"""The errors of a share consumer; those of records and of concurrent use are the consumer's."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.client.errors import BrokerError, ClientError
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition


class NotAcquiredError(ClientError):
    """The record is not acquired by this consumer, or was acknowledged and sent already."""

    advice = "Acknowledge records of the last poll only, before the next poll, commit or close."


class UnacknowledgedError(ClientError):
    """``poll`` was called before every record of the last poll was acknowledged."""

    advice = "With share.acknowledgement.mode=explicit acknowledge each record before polling."


class NotSubscribedError(ClientError):
    """``poll`` was called without a subscription."""

    advice = "Subscribe to topics first."


class AcknowledgeFailedError(BrokerError):
    """Acknowledgements were not taken: the records will be delivered again, unless an earlier
    attempt whose answer was lost has been taken.

    ``errors`` has the error of each partition that failed; those of others were taken.
    """

    def __init__(self, errors: Mapping[TopicPartition, Exception]) -> None:
        self.errors = dict(errors)
        first = next(iter(self.errors.values()))
        code = first.error if isinstance(first, KafkaError) else ErrorCode.NETWORK_EXCEPTION
        words = "; ".join(f"{each}: {error}" for each, error in self.errors.items())
        super().__init__(code, f"acknowledgements were not taken: {words}")
