"""`ssl.principal.mapping.rules`, with the cases of Kafka's ``SslPrincipalMapperTest``."""

from __future__ import annotations

import pytest

from millstream.model.errors import ConfigError
from millstream.security.principal_mapping import NoMatchingRuleError, PrincipalMapping

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_the_whole_counts(subject: str, name: str) -> None:
    assert PrincipalMapping(RULES).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT", "CN=Duke\\, Jr,OU=x", "Duke\\, Jr"),
        ("RULE:^CN=(.*?),OU=(.*)$/$1@$4/", "CN=a,OU=b", "a@$4"),
        ("RULE:^CN=(.*?)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=(.*?)$/$0!/", "CN=a", "CN=a!"),
        ("RULE:^CN=(?<who>.*?)$/${who}.x/U", "CN=a", "A.X"),
        ("RULE:^CN=(.*?)$/\\$1/", "CN=a", "$1"),
        ("RULE:^CN=(\\w+)\\/(\\w+)$/$2/", "CN=a/b", "b"),
        ("DEFAULT", "CN=a", "CN=a"),
    ],
)
def test_replacements(rules: str, subject: str, name: str) -> None:
    assert PrincipalMapping(rules).name_of(subject) == name


@pytest.mark.parametrize("rules", ["", "RULE:^CN=x$/y/"])
def test_without_a_rule_that_applies_nobody_is_meant(rules: str) -> None:
    with pytest.raises(NoMatchingRuleError, match="No rules apply to CN=a"):
        PrincipalMapping(rules).name_of("CN=a")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(/x/",
        "RULE:^CN=(?<who>.*)$/${whom}/",
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules: "):
        PrincipalMapping(rules)
