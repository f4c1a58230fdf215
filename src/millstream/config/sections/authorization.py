"""Who may do what: whether requests are authorized, and who may do everything."""

from __future__ import annotations

import re
from typing import Final

from millstream.config.definition import Config, boolean, string
from millstream.config.validators import Validator
from millstream.config.value import Value
from millstream.model.errors import ConfigError
from millstream.model.principal import parse_principal

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZERS: Final = (
    "standard",
    STANDARD,
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Millstream's own name of its authorizer, and the classes of Apache Kafka with these semantics."""

_TWO_USERS: Final = re.compile(r",\s*User:")


class AuthorizerClass(Validator):
    """The authorizer, by a name that Millstream knows; nothing means that there is none."""

    __slots__ = ()

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a class that cannot be loaded here."""
        if value not in ("", *AUTHORIZERS):
            raise ConfigError(
                f"{name}: Millstream cannot load {value}; its own authorizer decides as Apache "
                f"Kafka's StandardAuthorizer and is called `standard`, or {STANDARD}"
            )

    def __str__(self) -> str:
        return ", ".join(f"`{each}`" for each in AUTHORIZERS)


class Principals(Validator):
    """Principals that are separated by semicolons, such as ``User:ann;User:ben``."""

    __slots__ = ()

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a text that is no principal."""
        assert isinstance(value, str)
        for each in value.split(";"):
            try:
                if each.strip():
                    parse_principal(each.strip())
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from error
            if _TWO_USERS.search(each):
                # A subject of a certificate has commas, and none that begins another principal.
                raise ConfigError(f"{name}: {each.strip()!r} has a comma where ';' separates")

    def __str__(self) -> str:
        return "principals, separated by `;`"


class AuthorizationSettings(Config):
    """Authorization by rules of access (ACLs)."""

    authorizer_class_name: str = string(
        "authorizer.class.name",
        "",
        AuthorizerClass(),
        "The class that authorizes requests; without one every request is allowed.",
    )
    super_users: str = string(
        "super.users",
        "",
        Principals(),
        "Principals that may do everything, such as `User:admin`, separated by `;`. They should "
        "include the brokers, unless a rule allows the brokers ClusterAction on the cluster. "
        "Without `authorizer.class.name` it has no effect.",
        internal=True,
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether resources without any rule are open to everybody. Without "
        "`authorizer.class.name` it has no effect.",
        internal=True,
    )
