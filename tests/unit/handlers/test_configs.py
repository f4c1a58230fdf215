"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.handlers import describe_configs as handler
from millstream.handlers.inter_broker import FIND_CONTROLLER_MS
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages import alter_configs as old
from millstream.protocol.messages import incremental_alter_configs as new
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from millstream.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID = ErrorCode.INVALID_REQUEST.code
BAD_CONFIG = ErrorCode.INVALID_CONFIG.code


def describe(
    broker: AdminBroker,
    kind: int,
    name: str,
    *keys: str,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = broker.call(request, version, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def value(broker: AdminBroker, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = describe(broker, kind, name, key).configs
    return config.value, config.config_source


def change(
    broker: AdminBroker,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [
        new.AlterableConfig(name=key, config_operation=operation, value=text)
        for key, operation, text in changes
    ]
    resource = new.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = new.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = broker.call(request, version, new.IncrementalAlterConfigsResponse).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


def replace(
    broker: AdminBroker,
    kind: int,
    name: str,
    *pairs: tuple[str, str | None],
    version: int = 2,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [old.AlterableConfig(name=key, value=text) for key, text in pairs]
    resource = old.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = old.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = broker.call(request, version, old.AlterConfigsResponse).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


# --- DescribeConfigs -----------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_settings(broker: AdminBroker, version: int) -> None:
    broker.create("t", retention_ms="5")
    result = describe(broker, TOPIC, "t", version=version)
    assert (result.error_code, result.error_message) == (0, "")
    told = {config.name: config for config in result.configs}
    assert len(told) == 36  # 33 of Kafka 4.3, one of 4.4, flush.policy and record.validation
    own = told["retention.ms"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("5", 1, False, False)
    assert own.synonyms == []
    if version >= 3:
        assert (own.config_type, own.documentation) == (5, None)


def test_synonyms_and_documentation_are_told_when_asked_for(broker: AdminBroker) -> None:
    broker.create("t", max_message_bytes="5")
    result = describe(broker, TOPIC, "t", "max.message.bytes", synonyms=True, documentation=True)
    (config,) = result.configs
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        ("max.message.bytes", "5", 1),
        ("message.max.bytes", "1048588", 5),
    ]
    assert config.documentation is not None
    assert "batch" in config.documentation


def test_topics_with_the_same_settings_cost_one(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools ask for thousands at once, and the loop does nothing else meanwhile."""
    wanted = {**{f"plain-{number}": None for number in range(9)}, "a": "7", "b": "7", "c": "8"}
    for name, retention in wanted.items():
        broker.create(name, **({} if retention is None else {"retention_ms": retention}))
    looks = []
    describe_topic = handler.describe_topic

    def counted(*arguments: Any) -> Any:
        looks.append(arguments)
        return describe_topic(*arguments)

    monkeypatch.setattr(handler, "describe_topic", counted)
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=keys)
        for name in wanted
        for keys in (None, ["retention.ms"])
    ]
    request = DescribeConfigsRequest(resources=resources)
    results = broker.call(request, 4, DescribeConfigsResponse).results
    assert len(looks) == 3 * 2
    told = {result.resource_name: result.configs for result in results if len(result.configs) == 1}
    assert {name: one.value for name, (one,) in told.items()} == {
        name: retention or "604800000" for name, retention in wanted.items()
    }
    assert sum(len(result.configs) > 1 for result in results) == len(wanted)


def test_chosen_keys(broker: AdminBroker) -> None:
    broker.create("t")
    result = describe(broker, TOPIC, "t", "retention.ms", "no.such", "retention.ms", "")
    assert [config.name for config in result.configs] == ["retention.ms"]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION.code),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION.code),
        (BROKER, "2", INVALID),
        (BROKER, "one", INVALID),
        (BROKER, " 1 ", INVALID),
        (LOGGER, "", INVALID),
        (LOGGER, "2", INVALID),
        (GROUP, "", INVALID),
        (METRICS, "", INVALID),
        (99, "x", INVALID),
        (0, "x", INVALID),
    ],
)
def test_resources_without_settings(broker: AdminBroker, kind: int, name: str, code: int) -> None:
    result = describe(broker, kind, name)
    assert (result.error_code, result.configs) == (code, [])


def test_an_unknown_type_refuses_all(broker: AdminBroker) -> None:
    broker.create("t")
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name="t", configuration_keys=None)
        for kind in (TOPIC, 99)
    ]
    request = DescribeConfigsRequest(resources=resources)
    results = broker.call(request, 4, DescribeConfigsResponse).results
    assert [(r.error_code, r.configs) for r in results] == [(INVALID, [])] * 2


@pytest.mark.parametrize("name", ["1", "01"])
def test_this_broker(broker: AdminBroker, name: str) -> None:
    told = {config.name: config for config in describe(broker, BROKER, name).configs}
    assert (told["num.partitions"].value, told["num.partitions"].config_source) == ("4", 4)
    assert told["num.partitions"].read_only
    assert not told["message.max.bytes"].read_only
    assert told["ssl.key.password"].is_sensitive
    assert told["num.io.threads"].value == "8"


# --- changes -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2))
def test_a_change_keeps_the_other_settings(broker: AdminBroker, version: int) -> None:
    broker.create("t", segment_bytes="2000000")
    changed = change(broker, TOPIC, "t", ("retention.ms", SET, "5"), version=version)
    assert changed == (0, None)
    assert value(broker, TOPIC, "t", "retention.ms") == ("5", 1)
    assert value(broker, TOPIC, "t", "segment.bytes") == ("2000000", 1)
    assert broker.partitions.get("t", 0).log.config.retention_ms == 5
    change(broker, TOPIC, "t", ("retention.ms", DELETE, None), version=version)
    assert value(broker, TOPIC, "t", "retention.ms") == ("604800000", 5)


@pytest.mark.parametrize("version", range(3))
def test_a_replacement_resets_the_other_settings(broker: AdminBroker, version: int) -> None:
    broker.create("t", segment_bytes="2000000")
    assert replace(broker, TOPIC, "t", ("retention.ms", "5"), version=version) == (0, None)
    assert value(broker, TOPIC, "t", "retention.ms") == ("5", 1)
    assert value(broker, TOPIC, "t", "segment.bytes") == ("1073741824", 5)
    replace(broker, TOPIC, "t", version=version)
    assert value(broker, TOPIC, "t", "retention.ms") == ("604800000", 5)


def test_lists_grow_and_shrink(broker: AdminBroker) -> None:
    broker.create("t")
    for operation, text, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact,delete", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (APPEND, "delete", "delete"),
    ):
        assert change(broker, TOPIC, "t", ("cleanup.policy", operation, text)) == (0, None)
        assert value(broker, TOPIC, "t", "cleanup.policy") == (expected, 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("no.such", SET, "1")], BAD_CONFIG),
        ([("no.such", DELETE, None)], 0),
        ([("no.such", APPEND, "1")], BAD_CONFIG),
        ([("retention.ms", SET, None)], INVALID),
        ([("cleanup.policy", APPEND, None)], INVALID),
        ([("retention.ms", SET, "x")], BAD_CONFIG),
        ([("retention.ms", APPEND, "1")], BAD_CONFIG),
        ([("cleanup.policy", APPEND, "shred")], BAD_CONFIG),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], INVALID),
        ([("retention.ms", SET, "1"), ("segment.bytes", SET, "x")], BAD_CONFIG),
        ([("retention.ms", 4, "1")], ErrorCode.UNKNOWN_SERVER_ERROR.code),
        ([("retention.ms", -1, "1")], ErrorCode.UNKNOWN_SERVER_ERROR.code),
        ([("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")], BAD_CONFIG),
        ([], 0),
    ],
)
def test_changes_of_a_topic(
    broker: AdminBroker, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    broker.create("t", retention_ms="7")
    assert change(broker, TOPIC, "t", *changes)[0] == code
    assert value(broker, TOPIC, "t", "retention.ms") == ("7", 1)


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ([("no.such", "1")], BAD_CONFIG),
        ([("retention.ms", None)], INVALID),
        ([("retention.ms", "x")], BAD_CONFIG),
        ([("retention.ms", "1"), ("retention.ms", "2")], INVALID),
    ],
)
def test_replacements_that_cannot_be(
    broker: AdminBroker, pairs: list[tuple[str, str | None]], code: int
) -> None:
    broker.create("t", retention_ms="7")
    assert replace(broker, TOPIC, "t", *pairs)[0] == code
    assert value(broker, TOPIC, "t", "retention.ms") == ("7", 1)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code),
        (TOPIC, "", INVALID),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION.code),
        (BROKER, "2", INVALID),
        (BROKER, "one", INVALID),
        (GROUP, "", INVALID),
        (GROUP, "g", ErrorCode.INVALID_CONFIG.code),
        (1, "x", INVALID),
        (127, "x", INVALID),
    ],
)
def test_resources_that_do_not_change(broker: AdminBroker, kind: int, name: str, code: int) -> None:
    assert change(broker, kind, name, ("retention.ms", SET, "1"))[0] == code
    assert replace(broker, kind, name, ("retention.ms", "1"))[0] == code


def test_validating_changes_nothing(broker: AdminBroker) -> None:
    broker.create("t")
    assert change(broker, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == (0, None)
    assert replace(broker, TOPIC, "t", ("retention.ms", "1"), validate_only=True) == (0, None)
    assert change(broker, TOPIC, "t", ("x", SET, "1"), validate_only=True)[0] == BAD_CONFIG
    assert value(broker, TOPIC, "t", "retention.ms") == ("604800000", 5)


def test_a_resource_given_twice(broker: AdminBroker) -> None:
    broker.create("t")
    resource = new.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    request = new.IncrementalAlterConfigsRequest(
        resources=[resource, resource], validate_only=False
    )
    answers = broker.call(request, 1, new.IncrementalAlterConfigsResponse).responses
    assert [answer.error_code for answer in answers] == [INVALID, INVALID]


def test_a_broker_named_in_two_ways_is_given_twice(broker: AdminBroker) -> None:
    """Both changes would be made of what was there, and written to the same node."""
    resources = [
        new.AlterConfigsResource(
            resource_type=BROKER,
            resource_name=name,
            configs=[new.AlterableConfig(name=key, config_operation=SET, value="7")],
        )
        for name, key in (("1", "log.retention.ms"), ("01", "message.max.bytes"), ("", "x"))
    ]
    request = new.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    answers = broker.call(request, 1, new.IncrementalAlterConfigsResponse).responses
    assert [answer.error_code for answer in answers] == [INVALID, INVALID, 0]


def test_a_resource_given_twice_to_alter_configs_is_answered(broker: AdminBroker) -> None:
    """Apache Kafka 4.3 never answers this one."""
    broker.create("t")
    resource = old.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    request = old.AlterConfigsRequest(resources=[resource, resource], validate_only=False)
    answers = broker.call(request, 2, old.AlterConfigsResponse).responses
    assert {answer.error_code for answer in answers} == {INVALID}


def test_a_brokers_setting_reaches_its_topics(broker: AdminBroker) -> None:
    broker.create("t")
    assert change(broker, BROKER, "", ("message.max.bytes", SET, "77")) == (0, None)
    assert value(broker, BROKER, "1", "message.max.bytes") == ("77", 3)
    assert value(broker, BROKER, "", "message.max.bytes") == ("77", 3)
    assert value(broker, TOPIC, "t", "max.message.bytes") == ("77", 3)
    assert change(broker, BROKER, "01", ("message.max.bytes", SET, "88")) == (0, None)
    assert value(broker, BROKER, "1", "message.max.bytes") == ("88", 2)
    assert broker.partitions.get("t", 0).log.config.max_message_bytes == 88
    change(broker, BROKER, "1", ("message.max.bytes", DELETE, None))
    assert replace(broker, BROKER, "")[0] == BAD_CONFIG  # min.insync.replicas would go
    assert replace(broker, BROKER, "", ("min.insync.replicas", "1")) == (0, None)
    assert value(broker, TOPIC, "t", "max.message.bytes") == ("1048588", 5)


def test_min_insync_replicas_is_one_value_for_all_brokers(broker: AdminBroker) -> None:
    name = "min.insync.replicas"
    broker.create("t")
    assert value(broker, BROKER, "1", name) == ("1", 3)
    assert change(broker, BROKER, "1", (name, SET, "2"))[0] == BAD_CONFIG
    assert change(broker, BROKER, "1", (name, DELETE, None))[0] == BAD_CONFIG
    assert change(broker, BROKER, "1", (name, SET, "x"))[0] == INVALID
    assert change(broker, BROKER, "", (name, DELETE, None))[0] == BAD_CONFIG
    assert change(broker, BROKER, "", ("message.max.bytes", SET, "77")) == (0, None)
    assert change(broker, BROKER, "", (name, SET, "2")) == (0, None)
    assert value(broker, TOPIC, "t", name) == ("2", 3)
    assert change(broker, BROKER, "", ("message.max.bytes", DELETE, None)) == (0, None)
    assert change(broker, BROKER, "", (name, DELETE, None))[0] == BAD_CONFIG


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("1", [("num.partitions", SET, "3")], INVALID),
        ("1", [("num.partitions", DELETE, None)], 0),
        ("1", [("no.such", SET, "1")], 0),
        ("1", [("log.retention.ms", SET, "x")], INVALID),
        ("1", [("log.retention.ms", APPEND, "1")], BAD_CONFIG),
        ("1", [("log.cleanup.policy", APPEND, "compact")], 0),
        ("1", [("log.retention.ms", 9, "1")], INVALID),
        ("", [("sasl.jaas.config", SET, "x")], INVALID),
        ("1", [], 0),
    ],
)
def test_changes_of_a_broker(
    broker: AdminBroker, name: str, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    assert change(broker, BROKER, name, *changes, validate_only=True)[0] == code


@pytest.mark.slow
def test_a_list_grows_no_longer_than_a_message_can_carry(broker: AdminBroker) -> None:
    broker.create("t")
    key = "leader.replication.throttled.replicas"
    first, second = (
        ",".join(f"{index}:1" for index in range(begin, begin + 4_000)) for begin in (0, 4_000)
    )
    assert change(broker, TOPIC, "t", (key, APPEND, first)) == (0, None)
    code, message = change(broker, TOPIC, "t", (key, APPEND, second))
    assert (code, "maximum value size" in str(message)) == (BAD_CONFIG, True)
    assert value(broker, TOPIC, "t", key) == (first, 1)
    long = "x" * 30_000
    assert change(broker, BROKER, "", ("log.cleanup.policy", APPEND, long))[0] == INVALID


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_numbers_of_thousands_of_digits(broker: AdminBroker, kind: int) -> None:
    broker.create("t")
    long, name = "1" * 5_000, {TOPIC: "t", BROKER: "1"}[kind]
    key = {TOPIC: "retention.ms", BROKER: "log.retention.ms"}[kind]
    code, message = change(broker, kind, name, (key, SET, long))
    assert code == {TOPIC: BAD_CONFIG, BROKER: INVALID}[kind]
    assert "Not a number of type LONG" in str(message)
    assert change(broker, BROKER, long, (key, SET, "1"))[0] == INVALID
    assert describe(broker, BROKER, long).error_code == INVALID


@pytest.mark.parametrize("version", [0, 1])
def test_a_refusal_of_a_text_that_fills_a_string_finds_room(
    broker: AdminBroker, version: int
) -> None:
    broker.create("t")
    text = "\N{DROMEDARY CAMEL}" * 8_190
    code, message = change(broker, TOPIC, "t", ("retention.ms", SET, text), version=version)
    assert code == BAD_CONFIG
    assert str(message).startswith("Invalid value \N{DROMEDARY CAMEL}")


# --- through the controller ----------------------------------------------------------------


class Elsewhere:
    """A cluster in which another broker is the controller, with directories of its own."""

    listener_name = "PLAINTEXT"

    def __init__(self, controller: AdminBroker | None) -> None:
        self._controller = controller
        self.channel = self

    def forward(self, request: Request, version: int) -> Deferred[Response]:
        if self._controller is not None:
            return self._controller.start(request, version)
        nobody: Deferred[Response] = Deferred()
        nobody.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known"))
        return nobody


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[AdminBroker, AdminBroker]]:
    """Broker 1, and broker 2, which is the controller."""
    made = []
    for name, number in (("one", "1"), ("two", "2")):
        directory = tmp_path / name
        directory.mkdir()
        made.append(AdminBroker(directory, {"node.id": number, "log.dirs": str(directory)}))
    one, two = made
    one.services.cluster = two.services.cluster = cast("Any", Elsewhere(two))
    one.controller_state.end_term()
    yield one, two
    one.close()
    two.close()


@pytest.mark.parametrize("alter", [change, replace])
def test_a_broker_judges_its_own_settings_itself(
    pair: tuple[AdminBroker, AdminBroker], alter: Callable[..., tuple[int, str | None]]
) -> None:
    one, two = pair
    operation = (SET,) if alter is change else ()
    own, others = str(one.directory), str(two.directory)
    assert alter(one, BROKER, "1", ("cordoned.log.dirs", *operation, own)) == (0, None)
    assert two.controller.context.broker_configs["1"] == {"cordoned.log.dirs": own}
    code, message = alter(one, BROKER, "1", ("cordoned.log.dirs", *operation, others))
    assert (code, "must be present in log.dirs" in str(message)) == (INVALID, True)
    assert two.controller.context.broker_configs["1"] == {"cordoned.log.dirs": own}
    assert alter(two, BROKER, "2", ("cordoned.log.dirs", *operation, own))[0] == INVALID
    assert alter(one, BROKER, "1", ("log.retention.ms", *operation, "x"))[0] == INVALID
    assert alter(two, BROKER, "1", ("log.retention.ms", *operation, "x"))[0] == INVALID
    assert alter(one, TOPIC, "none", ("retention.ms", *operation, "1"))[0] == 3


def test_levels_of_loggers_need_no_controller(
    pair: tuple[AdminBroker, AdminBroker], logger: logging.Logger
) -> None:
    one, _ = pair
    one.services.cluster = cast("Any", Elsewhere(None))
    assert change(one, LOGGER, "1", (logger.name, SET, "DEBUG")) == (0, None)
    assert logger.level == logging.DEBUG
    setting = new.AlterableConfig(name="retention.ms", config_operation=SET, value="1")
    resource = new.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[setting])
    request = new.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    asked = one.start(request, 1)
    assert not asked.done, "a controller may be elected in a moment"
    one.clock.advance(FIND_CONTROLLER_MS + 200)
    response = asked.result()
    assert isinstance(response, new.IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == 41


def test_what_is_refused_at_once_does_not_hold_up_the_rest(
    pair: tuple[AdminBroker, AdminBroker],
) -> None:
    one, two = pair
    two.create("t")
    resources = [
        new.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[new.AlterableConfig(name=key, config_operation=SET, value=text)],
        )
        for kind, name, key, text in (
            (TOPIC, "t", "retention.ms", "1"),
            (BROKER, "1", "cordoned.log.dirs", "/nowhere"),
            (TOPIC, "u", "retention.ms", "1"),
            (BROKER, "", "log.retention.ms", "7"),
        )
    ]
    request = new.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    answers = one.call(request, 1, new.IncrementalAlterConfigsResponse).responses
    assert [(each.resource_name, each.error_code) for each in answers] == [
        ("t", 0),
        ("1", INVALID),
        ("u", 3),
        ("", 0),
    ]
    assert value(two, TOPIC, "t", "retention.ms") == ("1", 1)


# --- loggers -------------------------------------------------------------------------------


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("millstream.tests.levels")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_the_level_of_a_logger(broker: AdminBroker, logger: logging.Logger) -> None:
    assert change(broker, LOGGER, "1", (logger.name, SET, "DEBUG")) == (0, None)
    assert logger.level == logging.DEBUG
    assert value(broker, LOGGER, "1", logger.name) == ("DEBUG", 6)
    assert change(broker, LOGGER, "1", (logger.name, SET, "WARN"), validate_only=True) == (0, None)
    assert logger.level == logging.DEBUG
    assert change(broker, LOGGER, "1", (logger.name, DELETE, None)) == (0, None)
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("broker_name", "name", "operation", "level", "code"),
    [
        ("1", "millstream.tests.levels", SET, "LOUD", BAD_CONFIG),
        ("1", "millstream.no.such.logger", SET, "INFO", BAD_CONFIG),
        ("1", "root", DELETE, None, INVALID),
        ("1", "millstream.tests.levels", APPEND, "INFO", INVALID),
        ("1", "millstream.tests.levels", 7, "INFO", INVALID),
        ("2", "millstream.tests.levels", SET, "INFO", INVALID),
        ("x", "millstream.tests.levels", SET, "INFO", INVALID),
    ],
)
def test_levels_that_cannot_be(
    broker: AdminBroker,
    logger: logging.Logger,
    broker_name: str,
    name: str,
    operation: int,
    level: str | None,
    code: int,
) -> None:
    assert change(broker, LOGGER, broker_name, (name, operation, level))[0] == code
    assert logger.level == logging.NOTSET


# --- ListConfigResources -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [("a", TOPIC), ("b", TOPIC), ("1", BROKER), ("1", LOGGER)]),
        ([TOPIC, TOPIC], [("a", TOPIC), ("b", TOPIC)]),
        ([BROKER], [("1", BROKER)]),
        ([LOGGER], [("1", LOGGER)]),
        ([METRICS, GROUP], []),
    ],
)
def test_what_may_have_settings(
    broker: AdminBroker, types: list[int], expected: list[tuple[str, int]]
) -> None:
    broker.create("a")
    broker.create("b")
    request = ListConfigResourcesRequest(resource_types=types)
    response = broker.call(request, 1, ListConfigResourcesResponse)
    assert response.error_code == 0
    assert [(r.resource_name, r.resource_type) for r in response.config_resources] == expected


@pytest.mark.parametrize("types", [[1], [0], [TOPIC, 99], [-1]])
def test_unknown_types_refuse_all(broker: AdminBroker, types: list[int]) -> None:
    response = broker.call(
        ListConfigResourcesRequest(resource_types=types), 1, ListConfigResourcesResponse
    )
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION.code
    assert response.config_resources == []


def test_version_0_knows_client_metrics_alone(broker: AdminBroker) -> None:
    broker.create("a")
    response = broker.call(ListConfigResourcesRequest(), 0, ListConfigResourcesResponse)
    assert (response.error_code, response.config_resources) == (0, [])


# Groups


def test_a_group_has_settings_before_it_exists(broker: AdminBroker) -> None:
    assert value(broker, GROUP, "a/b", "consumer.session.timeout.ms") == ("45000", 5)
    changed = ("consumer.session.timeout.ms", SET, "50000")
    assert change(broker, GROUP, "a/b", changed, validate_only=True) == (0, None)
    assert value(broker, GROUP, "a/b", "consumer.session.timeout.ms") == ("45000", 5)
    assert change(broker, GROUP, "a/b", changed) == (0, None)
    assert value(broker, GROUP, "a/b", "consumer.session.timeout.ms") == ("50000", 8)
    assert value(broker, GROUP, "other", "consumer.session.timeout.ms") == ("45000", 5)
    assert listed(broker, GROUP) == [("a/b", GROUP)]
    assert change(broker, GROUP, "a/b", ("consumer.session.timeout.ms", DELETE, None))[0] == 0
    assert value(broker, GROUP, "a/b", "consumer.session.timeout.ms") == ("45000", 5)
    assert listed(broker, GROUP) == []


def test_a_setting_of_a_group_falls_back_to_the_brokers(broker: AdminBroker) -> None:
    name = "consumer.assignment.interval.ms"
    assert change(broker, BROKER, "", ("group." + name, SET, "2000"))[0] == 0
    assert value(broker, GROUP, "g", name) == ("2000", 3)
    change(broker, GROUP, "g", (name, SET, "3000"))
    (entry,) = describe(broker, GROUP, "g", name, synonyms=True).configs
    assert [(each.name, each.value) for each in entry.synonyms] == [
        (name, "3000"),
        ("group." + name, "2000"),
        ("group." + name, "1000"),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.heartbeat.interval.ms", "4999"),
        ("consumer.heartbeat.interval.ms", "x"),
        ("consumer.assignment.interval.ms", "-1"),
        ("group.consumer.session.timeout.ms", "45000"),
        ("unknown", "1"),
    ],
)
def test_settings_of_groups_are_checked(broker: AdminBroker, name: str, text: str) -> None:
    code, message = change(broker, GROUP, "g", (name, SET, text))
    assert code == BAD_CONFIG
    assert message


def test_settings_of_groups_are_there_after_a_restart(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path / "kept")
    change(broker, GROUP, "g ", ("consumer.heartbeat.interval.ms", SET, "6000"))
    broker.close()
    again = AdminBroker(tmp_path / "kept")
    try:
        assert value(again, GROUP, "g ", "consumer.heartbeat.interval.ms") == ("6000", 8)
    finally:
        again.close()


def listed(broker: AdminBroker, kind: int) -> list[tuple[str, int]]:
    request = ListConfigResourcesRequest(resource_types=[kind])
    response = broker.call(request, 1, ListConfigResourcesResponse)
    return [(each.resource_name, each.resource_type) for each in response.config_resources]
