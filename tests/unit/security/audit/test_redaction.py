"""What is shown of requests, and what never is."""

from __future__ import annotations

import json

from millstream.model.acl import AclOperation, AclResource, PatternType, Permission
from millstream.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from millstream.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from millstream.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from millstream.security.audit.redaction import MAX_ITEMS, MAX_TEXT, request_data


def test_passwords_salts_and_hmacs_are_never_shown() -> None:
    users = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="bob", mechanism=1)],
        upsertions=[
            ScramCredentialUpsertion(
                name="ann",
                mechanism=2,
                iterations=4096,
                salt=b"the-salt-of-ann",
                salted_password=b"the-salted-password",
            )
        ],
    )
    shown = request_data(users, None)
    assert shown == {
        "deletions": [{"name": "bob", "mechanism": "SCRAM-SHA-256"}],
        "upsertions": [{"name": "ann", "mechanism": "SCRAM-SHA-512", "iterations": 4096}],
    }
    renewed = request_data(RenewDelegationTokenRequest(hmac=b"the-hmac", renew_period_ms=5), None)
    assert renewed == {"renewPeriodMs": 5}


def test_settings_are_shown_but_passwords_and_unknown_ones() -> None:
    def config(name: str, value: str) -> AlterableConfig:
        return AlterableConfig(name=name, config_operation=0, value=value)

    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=4,
                resource_name="1",
                configs=[
                    config("retention.ms", "5"),
                    config("ssl.keystore.password", "secret-1"),
                    config("listener.name.x.plain.sasl.jaas.config", "secret-2"),
                    config("sasl.jaas.config", "secret-3"),
                    config("nobody.knows.it", "secret-4"),
                ],
            )
        ],
        validate_only=False,
    )
    shown = request_data(request, None)
    assert isinstance(shown, dict)
    assert "secret-" not in json.dumps(shown)
    (resource,) = shown["resources"]  # type: ignore[misc]
    assert resource["resourceType"] == "BROKER"  # type: ignore[index,call-overload]
    assert [each["value"] for each in resource["configs"]] == ["5", *["[hidden]"] * 4]  # type: ignore[index,union-attr,call-overload]
    assert {each["configOperation"] for each in resource["configs"]} == {"SET"}  # type: ignore[index,union-attr,call-overload]


def test_rules_are_shown_with_words_for_numbers() -> None:
    creation = AclCreation(
        resource_type=AclResource.TOPIC,
        resource_name="hits",
        resource_pattern_type=PatternType.PREFIXED,
        principal="User:ann",
        host="*",
        operation=AclOperation.READ,
        permission_type=Permission.ALLOW,
    )
    assert request_data(CreateAclsRequest(creations=[creation]), None) == {
        "creations": [
            {
                "resourceType": "TOPIC",
                "resourceName": "hits",
                "resourcePatternType": "PREFIXED",
                "principal": "User:ann",
                "host": "*",
                "operation": "READ",
                "permissionType": "ALLOW",
            }
        ]
    }


def test_of_several_resources_the_one_that_is_meant_is_shown() -> None:
    topics = [
        CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in ("a", "b")
    ]
    shown = request_data(CreateTopicsRequest(topics=topics, timeout_ms=5), "b")
    assert isinstance(shown, dict)
    assert [each["name"] for each in shown["topics"]] == ["b"]  # type: ignore[index,union-attr,call-overload]
    deleted = DeleteTopicsRequest(topics=[], topic_names=["a", "b"], timeout_ms=5)
    assert request_data(deleted, "a") == {"topicNames": ["a"], "timeoutMs": 5}
    by_another_name = request_data(deleted, "c")
    assert by_another_name == {"topicNames": ["a", "b"], "timeoutMs": 5}


def test_of_a_long_request_some_is_shown_and_how_much_more_there_is() -> None:
    names = [f"{number}" * 200 for number in range(MAX_ITEMS + 7)]
    shown = request_data(DeleteTopicsRequest(topics=[], topic_names=names, timeout_ms=5), None)
    assert isinstance(shown, dict)
    assert len(shown["topicNames"]) == MAX_ITEMS  # type: ignore[arg-type]
    assert shown["topicNamesOmitted"] == 7
    assert max(len(each) for each in shown["topicNames"]) <= MAX_TEXT + 3  # type: ignore[union-attr,arg-type]


def test_a_number_that_json_does_not_have_is_a_text() -> None:
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key="producer_byte_rate", value=float("inf"), remove=False)],
    )
    shown = request_data(AlterClientQuotasRequest(entries=[entry], validate_only=False), None)
    assert json.loads(json.dumps(shown, allow_nan=False)) == {
        "entries": [
            {
                "entity": [{"entityType": "user"}],
                "ops": [{"key": "producer_byte_rate", "value": "inf", "remove": False}],
            }
        ],
        "validateOnly": False,
    }
