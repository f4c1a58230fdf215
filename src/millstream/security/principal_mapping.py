"""`ssl.principal.mapping.rules`: from the subject of a certificate to the name of a principal.

Kafka: ``SslPrincipalMapper`` (KIP-371). Rules are separated by commas; the first that matches the
whole name counts::

    RULE:pattern/replacement/        what matches is replaced; $1 … are the groups of the pattern
    RULE:pattern/replacement/L       then in small letters; U: in capitals
    DEFAULT                          the name as it is

A group that the pattern does not have stays as it is written. Patterns are those of Java. What most
of them use means the same in Python; named groups are translated; anything else that Python does
not read is refused when the rules are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConfigError, MillstreamError

SETTING: Final = "ssl.principal.mapping.rules"

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{([A-Za-z][A-Za-z0-9]*)\}", re.DOTALL)


class NoMatchingRuleError(MillstreamError):
    """No rule applies to a name: its certificate speaks for nobody here."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; ``pattern`` is None in DEFAULT. ``letters`` is L, U or empty."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    letters: str = ""

    def apply(self, name: str) -> str | None:
        """Return what the name becomes; None when the rule does not apply."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._expand, name)
        if self.letters == "L":
            return found.lower()
        return found.upper() if self.letters == "U" else found

    def _expand(self, match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda reference: _meaning(reference, match), self.replacement)


class PrincipalMapping:
    """The rules of a listener. ConfigError when they cannot be read."""

    def __init__(self, rules: str) -> None:
        self._text = rules
        self._rules = tuple(_rules(rules))

    def name_of(self, subject: str) -> str:
        """Return the name of the principal; NoMatchingRuleError when there is none."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"No rules apply to {subject}, rules {self._text}")


def _meaning(reference: re.Match[str], match: re.Match[str]) -> str:
    """Return what one reference of a replacement stands for (Java: ``Matcher.replaceAll``): as many
    digits as name a group that there is.
    """
    escaped, digits, name = reference.groups()
    if escaped is not None:
        return str(escaped)
    if name is not None:
        return match[name] or ""
    count = match.re.groups
    used = 1
    while used < len(digits) and int(digits[: used + 1]) <= count:
        used += 1
    if int(digits[:used]) > count:
        return str(reference[0])
    return (match[int(digits[:used])] or "") + str(digits[used:])


def _rules(text: str) -> list[_Rule]:
    rules = []
    for split in _SPLITTER.finditer(text.strip()):
        part = split[1]
        parsed = _PARSER.match(part)
        if parsed is None or parsed.end() != len(part):
            raise ConfigError(f"{SETTING}: {part!r} is neither DEFAULT nor a rule")
        default, pattern, replacement, letters, _ = parsed.groups()
        if default:
            rules.append(_Rule())
        elif pattern is not None:
            compiled = _compiled(pattern)
            for reference in _REFERENCE.finditer(replacement):
                # Java finds that out when somebody connects, and then again each time.
                if reference[3] is not None and reference[3] not in compiled.groupindex:
                    raise ConfigError(f"{SETTING}: {part!r} has no group {reference[3]}")
            rules.append(_Rule(compiled, replacement, letters))
    return rules


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(_NAMED_GROUP.sub("(?P<", pattern))
    except (re.error, RecursionError) as error:
        raise ConfigError(f"{SETTING}: {pattern!r} is no regular expression: {error}") from None
