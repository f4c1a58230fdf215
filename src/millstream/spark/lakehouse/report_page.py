"""An access report as one HTML page that needs nothing else: charts are SVG, no script, no network.

Pure: text in, text out. Everything that comes from the log is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from millstream.spark.lakehouse.report import AccessReport, Counted, Hour

_WIDTH: Final = 1080
_HEIGHT: Final = 260
_LEFT: Final = 56
_BOTTOM: Final = 34
_LABEL: Final = 80
_KINDS: Final = (
    ("fine", "2xx", "c2"),
    ("redirected", "3xx", "c3"),
    ("client_errors", "4xx", "c4"),
    ("server_errors", "5xx", "c5"),
)

_STYLE: Final = """
:root { --ink: #1c2330; --soft: #667085; --line: #e4e7ec; --page: #f7f8fa; --card: #ffffff;
  --c2: #2f6fde; --c3: #8fb7f5; --c4: #f0a43a; --c5: #d6453d; --bar: #2f6fde; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf0; --soft: #98a2b3; --line: #2b3342;
  --page: #11151d; --card: #191f2a; --c2: #5b93f0; --c3: #35548a; --bar: #5b93f0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 2px; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 0 0 12px; }
p.when { color: var(--soft); margin: 0 0 24px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 14px; }
.card, section { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 16px 18px; }
.card b { display: block; font-size: 25px; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
section { margin-top: 16px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 16px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); }
.legend { display: flex; gap: 16px; color: var(--soft); font-size: 13px; margin: 0 0 8px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px;
  margin-right: 6px; }
.rows { display: grid; gap: 7px; }
.row { display: grid; grid-template-columns: minmax(0, 1fr) 64px; gap: 10px; align-items: center; }
.row div { position: relative; padding: 3px 8px; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis; font-size: 13.5px; }
.row div::before { content: ""; position: absolute; inset: 0; width: var(--share);
  background: var(--bar); opacity: .16; border-radius: 5px; }
.row span { text-align: right; font-variant-numeric: tabular-nums; color: var(--soft); }
"""


def page(report: AccessReport, title: str) -> str:
    """Return the page."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>
<h1>{escape(title)}</h1>
<p class="when">{_period(report)}</p>
<div class="cards">{_cards(report)}</div>
<section><h2>Hits by hour</h2>{_legend()}{_hours(report.hours)}</section>
<div class="pair">
<section><h2>Top pages</h2>{_rows(report.pages)}</section>
<section><h2>Status codes</h2>{_rows(report.statuses)}</section>
<section><h2>Sessions by number of hits</h2>{_rows(report.session_sizes)}</section>
<section><h2>Referring sites</h2>{_rows(report.referrers)}</section>
<section><h2>Pages not found</h2>{_rows(report.missing_pages)}</section>
</div>
</main></body></html>
"""


def _period(report: AccessReport) -> str:
    if report.first is None or report.last is None:
        return "no hits"
    return f"{report.first:%d %b %Y %H:%M} to {report.last:%d %b %Y %H:%M}, UTC"


def _cards(report: AccessReport) -> str:
    errors = sum(each.client_errors + each.server_errors for each in report.hours)
    share = 100 * errors / report.hits if report.hits else 0.0
    cards = (
        (f"{report.hits:,}", "hits"),
        (f"{report.clients:,}", "clients"),
        (f"{report.sessions:,}", "sessions"),
        (f"{report.median_session_hits:g}", "hits in the median session"),
        (_duration(report.median_session_s), "length of the median session"),
        (_size(report.bytes), "sent"),
        (f"{share:.1f} %", "errors"),
    )
    return "".join(
        f'<div class="card"><b>{text}</b><span>{label}</span></div>' for text, label in cards
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _legend() -> str:
    items = "".join(
        f'<span><i style="background:var(--{css})"></i>{label}</span>' for _, label, css in _KINDS
    )
    return f'<div class="legend">{items}</div>'


def _hours(hours: Sequence[Hour]) -> str:
    """Draw a stacked bar for each hour."""
    if not hours:
        return "<p>no hits</p>"
    top = _round_up(max(each.hits for each in hours))
    plot = _HEIGHT - _BOTTOM - 8
    step = (_WIDTH - _LEFT) / len(hours)
    parts = []
    for line in range(5):
        value = top * line // 4
        y = 8 + plot - plot * value / top
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,}</text>')
    labels_every = max(len(hours) // 8, 1)
    for index, each in enumerate(hours):
        x = _LEFT + index * step
        y = 8.0 + plot
        title = f"<title>{each.start:%d %b %H:00}: {each.hits:,} hits</title>"
        for name, _, css in _KINDS:
            height = plot * getattr(each, name) / top
            y -= height
            if height:
                parts.append(
                    f'<rect class="{css}" x="{x + step * 0.1:.1f}" y="{y:.1f}" '
                    f'width="{step * 0.8:.1f}" height="{height:.1f}">{title}</rect>'
                )
        if index % labels_every == 0 and x < _WIDTH - _LABEL:
            parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 12}">{each.start:%d %b %H:00}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _round_up(value: int) -> int:
    """Return the next number of the form 4, 8, 20, 40, 80, 200 …"""
    step = 4
    while True:
        for factor in (1, 2, 5):
            if step * factor >= value:
                return step * factor
        step *= 10


def _rows(counts: Sequence[Counted]) -> str:
    """Draw names with bars behind them."""
    if not counts:
        return "<p>none</p>"
    most = max(each.count for each in counts) or 1
    rows = "".join(
        f'<div class="row"><div style="--share:{100 * each.count / most:.1f}%" '
        f'title="{escape(each.name)}">{escape(each.name)}</div><span>{each.count:,}</span></div>'
        for each in counts
    )
    return f'<div class="rows">{rows}</div>'
