"""Connections that authenticate, and rules of access as they are on the wire."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import Final

from tests.interop.differential.authorization.settings import ADMIN
from tests.interop.differential.connection import TIMEOUT_S, RawConnection
from tests.unit.handlers.access_calls import Need

from millstream.model.acl import PatternType, Permission
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from millstream.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millstream.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest

ANY: Final = 1
TAKEN_OVER_S: Final = 20.0


class Client:
    """One authenticated connection; the password is the name."""

    def __init__(self, bootstrap: str, user: str, timeout_s: float = TIMEOUT_S) -> None:
        self._connection = RawConnection(bootstrap, timeout_s)
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{user}\0{user}".encode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert answer.error_code == 0, answer.error_message

    def ask(self, request: Request, version: int) -> Response:
        """Send a request and return its answer."""
        correlation_id = self._connection.next_correlation_id()
        frame = encode_request(request, version, correlation_id, "differential").join()
        self._connection.send_bytes(frame)
        payload = self._connection.receive_frame()
        assert struct.unpack_from(">i", payload)[0] == correlation_id
        return decode_response(request.API_KEY, version, payload)[1]

    def close(self) -> None:
        self._connection.close()


class Rules:
    """Changes rules of access as a super user."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = Client(bootstrap, ADMIN)

    def close(self) -> None:
        self._admin.close()

    def set(self, principal: str, needs: Iterable[Need]) -> None:
        """Let these be all rules, and wait until the broker goes by them."""
        everything = DeleteAclsFilter(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        self._admin.ask(DeleteAclsRequest(filters=[everything]), 3)
        wanted = list(needs)
        if wanted:
            answer = self._admin.ask(
                CreateAclsRequest(creations=[_creation(principal, each) for each in wanted]), 3
            )
            assert isinstance(answer, CreateAclsResponse)
            assert not any(each.error_code for each in answer.results), answer
        self._await(len({(each.operation, each.resource, each.name) for each in wanted}))

    def _await(self, count: int) -> None:
        deadline = time.monotonic() + TAKEN_OVER_S
        while time.monotonic() < deadline:
            answer = self._admin.ask(
                DescribeAclsRequest(
                    resource_type_filter=ANY,
                    resource_name_filter=None,
                    pattern_type_filter=ANY,
                    principal_filter=None,
                    host_filter=None,
                    operation=ANY,
                    permission_type=ANY,
                ),
                3,
            )
            assert isinstance(answer, DescribeAclsResponse)
            if sum(len(each.acls) for each in answer.resources) == count:
                return
            time.sleep(0.01)
        raise TimeoutError("the rules were not taken over")


def _creation(principal: str, need: Need) -> AclCreation:
    return AclCreation(
        resource_type=need.resource,
        resource_name=need.name,
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=need.operation,
        permission_type=Permission.ALLOW,
    )
