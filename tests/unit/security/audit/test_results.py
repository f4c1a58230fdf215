"""What became of a request, by its response."""

from __future__ import annotations

from millstream.model.errors import ErrorCode
from millstream.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from millstream.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from millstream.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from millstream.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from millstream.security.audit.results import MAX_ERRORS, result_of

EXISTS, REFUSED = ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.POLICY_VIOLATION


def created(**codes: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=code.code, error_message="says a secret")
            for name, code in codes.items()
        ]
    )


def test_the_result_of_one_resource_is_its_own() -> None:
    response = created(a=EXISTS, b=ErrorCode.NONE)
    assert result_of(response, "a") == {"status": "FAILURE", "error": "TOPIC_ALREADY_EXISTS"}
    assert result_of(response, "b") == {"status": "SUCCESS"}


def test_the_result_of_all_names_what_failed() -> None:
    assert result_of(created(a=EXISTS, b=ErrorCode.NONE), None) == {
        "status": "PARTIAL",
        "errors": [{"item": "a", "error": "TOPIC_ALREADY_EXISTS"}],
    }
    assert result_of(created(a=EXISTS, b=REFUSED), None)["status"] == "FAILURE"
    assert result_of(created(a=ErrorCode.NONE), None) == {"status": "SUCCESS"}
    assert result_of(created(), None) == {"status": "SUCCESS"}


def test_parts_without_a_name_are_told_by_their_place() -> None:
    results = [AclCreationResult(error_code=code, error_message=None) for code in (0, REFUSED.code)]
    assert result_of(CreateAclsResponse(results=results), None) == {
        "status": "PARTIAL",
        "errors": [{"item": "#1", "error": "POLICY_VIOLATION"}],
    }


def test_partitions_count_for_their_topic() -> None:
    partitions = [
        PartitionResult(partition_id=index, error_code=code, error_message=None)
        for index, code in enumerate((0, ErrorCode.ELECTION_NOT_NEEDED.code))
    ]
    response = ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic="t", partition_result=partitions)]
    )
    assert result_of(response, None) == {
        "status": "PARTIAL",
        "errors": [{"item": "t#1", "error": "ELECTION_NOT_NEEDED"}],
    }


def test_an_error_of_the_whole_request_counts_for_each_resource() -> None:
    response = RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED.code, expiry_timestamp_ms=0
    )
    assert result_of(response, "t") == {"status": "FAILURE", "error": "DELEGATION_TOKEN_EXPIRED"}


def test_of_many_errors_some_are_named() -> None:
    found = result_of(created(**{f"t{n}": EXISTS for n in range(MAX_ERRORS + 3)}), None)
    assert len(found["errors"]) == MAX_ERRORS  # type: ignore[arg-type]
    assert found["errorsOmitted"] == 3
