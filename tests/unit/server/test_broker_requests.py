"""Requests of a broker's own parts: to itself to the handler, to others over the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker
from tests.unit.runtime.coordinator_site import HandClock

from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.server.broker_requests import BrokerRequests

HERE = BrokerId(1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    broker = AdminBroker(tmp_path)
    yield broker
    broker.close()


def ids(**fields: object) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, **fields)


def test_a_request_to_oneself_reaches_its_handler_in_a_later_pass_of_the_loop(
    broker: AdminBroker,
) -> None:
    answer = broker.requests.send(HERE, ids(), 1000)
    assert not answer.done
    broker.clock.settle()
    response = answer.result()
    assert isinstance(response, InitProducerIdResponse)
    assert response.error_code == 0
    assert response.producer_id >= 0


def test_what_a_handler_refuses_is_the_answer_and_not_an_error(broker: AdminBroker) -> None:
    answer = broker.requests.send(HERE, ids(producer_id=7, producer_epoch=-1), 1000)
    broker.clock.settle()
    response = answer.result()
    assert isinstance(response, InitProducerIdResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST.code


def test_an_answer_that_does_not_come_in_time_is_an_unknown_outcome(broker: AdminBroker) -> None:
    broker.offload.held = True
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="late", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
        ],
        timeout_ms=60_000,
    )
    answer = broker.requests.send(HERE, request, 1000)
    broker.clock.settle()
    assert not answer.done
    broker.clock.advance(1000)
    with pytest.raises(KafkaError) as raised:
        answer.result()
    assert raised.value.error is ErrorCode.REQUEST_TIMED_OUT
    broker.offload.held = False
    broker.offload.release()
    broker.clock.settle()


def test_another_broker_cannot_be_asked_outside_a_cluster(broker: AdminBroker) -> None:
    answer = broker.requests.send(BrokerId(2), ids(), 1000)
    with pytest.raises(KafkaError) as raised:
        answer.result()
    assert raised.value.error is ErrorCode.BROKER_NOT_AVAILABLE


def test_nothing_is_sent_before_the_broker_serves() -> None:
    answer = BrokerRequests(HERE, HandClock()).send(HERE, ids(), 1000)
    with pytest.raises(KafkaError) as raised:
        answer.result()
    assert raised.value.error is ErrorCode.BROKER_NOT_AVAILABLE
