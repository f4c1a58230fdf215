"""Whether a principal may do something with a resource, by the rules of access (ACLs).

Kafka: ``StandardAuthorizer``. A request names a principal, the address it comes from, an operation
and a resource. What decides, in this order:

1. a super user may do everything;
2. a rule that denies: no;
3. a rule that allows: yes;
4. no rule is about the resource at all: as ``allow.everyone.if.no.acl.found`` says;
5. no.

A rule is about a resource if its name is the resource's, or ``*``, or a prefix of the resource's
name where the pattern is PREFIXED. It is about a principal if it names it or ``User:*``, and about
a host if it names it or ``*``. A rule for ALL is about every operation. A rule that allows READ,
WRITE, DELETE or ALTER allows DESCRIBE too, and one that allows ALTER_CONFIGS allows
DESCRIBE_CONFIGS; a rule that denies denies its own operation only.

The rules of one resource pattern are kept by principal and host as two sets of operations, so a
decision reads at most four entries for the literal name, for ``*``, and for each length that a
prefix of the resource type has: how many rules there are does not matter.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from weakref import WeakSet

from millstream.model.acl import WILDCARD, Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.principal import KafkaPrincipal, parse_principal
from millstream.model.topic import TopicId

EVERYBODY: Final = "User:*"
"""As the principal of a rule it stands for every principal, of whatever type."""

SUPER_USER: Final = "SuperUser"
"""The reason of a decision for a super user."""
DEFAULT_ALLOW: Final = "DefaultAllow"
"""The reason where no rule is about the resource and ``allow.everyone.if.no.acl.found`` holds."""
DEFAULT_DENY: Final = "DefaultDeny"
"""The reason where no rule allows it."""

MAX_DECISIONS: Final = 10_000
"""How many decisions of one client are kept; beyond it they are computed anew."""

MAX_ALL_DECISIONS: Final = 1_000_000
"""How many decisions of all clients together are kept; beyond it all are computed anew."""

MAX_KEPT_NAME: Final = 255
"""The decision about a longer name is not kept: no topic has one, and clients choose it."""

_ANY_NAME: Final = "hardcode"
"""The name that Kafka asks about first where any resource of a type will do."""

_EVERY_OPERATION: Final = (1 << len(AclOperation) + 1) - 1

_DESCRIBING: Final = frozenset(
    {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)

Pattern: TypeAlias = tuple[AclResource, PatternType, str]
"""A resource pattern: LITERAL or PREFIXED, and the name."""

_Subject: TypeAlias = tuple[str, str]
"""The principal and the host of a rule, as it writes them."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something may be done, and what decided it: a rule, SUPER_USER, DEFAULT_ALLOW or
    DEFAULT_DENY.
    """

    is_allowed: bool
    reason: Acl | str

    def __str__(self) -> str:
        """The rule as Kafka's log of authorization words it."""
        reason = self.reason
        if isinstance(reason, str):
            return reason
        return (
            f"MatchingAcl(acl=StandardAcl(resourceType={reason.resource.name}, "
            f"resourceName={reason.name}, patternType={reason.pattern.name}, "
            f"principal={reason.principal}, host={reason.host}, "
            f"operation={reason.operation.name}, permissionType={reason.permission.name}))"
        )


@dataclass(slots=True)
class _Grants:
    """The operations that are allowed and denied, as bits; each as the rules write them and with
    what allowing them implies. ``acls`` are the rules.
    """

    allowed: int = 0
    denied: int = 0
    implied: int = 0
    acls: list[Acl] = field(default_factory=list)

    def add(self, acl: Acl) -> None:
        self.acls.append(acl)
        bits = _bits(acl.operation)
        if acl.permission is Permission.DENY:
            self.denied |= bits
            return
        self.allowed |= bits
        if acl.operation in _DESCRIBING:
            bits |= 1 << AclOperation.DESCRIBE
        elif acl.operation is AclOperation.ALTER_CONFIGS:
            bits |= 1 << AclOperation.DESCRIBE_CONFIGS
        self.implied |= bits


class _Patterns:
    """The rules of one resource type."""

    __slots__ = ("acls", "by_subject", "lengths", "literal", "prefixed", "wildcard")

    def __init__(self) -> None:
        self.acls: dict[tuple[PatternType, str], tuple[Acl, ...]] = {}
        self.literal: dict[str, dict[_Subject, _Grants]] = {}
        self.prefixed: dict[str, dict[_Subject, _Grants]] = {}
        self.wildcard: dict[_Subject, _Grants] | None = None
        """The rules of the literal name ``*``."""
        self.lengths: list[int] = []
        """The length of each prefix, sorted, as often as there are prefixes of it."""
        self.by_subject: dict[_Subject, dict[tuple[PatternType, str], _Grants]] = {}

    def set(self, pattern: PatternType, name: str, acls: tuple[Acl, ...]) -> int:
        """Take over the rules of a pattern; return how many more there are now."""
        before = self.acls.pop((pattern, name), ())
        if before:
            self._remove(pattern, name, before)
        if acls:
            self._add(pattern, name, acls)
        return len(acls) - len(before)

    def _remove(self, pattern: PatternType, name: str, acls: tuple[Acl, ...]) -> None:
        for acl in acls:
            subject = acl.principal, acl.host
            of_subject = self.by_subject.get(subject)
            if of_subject is not None:
                of_subject.pop((pattern, name), None)
                if not of_subject:
                    del self.by_subject[subject]
        if pattern is PatternType.PREFIXED:
            del self.prefixed[name]
            del self.lengths[bisect_right(self.lengths, len(name)) - 1]
            return
        del self.literal[name]
        if name == WILDCARD:
            self.wildcard = None

    def _add(self, pattern: PatternType, name: str, acls: tuple[Acl, ...]) -> None:
        self.acls[pattern, name] = acls
        grants: dict[_Subject, _Grants] = {}
        for acl in acls:
            grants.setdefault((acl.principal, acl.host), _Grants()).add(acl)
        for subject, granted in grants.items():
            self.by_subject.setdefault(subject, {})[pattern, name] = granted
        if pattern is PatternType.PREFIXED:
            self.prefixed[name] = grants
            insort(self.lengths, len(name))
            return
        self.literal[name] = grants
        if name == WILDCARD:
            self.wildcard = grants

    def about(self, name: str) -> Iterator[dict[_Subject, _Grants]]:
        """Yield what each pattern grants that a resource is matched by."""
        found = self.literal.get(name)
        if found is not None:
            yield found
        if self.wildcard is not None and name != WILDCARD:
            yield self.wildcard
        lengths, index, prefixed = self.lengths, 0, self.prefixed
        while index < len(lengths) and lengths[index] <= len(name):
            length = lengths[index]
            found = prefixed.get(name[:length])
            if found is not None:
                yield found
            index = bisect_right(lengths, length, index)


class Authorizer:
    """The rules of access of a cluster, and the decisions that follow from them.

    ``super_users`` are principals as texts (``User:admin``).
    """

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_everyone_if_no_acl_found
        self._by_resource: dict[AclResource, _Patterns] = {
            resource: _Patterns() for resource in AclResource if resource is not AclResource.ANY
        }
        self.count = 0
        """How many rules there are."""
        self._kept_count = 0
        """How many decisions were kept since they were all forgotten."""
        self._deciding: WeakSet[ClientDecisions] = WeakSet()
        """The clients of which decisions are kept."""

    def set_rules(
        self, resource: AclResource, pattern: PatternType, name: str, acls: Iterable[Acl]
    ) -> None:
        """Take over all rules of a resource pattern: others of it are gone."""
        self.forget_decisions()
        self.count += self._by_resource[resource].set(pattern, name, tuple(acls))

    def replace(self, rules: Mapping[Pattern, Iterable[Acl]]) -> None:
        """Take over all rules there are."""
        for resource, patterns in self._by_resource.items():
            for pattern, name in list(patterns.acls):
                if (resource, pattern, name) not in rules:
                    self.set_rules(resource, pattern, name, ())
        for (resource, pattern, name), acls in rules.items():
            self.set_rules(resource, pattern, name, acls)

    def allows(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource: AclResource,
        name: str,
    ) -> bool:
        """Decide about one operation on one resource."""
        return bool(self.operations(principal, host, resource, name) >> operation & 1)

    def operations(
        self, principal: KafkaPrincipal, host: str, resource: AclResource, name: str
    ) -> int:
        """Return the operations on a resource that are allowed: bit *n* for the operation with
        number *n*, as in Kafka's fields of authorized operations. Bits that mean nothing for the
        type of resource are to be masked out.
        """
        who = str(principal)
        if who in self._super_users:
            return _EVERY_OPERATION
        allowed = denied = 0
        is_about = False
        for grants in self._by_resource[resource].about(name):
            is_about = True
            for subject in _subjects(who, host):
                granted = grants.get(subject)
                if granted is not None:
                    allowed |= granted.implied
                    denied |= granted.denied
        if not is_about and self._allow_if_none:
            return _EVERY_OPERATION
        return allowed & ~denied

    def allows_any(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: AclResource
    ) -> bool:
        """Decide whether there is any resource of a type with which a principal may do something,
        whether or not it exists (Kafka: ``Authorizer.authorizeByResourceType``).

        Only rules of this very operation, or of ALL, count. A rule that allows counts unless a rule
        that denies covers all that it allows.
        """
        if self.allows(principal, host, operation, resource, _ANY_NAME):
            return True
        who = str(principal)
        bit = 1 << operation
        allowed: set[tuple[PatternType, str]] = set()
        denied: set[tuple[PatternType, str]] = set()
        by_subject = self._by_resource[resource].by_subject
        for subject in _subjects(who, host):
            for pattern, granted in by_subject.get(subject, {}).items():
                if granted.denied & bit:
                    denied.add(pattern)
                if granted.allowed & bit:
                    allowed.add(pattern)
        everything = PatternType.LITERAL, WILDCARD
        if everything in denied:
            return False
        prefixes = {name for pattern, name in denied if pattern is PatternType.PREFIXED}
        lengths = sorted({len(name) for name in prefixes})
        return everything in allowed or any(
            pattern not in denied and not _begins_with_one(pattern[1], prefixes, lengths)
            for pattern in allowed
        )

    def explain(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource: AclResource,
        name: str,
    ) -> Decision:
        """Decide about one operation on one resource, and tell the rule."""
        who = str(principal)
        if who in self._super_users:
            return Decision(True, SUPER_USER)
        is_about = False
        allowing: Acl | None = None
        for grants in self._by_resource[resource].about(name):
            is_about = True
            for subject in _subjects(who, host):
                granted = grants.get(subject)
                for acl in () if granted is None else granted.acls:
                    if not _covers(acl, operation):
                        continue
                    if acl.permission is Permission.DENY:
                        return Decision(False, acl)
                    allowing = allowing or acl
        if allowing is not None:
            return Decision(True, allowing)
        if not is_about and self._allow_if_none:
            return Decision(True, DEFAULT_ALLOW)
        return Decision(False, DEFAULT_DENY)

    def client(self, principal: KafkaPrincipal, host: str) -> ClientDecisions:
        """Return the decisions about one client, which are kept until a rule changes."""
        return ClientDecisions(self, principal, host)

    def keeps(self, client: ClientDecisions) -> None:
        """Note that one more decision about a client is kept, or what follows from it."""
        if self._kept_count >= MAX_ALL_DECISIONS:
            self.forget_decisions()
        self._kept_count += 1
        self._deciding.add(client)

    def forget_decisions(self) -> None:
        """Have every client decided about anew: a rule has changed, or decisions that are kept are
        to be logged from now on.
        """
        self._kept_count = 0
        if self._deciding:
            deciding, self._deciding = self._deciding, WeakSet()
            for client in deciding:
                client.forget()


class ClientDecisions:
    """What one principal from one host may do, kept until a rule changes.

    ``readable`` and ``writable`` are there for the requests that come in great numbers: topics, by
    name or id, that the client was allowed to READ or WRITE, as the handlers have found. They are
    emptied where the decisions are forgotten, and ``kept_since`` is then another object.
    """

    __slots__ = (
        "__weakref__",
        "_authorizer",
        "_kept",
        "host",
        "kept_since",
        "principal",
        "readable",
        "writable",
    )

    def __init__(self, authorizer: Authorizer, principal: KafkaPrincipal, host: str) -> None:
        self._authorizer = authorizer
        self._kept: dict[tuple[AclResource, str], int] = {}
        self.principal = principal
        self.host = host
        self.readable: set[str | TopicId] = set()
        self.writable: set[str | TopicId] = set()
        self.kept_since = object()

    def operations(self, resource: AclResource, name: str) -> int:
        """Return the operations on a resource that are allowed, as bits."""
        found = self._kept.get((resource, name))
        if found is None:
            found = self._authorizer.operations(self.principal, self.host, resource, name)
            if len(self._kept) >= MAX_DECISIONS:
                self.forget()
            self._authorizer.keeps(self)
            if len(name) <= MAX_KEPT_NAME:
                self._kept[resource, name] = found
        return found

    def keep_readable(self, topics: Iterable[str | TopicId]) -> None:
        """Note topics that the client may READ."""
        _keep(self.readable, topics)

    def keep_writable(self, topics: Iterable[str | TopicId]) -> None:
        """Note topics that the client may WRITE."""
        _keep(self.writable, topics)

    def forget(self) -> None:
        """Drop all decisions."""
        self._kept.clear()
        self.readable.clear()
        self.writable.clear()
        self.kept_since = object()

    def allows_any(self, operation: AclOperation, resource: AclResource) -> bool:
        """See ``Authorizer.allows_any``."""
        return self._authorizer.allows_any(self.principal, self.host, operation, resource)

    def explain(self, operation: AclOperation, resource: AclResource, name: str) -> Decision:
        """See ``Authorizer.explain``."""
        return self._authorizer.explain(self.principal, self.host, operation, resource, name)


def parse_super_users(text: str) -> frozenset[str]:
    """Read ``super.users``: principals that are separated by semicolons, for their names may have
    commas. ValueError for a text that is no principal.
    """
    users = [each.strip() for each in text.split(";")]
    for user in filter(None, users):
        parse_principal(user)
    return frozenset(filter(None, users))


def _bits(operation: AclOperation) -> int:
    return _EVERY_OPERATION if operation is AclOperation.ALL else 1 << operation


def _covers(acl: Acl, operation: AclOperation) -> bool:
    """Tell whether a rule is about an operation."""
    granted = _Grants()
    granted.add(acl)
    bits = granted.denied if acl.permission is Permission.DENY else granted.implied
    return bool(bits >> operation & 1)


def _begins_with_one(name: str, prefixes: set[str], lengths: list[int]) -> bool:
    return any(length <= len(name) and name[:length] in prefixes for length in lengths)


def _subjects(who: str, host: str) -> tuple[_Subject, ...]:
    """Return the subjects of the rules that are about a client."""
    return (who, host), (who, WILDCARD), (EVERYBODY, host), (EVERYBODY, WILDCARD)


def _keep(kept: set[str | TopicId], topics: Iterable[str | TopicId]) -> None:
    if len(kept) >= MAX_DECISIONS:
        kept.clear()
    kept.update(topic for topic in topics if len(topic) <= MAX_KEPT_NAME)
