"""Prints the reference of all settings, which is kept as docs/configuration.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from millstream.config.accepted import accepted_keys
from millstream.config.broker import SECTIONS
from millstream.config.definition import ConfigKey, UpdateMode
from millstream.config.protection import PROTECTING_NAMES, PROTECTING_PREFIXES, protects
from millstream.config.topic import TopicConfig
from millstream.config.value import MAX_DOUBLE, MAX_INT, MAX_LONG, Value, format_value

INTRODUCTION: Final = """\
# Settings

Generated from the code: `python -m millstream.config.reference > docs/configuration.md`.

Names, types, defaults and limits are those of Apache Kafka 4.3 (for dead letters of share groups,
of 4.4), and a Kafka `server.properties` is accepted as it is, unless it asks for a protection that
Millstream does not give (the last section).
Settings marked **Millstream** are our own.

A broker takes settings from its `server.properties`, then from environment variables
(`MILLSTREAM_LOG_DIRS` sets `log.dirs`), then from `--override name=value`; the last one counts.
While it runs, settings that change *at any time* are changed by `kafka-configs`, by
`millstream config` or by any admin client, for one broker or for all of them; what was set for one
broker counts before what was set for all, and both before the file. An unknown name, or a variable
`MILLSTREAM_…` that sets nothing, stops the start, with the nearest known name in the message.

A topic has settings of its own; what it does not set it inherits from the broker setting named in
the table.
"""

_LARGE: Final = {MAX_INT: "2³¹ − 1", MAX_LONG: "2⁶³ − 1", MAX_DOUBLE: "no limit"}
_CHANGES: Final = {
    UpdateMode.READ_ONLY: "at a restart",
    UpdateMode.PER_BROKER: "at any time, broker by broker",
    UpdateMode.CLUSTER_WIDE: "at any time",
}


def reference() -> str:
    """Return the whole page in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "## Topics\n"
    yield "| name | type | default | allowed | inherited from | meaning |"
    yield "|---|---|---|---|---|---|"
    for key in _shown(TopicConfig.keys.values()):
        inherited = ", ".join(f"`{synonym.name}`" for synonym in key.inherits) or "—"
        yield _row(key, inherited)
    for section in SECTIONS:
        title = section.__name__.removesuffix("Settings")
        yield f"\n## {title}\n"
        yield f"{_plain(section.__doc__ or '')}\n"
        yield "| name | type | default | allowed | changes | meaning |"
        yield "|---|---|---|---|---|---|"
        for key in section.keys.values():
            yield _row(key, _CHANGES[key.mode])
    yield "\n## Accepted without effect\n"
    yield (
        "These settings of Apache Kafka 4.3 are accepted, checked and reported with Kafka's "
        "defaults, and change nothing here:\n"
    )
    accepted = [key.name for key in _shown(accepted_keys().values())]
    yield _named(name for name in accepted if not protects(name)) + "."
    yield "\n## Refused until they act\n"
    yield (
        "These settings protect a broker of Apache Kafka: encryption, authentication, "
        "authorization, quotas, policies. Millstream does not act on them yet, so a broker does "
        "not start, and does not take them while it runs, unless they are empty or have Kafka's "
        "default:\n"
    )
    prefixes = [f"{prefix}*" for prefix in PROTECTING_PREFIXES]
    yield _named([*sorted(PROTECTING_NAMES), *prefixes]) + "."
    yield (
        "\nThose that are listed in a section above have an effect. The same rules apply to "
        "settings of one listener or SASL mechanism (`listener.name.external.ssl.*`), and to the "
        "limits of one listener (`listener.name.external.max.connections` and "
        "`max.connection.creation.rate`)."
    )


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _shown(keys: Iterable[ConfigKey]) -> Iterator[ConfigKey]:
    return (key for key in keys if not key.internal)


def _row(key: ConfigKey, extra: str) -> str:
    doc = key.doc if key.kafka else f"**Millstream.** {key.doc}"
    allowed = str(key.validator) if key.validator is not None else "—"
    return " | ".join(
        (
            f"| `{key.name}`",
            key.type.name.lower(),
            _default(key.default),
            allowed,
            extra,
            f"{doc} |",
        )
    )


def _default(value: Value) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and value in _LARGE:
        return _LARGE[value]
    text = format_value(value)
    return "—" if not text else f"`{text}`"


def _plain(doc: str) -> str:
    return " ".join(doc.split())


if __name__ == "__main__":
    print(reference(), end="")
