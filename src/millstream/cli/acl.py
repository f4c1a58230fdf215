"""`millstream acl`: who may do what (rules of access)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from ipaddress import ip_address
from itertools import product
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    UsageError,
    open_admin,
)
from millstream.cli.failures import FAILED, complain, sentence
from millstream.cli.output import Row, counted, print_done, print_json, print_note, print_rows
from millstream.model.acl import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)
from millstream.model.principal import parse_principal

if TYPE_CHECKING:
    from millstream.client.admin import Admin

app = typer.Typer(help="Access rules: who may do what.", no_args_is_help=True)

E = TypeVar("E", bound=IntEnum)

OfTopic = Annotated[str | None, typer.Option("--topic", "-t", help="A topic; '*' for any.")]
OfGroup = Annotated[str | None, typer.Option("--group", "-g", help="A group; '*' for any.")]
OfTransaction = Annotated[
    str | None, typer.Option("--transactional-id", help="A transactional id.")
]
OfToken = Annotated[str | None, typer.Option("--delegation-token", help="A delegation token.")]
OfUser = Annotated[
    str | None, typer.Option("--user", help="A user, as the owner of delegation tokens.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
IsPrefix = Annotated[bool, typer.Option("--prefix", help="Treat the name as a prefix.")]
Principals = Annotated[
    list[str] | None,
    typer.Option(
        "--principal", "-p", metavar="User:NAME", help="The user; 'User:*' for everybody."
    ),
]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", help="The client's address; '*' for any.")
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        "-o",
        metavar="OPERATION",
        help="For example read, write or describe-configs.",
    ),
]
Denies = Annotated[bool, typer.Option("--deny", help="Rules that deny instead of allow.")]

_HEADINGS = {
    "resource": "resource",
    "name": "name",
    "pattern": "pattern",
    "permission": "permission",
    "operation": "operation",
    "principal": "principal",
    "host": "host",
}


@app.command("list")
def list_acls(
    topic: OfTopic = None,
    group: OfGroup = None,
    transactional_id: OfTransaction = None,
    delegation_token: OfToken = None,
    user: OfUser = None,
    cluster: OfCluster = False,
    matching: Annotated[
        bool, typer.Option("--matching", help="Also rules for '*' and for prefixes of the name.")
    ] = False,
    principal: Principals = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show rules: all, or those about a resource or a principal."""
    resource, name = _resource(
        topic, group, transactional_id, delegation_token, user, cluster, optional=True
    )
    if matching and name is None:
        raise UsageError("--matching needs a resource, for example --topic NAME")
    principals = {_principal(each) for each in principal or ()}
    wanted = AclFilter(
        resource=resource, name=name, pattern=PatternType.MATCH if matching else PatternType.ANY
    )
    with open_admin(bootstrap, timeout) as admin:
        acls = admin.describe_acls(wanted)
    if principals:
        acls = [each for each in acls if each.principal in principals]
    _print_acls(acls, as_json)


@app.command()
def add(
    topic: OfTopic = None,
    group: OfGroup = None,
    transactional_id: OfTransaction = None,
    delegation_token: OfToken = None,
    user: OfUser = None,
    cluster: OfCluster = False,
    prefix: IsPrefix = False,
    principal: Principals = None,
    host: Hosts = None,
    operation: Operations = None,
    deny: Denies = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Add rules, one for each combination of principal, host and operation."""
    resource, name = _resource(topic, group, transactional_id, delegation_token, user, cluster)
    if not principal or not operation or name is None:
        raise UsageError("a rule needs --principal and --operation")
    if not name:
        raise UsageError("the name of the resource is empty")
    if prefix and cluster:
        raise UsageError("--prefix is for names; --cluster has none")
    acls = [
        Acl(
            resource=resource,
            name=name,
            pattern=PatternType.PREFIXED if prefix else PatternType.LITERAL,
            principal=_principal(who),
            host=_host(where),
            operation=_operation(resource, what),
            permission=Permission.DENY if deny else Permission.ALLOW,
        )
        for who, where, what in product(principal, host or [WILDCARD], operation)
    ]
    with open_admin(bootstrap, timeout) as admin:
        outcomes = admin.create_acls(acls)
    for acl, outcome in outcomes.items():
        if outcome.error is None:
            print_done(f"added: {_sentence(acl)}", "added", *_row(acl).values())
        else:
            complain(f"{_sentence(acl)}: {sentence(outcome.error)}")
    if outcomes.errors:
        raise typer.Exit(FAILED)


@app.command()
def remove(
    topic: OfTopic = None,
    group: OfGroup = None,
    transactional_id: OfTransaction = None,
    delegation_token: OfToken = None,
    user: OfUser = None,
    cluster: OfCluster = False,
    prefix: IsPrefix = False,
    principal: Principals = None,
    host: Hosts = None,
    operation: Operations = None,
    deny: Denies = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Required if neither a resource nor a principal is given.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Remove the rules that match all given options."""
    resource, name = _resource(
        topic, group, transactional_id, delegation_token, user, cluster, optional=True
    )
    if name is None and not principal and not yes:
        raise UsageError("this removes rules of all resources: name one, or add --yes")
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    filters = [
        AclFilter(
            resource=resource,
            name=name,
            pattern=PatternType.ANY if name is None else pattern,
            principal=None if who is None else _principal(who),
            host=where,
            operation=AclOperation.ANY if what is None else _read(AclOperation, what),
            permission=Permission.DENY if deny else Permission.ANY,
        )
        for who, where, what in product(_or_any(principal), _or_any(host), _or_any(operation))
    ]
    removed: set[Acl] = set()
    with open_admin(bootstrap, timeout) as admin:
        outcomes = admin.delete_acls(filters)
    for outcome in outcomes.values():
        if outcome.error is None:
            removed.update(outcome.get())
        else:
            complain(sentence(outcome.error))
    for acl in sorted(removed, key=_order):
        print_done(f"removed: {_sentence(acl)}", "removed", *_row(acl).values())
    if outcomes.errors:
        raise typer.Exit(FAILED)
    if not removed:
        print_note("no rule matches")


@app.command()
def check(
    principal: Annotated[str, typer.Argument(metavar="User:NAME", help="The user.")],
    operation: Annotated[
        str, typer.Argument(metavar="OPERATION", help="For example read or alter.")
    ],
    topic: OfTopic = None,
    group: OfGroup = None,
    transactional_id: OfTransaction = None,
    delegation_token: OfToken = None,
    user: OfUser = None,
    cluster: OfCluster = False,
    host: Annotated[str, typer.Option("--host", help="The client's address.")] = "127.0.0.1",
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show whether a user may perform an operation, and which rule decides. The exit code is 1 if
    not.
    """
    from millstream.security.authorizer import SUPER_USER, Authorizer, parse_super_users

    resource, name = _resource(topic, group, transactional_id, delegation_token, user, cluster)
    assert name is not None
    what = _operation(resource, operation)
    where = _address(host)
    with open_admin(bootstrap, timeout) as admin:
        wanted = AclFilter(resource=resource, name=name, pattern=PatternType.MATCH)
        acls = admin.describe_acls(wanted)
        settings = _settings(admin)
    authorizer = Authorizer(
        parse_super_users(settings.get("super.users") or ""),
        allow_everyone_if_no_acl_found=settings.get("allow.everyone.if.no.acl.found") == "true",
    )
    by_pattern: dict[tuple[AclResource, PatternType, str], list[Acl]] = {}
    for acl in acls:
        by_pattern.setdefault((acl.resource, acl.pattern, acl.name), []).append(acl)
    authorizer.replace(by_pattern)
    decision = authorizer.explain(
        parse_principal(_principal(principal)), where, what, resource, name
    )
    reason = decision.reason
    if isinstance(reason, Acl):
        why = _sentence(reason)
    elif reason == SUPER_USER:
        why = "a super user may do everything"
    elif decision.is_allowed:
        why = "no rule is about it, and allow.everyone.if.no.acl.found is true"
    else:
        why = "no rule allows it"
    if as_json:
        print_json(
            {
                "allowed": decision.is_allowed,
                "reason": why,
                "rule": _row(reason) if isinstance(reason, Acl) else None,
            }
        )
    else:
        answer = "yes" if decision.is_allowed else "no"
        print_done(f"{answer}: {why}", answer, why)
    if not decision.is_allowed:
        raise typer.Exit(FAILED)


def _settings(admin: Admin) -> dict[str, str | None]:
    """Return the settings of a broker that an authorizer reads."""
    from millstream.client.core.admin.configs import Resource, ResourceType

    broker = Resource(ResourceType.BROKER, str(admin.describe_cluster().brokers[0].broker_id))
    return {each.name: each.value for each in admin.describe_configs([broker])[broker].get()}


def _resource(
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    delegation_token: str | None,
    user: str | None,
    cluster: bool,
    *,
    optional: bool = False,
) -> tuple[AclResource, str | None]:
    named = [
        (resource, name)
        for resource, name in (
            (AclResource.TOPIC, topic),
            (AclResource.GROUP, group),
            (AclResource.TRANSACTIONAL_ID, transactional_id),
            (AclResource.DELEGATION_TOKEN, delegation_token),
            (AclResource.USER, user),
            (AclResource.CLUSTER, CLUSTER_NAME if cluster else None),
        )
        if name is not None
    ]
    if len(named) > 1 or not (named or optional):
        raise UsageError(
            "name one resource: --topic, --group, --transactional-id, --delegation-token, --user "
            "or --cluster"
        )
    return named[0] if named else (AclResource.ANY, None)


def _or_any(texts: list[str] | None) -> list[str | None]:
    """Return what an option names, or None for anything."""
    return [*texts] if texts else [None]


def _principal(text: str) -> str:
    try:
        return str(parse_principal(text))
    except ValueError:
        raise UsageError(f"{text!r} is not a principal such as User:ann") from None


def _host(text: str) -> str:
    return text if text == WILDCARD else _address(text)


def _address(text: str) -> str:
    """Return what an address is given as. Rules are compared with the text of a client's address,
    so a name or a network would never match: with ``--deny`` it would protect nothing.
    """
    try:
        ip_address(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not the address of a client, such as 10.0.0.7: names and networks "
            f"are not supported",
            param_hint="--host",
        ) from None
    return text


def _operation(resource: AclResource, text: str) -> AclOperation:
    """Read an operation that brokers ask for with a resource of this type, or ALL (Kafka:
    AclEntry.supportedOperations, which kafka-acls looks at; brokers take others as well).
    """
    operation = _read(AclOperation, text)
    possible = OPERATIONS_OF[resource]
    if operation is not AclOperation.ALL and operation not in possible:
        raise UsageError(
            f"{_word(operation)} has no meaning for a {_word(resource).replace('-', ' ')}: "
            f"it takes all, {', '.join(_word(each) for each in possible)}"
        )
    return operation


def _read(kind: type[E], text: str) -> E:
    wanted = text.upper().replace("-", "_")
    for each in kind:
        if each.name != "ANY" and wanted in (each.name, each.name.replace("_", "")):
            return each
    names = ", ".join(_word(each) for each in kind if each.name != "ANY")
    raise UsageError(f"{text!r} is not an operation; operations: {names}")


def _word(value: IntEnum) -> str:
    return value.name.lower().replace("_", "-")


def _sentence(acl: Acl) -> str:
    """Return a rule in words: ``User:ann may read topic t from any host``."""
    verb = "may" if acl.permission is Permission.ALLOW else "may not"
    what = "do everything with" if acl.operation is AclOperation.ALL else _word(acl.operation)
    name = f" {acl.name}"
    kind = _word(acl.resource).replace("-", " ")
    if acl.resource is AclResource.CLUSTER:
        name, kind = "", "the cluster"
    elif acl.pattern is PatternType.PREFIXED:
        kind = f"{kind}s that begin with"
    elif acl.name == WILDCARD:
        name, kind = "", f"any {kind}"
    where = "any host" if acl.host == WILDCARD else acl.host
    who = "everybody" if acl.principal == "User:*" else acl.principal
    return f"{who} {verb} {what} {kind}{name} from {where}"


def _order(acl: Acl) -> tuple[object, ...]:
    return (
        acl.resource,
        acl.name,
        acl.pattern,
        acl.permission,
        acl.operation,
        acl.principal,
        acl.host,
    )


def _row(acl: Acl) -> Row:
    return {
        "resource": _word(acl.resource),
        "name": acl.name,
        "pattern": _word(acl.pattern),
        "permission": _word(acl.permission),
        "operation": _word(acl.operation),
        "principal": acl.principal,
        "host": acl.host,
    }


def _print_acls(acls: Iterable[Acl], as_json: bool) -> None:
    rows = [_row(each) for each in sorted(acls, key=_order)]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, _HEADINGS, title=counted(len(rows), "rule"))
