"""Requests the producer id from a broker (InitProducerId, KIP-98)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.client.core.network import Network
from millstream.client.core.producer.sequences import ProducerIdentity
from millstream.client.core.settings import ProducerSettings
from millstream.client.core.waiting import backoff_ms, sleep
from millstream.client.errors import BrokerError, ClientError, ClosedError, is_retriable
from millstream.model.deferred import spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_NO_TRANSACTION_TIMEOUT_MS: Final = 0x7FFFFFFF


class ProducerIdSource:
    """One request at a time, retried for as long as the id is needed."""

    def __init__(self, network: Network, settings: ProducerSettings) -> None:
        self._network = network
        self._settings = settings
        self._is_asking = False

    def ask(
        self,
        identity: ProducerIdentity,
        *,
        is_wanted: Callable[[], bool],
        on_refused: Callable[[Exception], None],
        on_end: Callable[[], None],
    ) -> None:
        """Fill ``identity``; ``on_refused`` is called with a permanent error."""

        async def run() -> None:
            attempts = 0
            while not identity.is_known:
                try:
                    response = await self._request()
                except ClosedError:
                    break
                except (ClientError, KafkaError) as error:
                    if not is_retriable(error):
                        on_refused(error)
                    await sleep(self._network.loop, self._pause_ms(attempts))
                    attempts += 1
                    if not is_wanted():
                        break
                else:
                    identity.producer_id = response.producer_id
                    identity.epoch = response.producer_epoch
            self._is_asking = False
            on_end()

        if not self._is_asking:
            self._is_asking = True
            spawn(run())

    async def _request(self) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
        )
        response = await self._network.send_any(request)
        assert isinstance(response, InitProducerIdResponse)
        if response.error_code:
            raise BrokerError(ErrorCode.of(response.error_code), "a producer id")
        return response

    def _pause_ms(self, attempts: int) -> float:
        settings = self._settings
        return backoff_ms(
            self._network.loop, attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms
        )
