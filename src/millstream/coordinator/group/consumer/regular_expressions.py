"""Subscriptions by regular expression, in the language of RE2.

RE2 matches in time linear to the text whatever the expression is, and refuses expressions whose
program would be large (``MAX_PROGRAM_BYTES``). A worker matches the names of topics, for there may
be many; only the check of a new expression runs on the loop. The library is loaded when the first
expression comes. Kafka: ``TopicRegexResolver``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from millstream.model.errors import ErrorCode, KafkaError

MAX_EXPRESSION_BYTES: Final = 4_096
"""The longest expression that is taken; Kafka has no such limit."""
MAX_EXPRESSIONS: Final = 100
"""The largest number of expressions in one group; Kafka has no such limit."""
MAX_PROGRAM_BYTES: Final = 1 << 20
"""The largest program of one expression; it is kept while a worker matches."""


def check(expression: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION for an expression that RE2 does not take."""
    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex is longer than {MAX_EXPRESSION_BYTES} bytes.",
        )
    _compile(expression)


def resolve(expressions: Iterable[str], names: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Return, for each expression, the names that it matches as a whole; none for one that cannot
    be compiled, which another version may have stored.
    """
    encoded = [(name, name.encode()) for name in names]
    found: dict[str, frozenset[str]] = {}
    for expression in expressions:
        try:
            pattern = _compile(expression)
        except KafkaError:
            found[expression] = frozenset()
        else:
            found[expression] = frozenset(name for name, raw in encoded if pattern.fullmatch(raw))
    return found


def _compile(expression: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression.encode(), options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {reason}.",
        ) from error
