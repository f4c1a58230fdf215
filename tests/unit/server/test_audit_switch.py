"""The audit log is there while something is recorded, and costs nothing while nothing is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.config.broker import BrokerConfig
from millstream.config.sections.audit import AuditSettings
from millstream.handlers import create_topics, fetch, produce
from millstream.handlers.request import RequestContext
from millstream.handlers.routes import ROUTES
from millstream.model.errors import ConfigError, ErrorCode
from millstream.model.topic import AUDIT_LOG_TOPIC
from millstream.protocol.api import ApiKey
from millstream.protocol.codec import RequestHeader
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.protocol.messages.write_audit_log import (
    WriteAuditLogRequest,
    WriteAuditLogResponse,
)
from millstream.records.builder import BatchBuilder
from millstream.security.authorizer import Authorizer
from millstream.server.dispatch import Dispatcher
from millstream.server.sasl_session import SaslSession


def set_broker(broker: AdminBroker, **settings: str) -> int:
    """Change settings of all brokers; return the error."""
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = broker.call(request, 1, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


def handler(broker: AdminBroker, key: ApiKey) -> Any:
    """Return what dispatch calls for an API."""
    version = ROUTES[key].last_version
    return broker.dispatcher._prepare(ROUTES[key], RequestHeader(key, version, 1, "x", 0)).handle


@pytest.mark.slow
def test_off_makes_nothing_and_loads_nothing(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path)
    try:
        assert broker.services.audit is None
        assert broker.dispatcher.audit.log is None
        for key, module in (
            (ApiKey.PRODUCE, produce),
            (ApiKey.FETCH, fetch),
            (ApiKey.CREATE_TOPICS, create_topics),
        ):
            assert handler(broker, key) is module.handle
    finally:
        broker.close()
    code = (
        "import sys, millstream.server.broker, millstream.handlers.produce, "
        "millstream.handlers.fetch\n"
        "print([name for name in sys.modules if 'audit' in name])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    names = set(ast.literal_eval(loaded))
    assert not {name for name in names if ".runtime.audit" in name or ".audited" in name}


def test_requests_of_other_kinds_run_the_code_that_they_ran_without_it(tmp_path: Path) -> None:
    settings = {
        "audit.log.management.allowed": "topic",
        "audit.log.management.denied": "topic",
        "audit.log.describe.denied": "topic",
        "audit.log.authentication.failed": "topic",
        "audit.log.produce.denied": "topic",
    }
    broker = AdminBroker(tmp_path, settings)
    try:
        assert broker.services.audit is not None
        assert handler(broker, ApiKey.FETCH) is fetch.handle
        # Without an authorizer nothing is denied.
        assert handler(broker, ApiKey.PRODUCE) is produce.handle
        assert handler(broker, ApiKey.CREATE_TOPICS) is not create_topics.handle
        broker.services.authorizer = Authorizer(allow_everyone_if_no_acl_found=True)
        assert handler(broker, ApiKey.FETCH) is fetch.handle_authorized
        assert handler(broker, ApiKey.PRODUCE) is not produce.handle_authorized
    finally:
        broker.close()


def test_the_hot_paths_ask_nothing_of_it() -> None:
    """What is called for each request of a broker without an audit log does not know of it."""
    functions = (
        Dispatcher.serve,
        produce.handle,
        produce.handle_authorized,
        fetch.handle,
        fetch.handle_authorized,
        RequestContext.__init__,
        SaslSession.serve,
    )
    for each in functions:
        assert not [name for name in each.__code__.co_names if "audit" in name], each


def test_it_is_switched_on_and_off_while_the_broker_runs(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path)
    broker.services.authorizer = Authorizer(allow_everyone_if_no_acl_found=True)
    try:
        assert handler(broker, ApiKey.PRODUCE) is produce.handle_authorized
        assert set_broker(broker, audit_log_produce_allowed="topic") == 0
        assert broker.services.audit is not None
        assert handler(broker, ApiKey.PRODUCE) is not produce.handle_authorized
        assert handler(broker, ApiKey.FETCH) is fetch.handle_authorized
        assert set_broker(broker, audit_log_produce_allowed="off") == 0
        assert broker.services.audit is None
        assert handler(broker, ApiKey.PRODUCE) is produce.handle_authorized
    finally:
        broker.close()


def test_decisions_that_were_kept_are_recorded_once_it_is_on(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path)
    authorizer = broker.services.authorizer = Authorizer(allow_everyone_if_no_acl_found=True)
    broker.create("t")
    session = broker.connect()
    try:
        write(broker, "t", session)
        assert session._connection.writable == {"t"}  # type: ignore[attr-defined]
        set_broker(broker, audit_log_produce_allowed="topic")
        assert session._connection.writable == set()  # type: ignore[attr-defined]
        assert authorizer is broker.services.authorizer
        write(broker, "t", session)
        broker.clock.settle()
        assert broker.metadata.topic(AUDIT_LOG_TOPIC) is not None
        written = sum(
            broker.partitions.get(AUDIT_LOG_TOPIC, index).log.log_end_offset for index in range(12)
        )
        assert written == 1
    finally:
        broker.close()


def write(broker: AdminBroker, topic: str, session: Any = None) -> int:
    builder = BatchBuilder()
    builder.append(broker.clock.now_ms(), None, b"x")
    data = PartitionProduceData(index=0, records=builder.build())
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = broker.start(request, 9, session=session).result()
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def test_clients_do_not_write_the_topic(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path)
    try:
        broker.create(AUDIT_LOG_TOPIC)
        assert write(broker, AUDIT_LOG_TOPIC) == ErrorCode.INVALID_TOPIC_EXCEPTION.code
    finally:
        broker.close()


def test_a_broker_appends_whole_batches_alone(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path)
    builder = BatchBuilder()
    builder.append(1, None, b"x")
    good = builder.build()
    try:
        broker.create(AUDIT_LOG_TOPIC)
        for records, error in (
            (good, ErrorCode.NONE),
            (good + good, ErrorCode.CORRUPT_MESSAGE),
            (good[:-1], ErrorCode.CORRUPT_MESSAGE),
            (good[:-1] + b"y", ErrorCode.CORRUPT_MESSAGE),
            (b"", ErrorCode.CORRUPT_MESSAGE),
        ):
            request = WriteAuditLogRequest(partition_index=0, timeout_ms=500, records=records)
            answer = broker.requests.send(broker.services.node.broker_id, request, 1_000)
            broker.clock.settle()
            response = answer.result()
            assert isinstance(response, WriteAuditLogResponse)
            assert ErrorCode.of(response.error_code) is error
        assert broker.partitions.get(AUDIT_LOG_TOPIC, 0).log.log_end_offset == 1
    finally:
        broker.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"audit.log.produce.denied": "file"},
        {"audit.log.produce.denied": "nowhere"},
        {"audit.log.max.events.per.second": "0"},
        {"audit.log.burst.events": "0"},
        {"audit.log.repeat.interval.ms": "-1"},
        {"audit.log.queue.max.bytes": "5"},
        {"audit.log.topic.retention.ms": "0"},
        {"audit.log.topic.num.partitions": "0"},
        {"audit.log.excluded.principals": "ann"},
        {"audit.log.excluded.principals": "User:ann,User:bob"},
    ],
)
def test_nonsense_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"audit\.log"):
        BrokerConfig(settings)


def test_a_file_that_is_not_named_is_refused_while_the_broker_runs(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path)
    try:
        error = set_broker(broker, audit_log_produce_denied="file")
        assert ErrorCode.of(error) in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
        assert broker.services.audit is None
    finally:
        broker.close()


def test_every_setting_is_off_by_default() -> None:
    config = BrokerConfig()
    destinations = [
        config.value(name)
        for name, key in AuditSettings.keys.items()
        if "off" in str(key.validator)
    ]
    assert destinations == ["off"] * 13
