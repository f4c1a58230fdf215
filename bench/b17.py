"""B17: what rules of access and quotas cost."""

from __future__ import annotations

from bench.access_rules import loaded_rules, rule_changes
from bench.figures import Figure
from bench.guarded import guarded_requests
from bench.session import Session
from bench.tables import Section, figures_table

CONDITIONS = (
    "one broker of each maker without an authorizer, one with StandardAuthorizer and 1,000 rules, "
    "of which one lets the load in, and one with byte quotas of 1 TB/s for every client id",
    "each row runs on the three brokers of a maker in turn, forwards and backwards by turns; a "
    "cost is that of the guarded broker divided by that of the open one, within a round",
    "clients: raw load, up to 5 requests in flight on each connection, acks=1; Millstream "
    "log.flush.policy=os, Apache Kafka its default; page cache hot",
    "100,000 rules: ten for each of 10,000 topics; from the spawn until a record is appended to a "
    "topic under a rule; memory: the resident set then",
    "changes: a rule that denies a client its topic is made and deleted again and again; from the "
    "request until that client's record is refused; 10,000 other connections have asked for the "
    "topic's metadata; another client produces one 100-byte record 200 times a second",
)


def run(session: Session) -> list[Section]:
    """Run every part of B17 whose name `--only` leaves, on nodes of its own."""
    only = session.options.only
    sections = []
    found = guarded_requests(session)
    if found:
        sections.append(figures_table("B17 · cost of a request under rules and quotas", found))
    figures: list[Figure] = []
    for name, measure in (("load", loaded_rules), ("changes", rule_changes)):
        if only in name:
            figures += measure(session)
            session.say_figures(name, figures)
    if figures:
        sections.append(figures_table("B17 · many rules, and changes of them", figures))
    return sections
