"""What tests of findings ask for: one that says something, and a remedy that can be typed."""

from __future__ import annotations

from collections.abc import Iterable

from tests.unit.cli.test_pages import problem

from millstream.client.doctor import Severity
from millstream.inspection.findings import Finding


def the_one(found: Iterable[Finding], severity: Severity, says: str, mends: str) -> Finding:
    """Return the finding that says something, the first of brokers that have it alike."""
    findings = list(found)
    finding, *others = [each for each in findings if says in each.sentence] or findings
    assert says in finding.sentence, findings
    assert all(each.subject == finding.subject for each in others)
    assert finding.severity is severity
    assert mends in finding.remedy
    for each in findings:
        typeable(each)
    return finding


def typeable(finding: Finding) -> None:
    """Check that the remedy names a command and options that exist."""
    words = finding.remedy.removeprefix("millstream ")
    assert words != finding.remedy or finding.remedy.startswith("du "), finding.remedy
    assert words == finding.remedy or problem(words) is None, (finding.remedy, problem(words))
