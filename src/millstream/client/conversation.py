"""The two directions of one connection, without a socket: requests to bytes, frames to answers.

Brokers answer the requests of a connection in order, so outstanding requests are a queue, and a
response with another correlation id than the oldest one's is a protocol error.

Versions are agreed first: :meth:`Conversation.request_versions` is the first request, and
:meth:`Conversation.take_versions` takes the broker's ranges from its response, or tells the caller
to request again in an older version.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import millstream
from millstream.client.errors import UnsupportedVersionError
from millstream.model.errors import ErrorCode, ProtocolError
from millstream.protocol.api import APIS, ApiKey
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.outgoing import Outgoing

_ERROR_CODE: Final = slice(4, 6)
"""The position of the error code in an ApiVersions response: after the correlation id, in every
version.
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """An outstanding response."""

    correlation_id: int
    api_key: int
    version: int


class Conversation:
    """The outstanding requests of a connection and the peer's API versions."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self._next_correlation_id = 0
        self._expected: deque[Expected] = deque()
        self._ranges: dict[int, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        """The levels of the cluster's finalized features, as the broker knows them (KIP-584)."""
        self.features_epoch = -1

    @property
    def outstanding(self) -> int:
        """Requests without a response yet."""
        return len(self._expected)

    @property
    def answers(self) -> int:
        """Requests that have a response, or expect none."""
        return self._next_correlation_id - len(self._expected)

    def version_for(self, request: type[Request], highest: int | None = None) -> int:
        """Return the newest version that both sides support, at most ``highest``.

        UnsupportedVersionError when there is none.
        """
        api = APIS[request.API_KEY]
        first, last = self._ranges.get(request.API_KEY, (0, -1))
        ours = api.last_version if highest is None else min(highest, api.last_version)
        version = min(ours, last)
        if version < max(first, api.first_version):
            served = f"serves versions {first} to {last} of" if last >= 0 else "does not serve"
            raise UnsupportedVersionError(
                f"the broker {served} {api.name}; this client needs {api.first_version} to {ours}"
            )
        return version

    def serves(self, request: type[Request]) -> bool:
        """True if the broker advertises the API, in any version."""
        return self.serves_key(request.API_KEY)

    def serves_key(self, key: int) -> bool:
        """True when the broker advertises the API with this key."""
        return key in self._ranges

    def ask(self, request: Request, version: int, *, answered: bool = True) -> Outgoing:
        """Return the frame to send; ``answered`` is False for Produce with acks=0."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        outgoing = encode_request(request, version, correlation_id, self.client_id)
        if answered:
            self._expected.append(Expected(correlation_id, request.API_KEY, version))
        return outgoing

    def take(self, frame: memoryview) -> Response:
        """Read the next answer; ProtocolError when it answers something else.

        Records in the answer are views of ``frame``.
        """
        if not self._expected:
            raise ProtocolError("the broker answered a request that was never sent")
        expected = self._expected.popleft()
        correlation_id, response = decode_response(expected.api_key, expected.version, frame)
        if correlation_id != expected.correlation_id:
            raise ProtocolError(
                f"the broker answered request {correlation_id} instead of {expected.correlation_id}"
            )
        return response

    def request_versions(self, version: int = APIS[ApiKey.API_VERSIONS].last_version) -> Outgoing:
        """Return the request that opens a connection."""
        request = ApiVersionsRequest(
            client_software_name="millstream", client_software_version=millstream.__version__
        )
        return self.ask(request, version)

    def take_versions(self, frame: memoryview) -> int | None:
        """Store the broker's API versions; return the version to request again in, None when done.

        A broker that does not support the requested version answers in version 0 (KIP-511).
        """
        expected = self._expected[0]
        error = int.from_bytes(frame[_ERROR_CODE], "big", signed=True)
        if error == ErrorCode.UNSUPPORTED_VERSION.code and expected.version > 0:
            self._expected[0] = Expected(expected.correlation_id, expected.api_key, 0)
        response = self.take(frame)
        assert isinstance(response, ApiVersionsResponse)
        self._ranges = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }
        self.features_epoch = response.finalized_features_epoch
        self.finalized_features = {
            each.name: each.max_version_level for each in response.finalized_features
        }
        if response.error_code == ErrorCode.NONE.code:
            return None
        if error != ErrorCode.UNSUPPORTED_VERSION.code or expected.version == 0:
            raise ProtocolError(f"the broker refused ApiVersions with code {response.error_code}")
        _, newest = self._ranges.get(ApiKey.API_VERSIONS, (0, 0))
        return min(newest, expected.version - 1)
