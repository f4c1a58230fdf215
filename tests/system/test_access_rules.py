"""`millstream acl` on a broker with an authorizer: rules are made, asked about, removed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.system

DEADLINE_S = 60
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def millstream(broker: BrokerProcess, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", "acl", *words, "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_rules_on_the_command_line(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        ann = ("--principal", "User:ann")
        added = millstream(broker, "add", "--topic", "t", *ann, "-o", "read", "-o", "write")
        assert added == (
            "added\ttopic\tt\tliteral\tallow\tread\tUser:ann\t*\n"
            "added\ttopic\tt\tliteral\tallow\twrite\tUser:ann\t*\n"
        )
        millstream(
            broker, "add", "--topic", "t", *ann, "-o", "write", "--host", "10.0.0.1", "--deny"
        )
        millstream(broker, "add", "--group", "g", "--prefix", "-p", "User:*", "-o", "all")
        assert millstream(broker, "check", "User:ann", "read", "--topic", "t") == (
            "yes\tUser:ann may read topic t from any host\n"
        )
        denied = ("check", "User:ann", "write", "--topic", "t", "--host", "10.0.0.1")
        assert millstream(broker, *denied, code=1) == (
            "no\tUser:ann may not write topic t from 10.0.0.1\n"
        )
        assert "begin with g" in millstream(broker, "check", "User:bob", "read", "--group", "gx")
        nothing = millstream(broker, "check", "User:bob", "read", "--topic", "t", code=1)
        assert nothing == "no\tno rule allows it\n"
        super_user = millstream(broker, "check", "User:ANONYMOUS", "alter", "--cluster")
        assert super_user == "yes\ta super user may do everything\n"
        broker.stop()
        broker.start()
        rows = json.loads(millstream(broker, "list", "--json"))
        assert [(each["name"], each["permission"], each["operation"]) for each in rows] == [
            ("t", "deny", "write"),
            ("t", "allow", "read"),
            ("t", "allow", "write"),
            ("g", "allow", "all"),
        ]
        assert len(json.loads(millstream(broker, "list", "--topic", "t", "--json"))) == 3
        removed = millstream(broker, "remove", "--topic", "t", *ann)
        assert removed.count("removed\t") == 3
        assert "no rule matches" in millstream(broker, "remove", "--topic", "t")
        millstream(broker, "remove", code=2)


def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        answer = millstream(broker, "list", code=1)
        assert "No Authorizer is configured" in answer
