"""The sans-IO half of a connection: versions, order of answers, broken peers."""

from __future__ import annotations

import pytest

from millstream.client.conversation import Conversation
from millstream.client.errors import UnsupportedVersionError
from millstream.model.errors import ProtocolError
from millstream.protocol.codec import decode_request, decode_request_header, encode_response
from millstream.protocol.message import Response
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from millstream.protocol.messages.fetch import FetchRequest
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.outgoing import Outgoing


def frame(outgoing: Outgoing) -> memoryview:
    return memoryview(outgoing.join())[4:]


def answer(version: int, correlation_id: int, message: Response) -> memoryview:
    return frame(encode_response(message.API_KEY, version, correlation_id, message))


def served(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    keys = {"fetch": 1, "metadata": 3, "list_groups": 16, "api_versions": 18}
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=keys[name], min_version=first, max_version=last)
            for name, (first, last) in ranges.items()
        ],
    )


def negotiated(**ranges: tuple[int, int]) -> Conversation:
    conversation = Conversation("tester")
    conversation.request_versions()
    assert conversation.take_versions(answer(4, 0, served(**ranges))) is None
    return conversation


def test_the_first_request_names_the_client() -> None:
    request_frame = frame(Conversation("tester").request_versions())
    header = decode_request_header(request_frame)
    request = decode_request(header, request_frame)
    assert header.client_id == "tester"
    assert isinstance(request, ApiVersionsRequest)
    assert request.client_software_name == "millstream"


def test_an_old_broker_is_asked_again_in_its_own_version() -> None:
    conversation = Conversation("tester")
    conversation.request_versions()
    refusal = served(api_versions=(0, 2), metadata=(0, 5))
    refusal.error_code = 35
    # A broker that does not know the version answers in version 0 (KIP-511).
    assert conversation.take_versions(answer(0, 0, refusal)) == 2
    second = decode_request_header(frame(conversation.request_versions(2)))
    assert (second.version, second.correlation_id) == (2, 1)
    assert conversation.take_versions(answer(2, 1, served(metadata=(0, 5)))) is None
    assert conversation.version_for(MetadataRequest) == 5


def test_the_newest_common_version_is_chosen() -> None:
    conversation = negotiated(metadata=(0, 99), fetch=(4, 11))
    assert conversation.version_for(MetadataRequest) == 13
    assert conversation.version_for(FetchRequest) == 11
    assert conversation.version_for(FetchRequest, 7) == 7
    assert conversation.serves(FetchRequest)


def test_without_a_common_version_the_error_names_the_api() -> None:
    conversation = negotiated(metadata=(20, 30), fetch=(0, 3))
    with pytest.raises(UnsupportedVersionError, match=r"0 to 3 of Fetch"):
        conversation.version_for(FetchRequest)
    with pytest.raises(UnsupportedVersionError, match="Metadata"):
        conversation.version_for(MetadataRequest)
    with pytest.raises(UnsupportedVersionError, match="does not serve ListGroups"):
        conversation.version_for(ListGroupsRequest)
    assert not conversation.serves(ListGroupsRequest)


def test_answers_are_taken_in_the_order_of_the_requests() -> None:
    conversation = negotiated(list_groups=(0, 5))
    for _ in range(2):
        conversation.ask(ListGroupsRequest(), 5)
    assert conversation.outstanding == 2
    for correlation_id in (1, 2):
        taken = conversation.take(
            answer(5, correlation_id, ListGroupsResponse(error_code=0, groups=[]))
        )
        assert isinstance(taken, ListGroupsResponse)
    assert conversation.outstanding == 0


def test_an_answer_to_something_else_is_an_error() -> None:
    conversation = negotiated(list_groups=(0, 5))
    response = ListGroupsResponse(error_code=0, groups=[])
    with pytest.raises(ProtocolError, match="never sent"):
        conversation.take(answer(5, 1, response))
    conversation.ask(ListGroupsRequest(), 5)
    with pytest.raises(ProtocolError, match="instead of"):
        conversation.take(answer(5, 7, response))


def test_a_request_without_an_answer_is_not_waited_for() -> None:
    conversation = negotiated(list_groups=(0, 5))
    conversation.ask(ListGroupsRequest(), 5, answered=False)
    assert conversation.outstanding == 0
