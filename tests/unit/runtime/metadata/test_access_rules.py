"""The authorizer follows the rules that the broker knows, also past what cannot be read."""

from __future__ import annotations

import pytest

from millstream.config.broker import BrokerConfig
from millstream.model.acl import AclOperation, AclResource
from millstream.model.entities import EntityKind
from millstream.model.principal import KafkaPrincipal
from millstream.runtime.metadata.access_rules import authorizer_of
from millstream.runtime.metadata.entity_table import EntityTable
from millstream.security.authorizer import Authorizer

ANN = KafkaPrincipal("User", "ann")
READ = {"Allow Read * User:ann": ""}


def may_read(authorizer: Authorizer, topic: str) -> bool:
    return authorizer.allows(ANN, "h", AclOperation.READ, AclResource.TOPIC, topic)


@pytest.mark.parametrize("at_start", [True, False])
def test_what_cannot_be_read_is_skipped_counted_and_logged(
    caplog: pytest.LogCaptureFixture, *, at_start: bool
) -> None:
    table = EntityTable()
    wrong = {f"Topic/odd/{number}": READ for number in range(7)}
    found = {
        "Topic/literal/a": READ,
        **wrong,
        "Topic/literal/b": {"Allow Everything * User:ann": ""},
        "nonsense": READ,
        "Topic/literal/c": READ,
    }
    if at_start:
        table.change(EntityKind.ACL, found)
        authorizer = authorizer_of(BrokerConfig(), table)
    else:
        authorizer = authorizer_of(BrokerConfig(), table)
        table.change(EntityKind.ACL, found)
    assert [may_read(authorizer, topic) for topic in "abc"] == [True, False, True]
    (line,) = caplog.messages
    assert line.startswith("9 resource patterns have rules of access that cannot be read")
    assert line.endswith("'Topic/odd/4', ...")


def test_rules_that_become_unreadable_stay_as_they_were(caplog: pytest.LogCaptureFixture) -> None:
    """A rule that denies must not be lost because another one beside it is damaged."""
    table = EntityTable()
    authorizer = authorizer_of(BrokerConfig(), table)
    table.change(EntityKind.ACL, {"Topic/literal/a": {**READ, "Deny Write * User:ann": ""}})
    table.change(EntityKind.ACL, {"Topic/literal/a": {"Allow All * User:ann": "", "?": ""}})
    assert may_read(authorizer, "a")
    assert not authorizer.allows(ANN, "h", AclOperation.WRITE, AclResource.TOPIC, "a")
    assert len(caplog.messages) == 1
    table.change(EntityKind.ACL, {"Topic/literal/a": None})
    assert not may_read(authorizer, "a")
