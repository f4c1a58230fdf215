"""Differences from Kafka that are meant. Each names the decision record that explains it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final


@dataclass(frozen=True)
class Allowed:
    """Lines that ``pattern`` finds in scenarios whose name ``scenario`` matches are no fault.

    ``relaxed`` ones are faults of a broker with `log.record.validation=strict`.
    """

    scenario: str
    pattern: str
    decision: str
    relaxed: bool = False

    def covers(self, scenario: str, line: str, *, is_strict: bool) -> bool:
        """Whether ``line``, one difference of ``scenario``, is meant."""
        if self.relaxed and is_strict:
            return False
        return fnmatch(scenario, self.scenario) and re.search(self.pattern, line) is not None


LOOKED_AT: Final = "0069-records-are-looked-at.md"
REASONS: Final = "0004-refusals-say-why.md"
CREATED: Final = "0005-a-created-topic-is-answered-at-once.md"
SETTINGS: Final = "0006-settings-that-differ.md"
TEXT: Final = "0013-bytes-that-are-no-text-close-the-connection.md"
ERRORS: Final = "0007-no-internal-error-for-a-wrong-request.md"
UNREAD: Final = "0070-nothing-that-protects-is-ignored.md"

SHARE_STATE: Final = "0081-the-state-of-share-partitions.md"
SHARE_FETCH: Final = "0082-share-partitions-on-the-leader.md"
BESIDE: Final = "0084-share-groups-and-features-beside-kafka.md"
EXPRESSIONS: Final = "0079-a-group-is-planned-on-a-copy.md"

DEAD_LETTERS: Final = "0127-dead-letters-of-share-groups.md"
CONNECTIONS: Final = "0085-tls-between-memory-buffers.md"
SASL: Final = "0087-who-a-client-is-sasl.md"
ENTITIES: Final = "0089-entities-and-quotas.md"

OWN_SETTINGS: Final = (
    r"\.\[name=(flush\.policy|log\.flush\.policy|record\.validation|log\.record\.validation"
    r"|socket\.unsent\.max\.bytes"
    r"|socket\.request\.read\.timeout\.ms|auto\.create\.topics\.max\.count"
    r"|connections\.authentication\.timeout\.ms|max\.connections\.unauthenticated(\.per\.ip)?"
    r"|quota\.(consumer|producer)\.default|zookeeper\.auth\.digest|metadata\.keeper\.socket"
    r"|metrics\.(port|host|partitions\.enable|groups\.enable)|log\.(format|level)|slow\.request\.log\.ms"
    r"|audit\.log\.[a-z.]+)\]"
    r": Kafka has no such field"
)
QUORUM_SETTINGS: Final = (
    r"\.\[name=(process\.roles|controller\.listener\.names|listener\.security\.protocol\.map)\]\."
)
REFUSED_AS_A_WHOLE: Final = (
    r"(error_code|acquisition_lock_timeout_ms): Kafka (-1|0), here (0|42|30000)"
    r"|\.(topics|responses)\.\[topic_id=[^]]+\]: Kafka has no such field"
    r'|error_message: Kafka ".*", here null'
)
"""Kafka answers with an internal error instead."""
DECOY: Final = (
    r'error_code: Kafka 58, here 0|auth_bytes: Kafka "", here "r='
    r'|Kafka end of .*, here SaslAuthenticate|Kafka "connection closed", here "connection kept"'
)
"""A SCRAM exchange that Kafka refuses at its first message goes on here."""
NO_ANSWER: Final = (
    r'Kafka "connection closed", here \{"error_code": (33|58)'
    r'|Kafka "connection kept", here "connection closed"'
)
"""The connection that is kept is the next one: `ending` opens it where the first was closed."""
LEFT_ALONE: Final = r"(error_code|base_offset|high_watermark|last_stable_offset|records): Kafka"

ALLOWED: tuple[Allowed, ...] = (
    Allowed("*", r'error_message: Kafka null, here "', REASONS),
    Allowed("Produce/codec_bit_on_garbage/*", LEFT_ALONE, LOOKED_AT, relaxed=True),
    Allowed("Produce/flawed_compressed_batch/record_*", LEFT_ALONE, LOOKED_AT, relaxed=True),
    Allowed("Produce/flawed_compressed_batch/count_*", LEFT_ALONE, LOOKED_AT, relaxed=True),
    Allowed("Produce/batch_of_one_kind/gzip_bit_*", LEFT_ALONE, LOOKED_AT, relaxed=True),
    Allowed("Metadata/unknown_topic_created/*", r"^step 1 .*\.topics\.", CREATED),
    Allowed("Metadata/known_and_unknown_topics/v1", r"\.\[name=\$absent\]\.", CREATED),
    Allowed("Metadata/created_topic_collides*", r"^step 1 .*error_code: Kafka 3, here 17", CREATED),
    Allowed("*", OWN_SETTINGS, SETTINGS),
    Allowed("DescribeConfigs/all_of_the_broker", QUORUM_SETTINGS, SETTINGS),
    Allowed("*/size_of_a_thread_pool/cleaner_none_*", 'error_message: Kafka "/ by zero"', REASONS),
    Allowed("CreatePartitions/far_too_many", "error_code: Kafka -1, here 44", ERRORS),
    Allowed("FindCoordinator/key_type/*", r"(error_code|node_id|host|port): Kafka", ERRORS),
    Allowed("ShareGroupHeartbeat/wrong_epochs", r"assignment: Kafka null", SHARE_STATE),
    Allowed(
        "WriteShareGroupState/batches_that_cannot_be/*",
        "error_code: Kafka 0, here 42|state_batches: Kafka has 1 elements, here 0",
        SHARE_STATE,
    ),
    *(
        Allowed(each, REFUSED_AS_A_WHOLE, BESIDE)
        for each in (
            "ShareFetch/unknown_acquire_mode/*",
            "ShareFetch/unknown_topic/*",
            "ShareFetch/zero_topic_id/*",
            "ShareFetch/a_topic_that_is_deleted/*",
            "ShareFetch/a_partition_twice/*",
            "ShareFetch/acknowledges_elsewhere/*",
            "AlterShareGroupOffsets/negative_partition",
            "DescribeShareGroupOffsets/negative_partition/*",
            "DescribeShareGroupOffsets/empty_group_id/*",
            "DescribeShareGroupOffsets/without_partitions/*",
        )
    ),
    Allowed(
        "ShareFetch/max_bytes/negative/*", r'Kafka \{.*"error_code": -1, .*here missing', BESIDE
    ),
    Allowed("ShareFetch/max_bytes/hundred/*", "records: Kafka has 2 elements, here 1", BESIDE),
    Allowed("ShareFetch/batch_size/zero/*", "acquired_records", BESIDE),
    Allowed("ShareFetch/batch_size/minus/*", "acquired_records", BESIDE),
    Allowed("ShareFetch/*by_duration*", r"error_code: Kafka 78, here 0|lag: ", SHARE_FETCH),
    Allowed("ShareAcknowledge/after_the_state_was_deleted/*", "Kafka -1, here 3", BESIDE),
    Allowed(
        "ShareAcknowledge/after_the_state_was_begun_anew/*",
        r"current_leader\.|node_endpoints: ",
        BESIDE,
    ),
    Allowed(
        "AlterShareGroupOffsets/consumption_goes_on_there/connected",
        r"^step [234] (ShareFetch|ShareAcknowledge|DescribeShareGroupOffsets) ",
        BESIDE,
    ),
    Allowed("AlterShareGroupOffsets/only_what_is_unknown", "^step 6 ShareGroupDescribe ", BESIDE),
    Allowed("UpdateFeatures/allowed_downgrade_of_version_0", "", BESIDE),
    Allowed("UpdateFeatures/a_feature_twice/*", "", BESIDE),
    Allowed("PushTelemetry/subscribed/compressed", "error_code: Kafka 87, here 0", UNREAD),
    Allowed("ConsumerGroupHeartbeat/expression/huge_repeat/*", "Kafka 0, here 128", EXPRESSIONS),
    Allowed("Frames/*/AddPartitionsToTxn_v[45]", 'no answer, and none.*here "answered"', BESIDE),
    Allowed("Frames/text_that_is_no_utf_8/*", 'here "connection closed"', TEXT),
    Allowed("Frames/list_length_minus_two/Metadata_v9", 'here "connection closed"', TEXT),
)

# What ``security`` compares.
ALLOWED += (
    # Nobody is told whether a user, or a delegation token, exists.
    *(
        Allowed(each, DECOY, SASL)
        for each in (
            "SaslScram/unknown_user/*",
            "SaslScram/user_of_the_other_mechanism/*",
            "SaslScram/user_that_was_deleted/*",
            "SaslScram/first_message/tokenauth",
            "SaslOrder/pipelined/SCRAM-SHA-256",
            "Reauthentication/a_session_is_not_made_longer_by_a_failure",
            "DelegationTokens/used_in_a_wrong_way/without_extension",
            "DelegationTokens/used_in_a_wrong_way/false",
            "DelegationTokens/used_after_its_end",
        )
    ),
    # RFC 5802 and RFC 7628 as they are written.
    Allowed("SaslScram/header/y", DECOY, SASL),
    Allowed("SaslScram/unusual_name/umlaut", DECOY, SASL),
    Allowed("SaslScram/final_message/channel_*", "Kafka", SASL),
    Allowed("SaslScram/final_message/extension", "Kafka", SASL),
    Allowed("SaslScram/first_message/mandatory_extension", "Kafka", SASL),
    Allowed("SaslOauthbearer/message/channel_y", "Kafka", SASL),
    # A wrong message is answered where Kafka closes the connection without a word.
    Allowed("SaslScram/final_message/proof_*", NO_ANSWER, ERRORS),
    Allowed("SaslOauthbearer/message/basic", NO_ANSWER, ERRORS),
    Allowed("Reauthentication/unknown_mechanism", NO_ANSWER, ERRORS),
    Allowed("DescribeUserScramCredentials/not_allowed/all", 'Kafka "no answer"', ERRORS),
    Allowed("AlterUserScramCredentials/salted_password/empty", "Kafka -1, here 93", ERRORS),
    Allowed("DelegationTokens/owner*/null_type", r"Kafka -1, here (65|67)|principal_", ERRORS),
    # What is no part of an authentication is not decoded.
    Allowed("SaslOrder/another_request_after_the_handshake/*", 'here "connection closed"', SASL),
    Allowed("Reauthentication/another_request_during_it/ListGroups", "Kafka", SASL),
    Allowed("SaslOrder/large_*/524000", "Kafka", CONNECTIONS),
    # What could be used by nobody is not stored, and what is over is not shown.
    Allowed("AlterUserScramCredentials/sal*", "Kafka (0, here 9[13]|has 1 elements)", SASL),
    Allowed("DelegationTokens/owner_by_a_super_user/empty_type", "Kafka", SASL),
    Allowed("DelegationTokens/*", r"tokens: Kafka has 1 elements, here 0", SASL),
    Allowed("CreateAcls/*_1*", "error_code: Kafka -1, here 42", ENTITIES),
    Allowed("CreateAcls/pattern/pattern_2/*", "error_code: Kafka -1, here 42", ENTITIES),
    Allowed("AlterClientQuotas/address/ip_localhost", "Kafka (0, here 42|has 1 el)", ENTITIES),
    Allowed("AlterClientQuotas/value_of_*/nan", "Kafka (0, here 42|has 1 el)", ENTITIES),
    Allowed("AlterClientQuotas/the_same_entity_*", "entries: Kafka has 1 elements", ENTITIES),
    Allowed("Authorization/topics_created_on_use/*", r"\.topics\.\[name=\$one\]", CREATED),
    Allowed("DescribeConfigs/*", r"\[name=super\.users\]", SETTINGS),
    Allowed("*", r"\[name=errors\.deadletterqueue\.", DEAD_LETTERS),
    Allowed(
        "CreateTopics/setting/errors_deadletter",
        "error_code: Kafka 40, here 0|Unknown topic config name",
        DEAD_LETTERS,
    ),
    Allowed("IncrementalAlterConfigs/setting_of_the_broker/*", "Kafka 0, here 42", UNREAD),
)


def unexplained(scenario: str, lines: list[str], *, is_strict: bool = False) -> list[str]:
    """Return the differences that no entry covers; ``is_strict`` is how the broker is set up."""
    return [
        line
        for line in lines
        if not any(entry.covers(scenario, line, is_strict=is_strict) for entry in ALLOWED)
    ]
