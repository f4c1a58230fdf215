"""An access report as one HTML page that needs nothing else: charts are SVG, no script, no network.

Pure: text in, text out. Everything that comes from the log is escaped. Hours without a hit are
drawn as gaps; a log of more than two weeks is drawn by days.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Final

from millstream.spark.lakehouse.report import AccessReport, Counted, Hour

_WIDTH: Final = 1080
_HEIGHT: Final = 280
_LEFT: Final = 52
_TOP: Final = 8
_BOTTOM: Final = 30
_MOST_HOURS: Final = 14 * 24
_LABELS: Final = 10
_RADIUS: Final = 70
_KINDS: Final = (
    ("fine", "2xx", "c2"),
    ("redirected", "3xx", "c3"),
    ("client_errors", "4xx", "c4"),
    ("server_errors", "5xx", "c5"),
)

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #667085; --line: #e4e7ec;
  --page: #f6f7f9; --card: #ffffff; --c2: #3b6fd8; --c3: #52b3a4; --c4: #eda13a; --c5: #d6453d;
  --bar: #3b6fd8; --tint: .2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf0; --soft: #98a2b3; --line: #2a3240;
  --page: #10141b; --card: #181e28; --c2: #5f93ef; --c3: #45a294; --c4: #e0a04a; --c5: #e5635b;
  --bar: #5f93ef; --tint: .32; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 36px 20px 64px; }
h1 { font-size: 27px; margin: 0 0 2px; letter-spacing: -.015em; }
h2 { font-size: 15px; margin: 0 0 14px; }
p { margin: 0; } p.when { color: var(--soft); margin: 0 0 24px; }
.cards, .pair, .three { display: grid; gap: 16px; }
.cards { grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.pair { grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); }
.three { grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr)); }
.card, section { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 18px 20px; min-width: 0; }
.cards, section, .pair, .three { margin-bottom: 16px; } .pair section, .three section { margin: 0; }
.card b { display: block; font-size: 27px; line-height: 1.25; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.card span { display: block; font-size: 14px; } .card small { color: var(--soft); font-size: 13px; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
svg text.big { fill: var(--ink); font-size: 24px; font-weight: 700; letter-spacing: -.02em; }
.grid { stroke: var(--line); } .c2 { --of: var(--c2); } .c3 { --of: var(--c3); }
.c4 { --of: var(--c4); } .c5 { --of: var(--c5); } .bar { --of: var(--bar); }
rect.of { fill: var(--of); } circle.of { fill: none; stroke: var(--of); stroke-width: 24; }
.hour:hover rect { opacity: .75; }
.legend { display: flex; gap: 18px; color: var(--soft); font-size: 13px; margin: -6px 0 10px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px;
  margin-right: 6px; background: var(--of); }
.ring { display: grid; grid-template-columns: minmax(150px, 200px) minmax(0, 1fr); gap: 26px;
  align-items: center; }
.rows { display: grid; gap: 6px; }
.row { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 12px; align-items: center; }
.row div { position: relative; padding: 3px 9px; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis; font-size: 13.5px; }
.row div::before { content: ""; position: absolute; inset: 0; width: max(var(--share), 3px);
  background: var(--of, var(--bar)); opacity: var(--tint); border-radius: 5px; }
.row span { text-align: right; font-variant-numeric: tabular-nums; color: var(--soft);
  font-size: 13.5px; }
/* Charts shrink with the page: on a phone their text grows, and the long one is moved sideways. */
@media (max-width: 760px) { .wide { overflow-x: auto; } .wide svg { min-width: 760px; }
  .wide text { font-size: 16px; } .few text { font-size: 20px; } }
@media (max-width: 520px) { .ring { grid-template-columns: 1fr; }
  .ring svg { max-width: 200px; margin: 0 auto; } }
@media print { body { background: none; } .card, section { break-inside: avoid; } }
"""


def page(report: AccessReport, title: str) -> str:
    """Return the page."""
    by_day = len(_filled(report.hours)) > _MOST_HOURS
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>
<h1>{escape(title)}</h1>
<p class="when">{_period(report)}</p>
<div class="cards">{_cards(report)}</div>
<section><h2>Hits by {"day" if by_day else "hour"}</h2>{_legend()}{_hours(report.hours)}</section>
<div class="pair">
<section><h2>Status</h2>{_ring(report)}</section>
<section><h2>Sessions by number of hits</h2>{_columns(report.session_sizes)}</section>
</div>
<div class="three">
<section><h2>Top pages</h2>{_rows(report.pages)}</section>
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
    server = sum(each.server_errors for each in report.hours)
    share = 100 * errors / report.hits if report.hits else 0.0
    busiest = max(report.hours, key=lambda each: each.hits, default=None)
    cards = (
        (
            f"{report.hits:,}",
            "hits",
            "" if busiest is None else f"{busiest.hits:,} in the busiest hour",
        ),
        (f"{report.clients:,}", "clients", f"{_each(report.hits, report.clients)} hits each"),
        (
            f"{report.sessions:,}",
            "sessions",
            _median_session(report),
        ),
        (_size(report.bytes), "sent", f"{_size(_ratio(report.bytes, report.hits))} a hit"),
        (f"{share:.1f} %", "errors", f"{server:,} of the server"),
    )
    return "".join(
        f'<div class="card"><b>{text}</b><span>{label}</span><small>{more}</small></div>'
        for text, label, more in cards
    )


def _median_session(report: AccessReport) -> str:
    hits = report.median_session_hits
    text = f"median {hits:g} hit" + ("" if hits == 1 else "s")
    return f"{text}, {_duration(report.median_session_s)}" if report.median_session_s else text


def _ratio(count: int, of: int) -> float:
    return count / of if of else 0.0


def _each(count: int, of: int) -> str:
    return f"{_ratio(count, of):.1f}".removesuffix(".0")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _legend() -> str:
    items = "".join(f'<span><i class="{css}"></i>{label}</span>' for _, label, css in _KINDS)
    return f'<div class="legend">{items}</div>'


# --- hits by hour --------------------------------------------------------------------------------


def _hours(hours: Sequence[Hour]) -> str:
    """Draw a stacked bar for each hour, or for each day of a long log."""
    bars = _filled(hours)
    if not bars:
        return "<p>no hits</p>"
    by_day = len(bars) > _MOST_HOURS
    if by_day:
        bars = _days(bars)
    top = _round_up(max(each.hits for each in bars))
    step = (_WIDTH - _LEFT) / len(bars)
    parts = [_grid(top), _times(bars, step)]
    for index, each in enumerate(bars):
        when = f"{each.start:%d %b}" if by_day else f"{each.start:%d %b %H:00}"
        parts.append(f'<g class="hour"><title>{when}: {each.hits:,} hits</title>')
        parts.append(_stack(each, _LEFT + index * step, step, top))
        parts.append("</g>")
    label = f"{sum(each.hits for each in bars):,} hits over time"
    return (
        f'<div class="wide"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg></div>"
    )


def _filled(hours: Sequence[Hour]) -> list[Hour]:
    """Return an hour for each that passed between the first and the last."""
    if not hours:
        return []
    known = {each.start: each for each in hours}
    first, last = min(known), max(known)
    count = int((last - first) / timedelta(hours=1)) + 1
    times = [first + timedelta(hours=number) for number in range(count)]
    return [known.get(start) or _nothing(start) for start in times]


def _nothing(start: datetime) -> Hour:
    return Hour(start=start, fine=0, redirected=0, client_errors=0, server_errors=0)


def _days(hours: Sequence[Hour]) -> list[Hour]:
    days: dict[datetime, Hour] = {}
    for each in hours:
        day = each.start.replace(hour=0)
        known = days.get(day) or _nothing(day)
        sums = {name: getattr(known, name) + getattr(each, name) for name, _, _ in _KINDS}
        days[day] = Hour(start=day, **sums)
    return list(days.values())


def _y(value: float, top: int) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / top)


def _stack(each: Hour, x: float, step: float, top: int) -> str:
    parts = []
    below = 0
    for name, _, css in _KINDS:
        count = getattr(each, name)
        if count:
            high, low = _y(below + count, top), _y(below, top)
            parts.append(
                f'<rect class="of {css}" x="{x + step * 0.09:.1f}" y="{high:.1f}" '
                f'width="{step * 0.82:.1f}" height="{low - high:.1f}" rx="1"/>'
            )
            below += count
    return "".join(parts)


def _grid(top: int) -> str:
    parts = []
    for value in (0, top // 4, top // 2, top * 3 // 4, top):
        y = _y(value, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,}</text>')
    return "".join(parts)


def _times(bars: Sequence[Hour], step: float) -> str:
    """Name the days where they begin, and hours in between where there is room."""
    is_daily = len(bars) > 1 and bars[1].start - bars[0].start >= timedelta(days=1)
    days = len({each.start.date() for each in bars})
    every = max(math.ceil(days / _LABELS), 1)
    hours = (0, 12) if days > 2 else (0, 3, 6, 9, 12, 15, 18, 21)
    parts = []
    seen = 0
    for index, each in enumerate(bars):
        x = _LEFT + index * step
        begins = is_daily or each.start.hour == 0
        if begins:
            seen += 1
        if begins and (seen - 1) % every == 0:
            text = f"{each.start:%d %b}"
        elif not begins and every == 1 and days <= _LABELS // 2 and each.start.hour in hours:
            text = f"{each.start:%H:00}"
        else:
            continue
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_y(0, 1):.1f}" '
            f'y2="{_HEIGHT - _BOTTOM + 6}"/>'
            f'<text x="{x + 3:.1f}" y="{_HEIGHT - 10}">{text}</text>'
        )
    return "".join(parts)


def _round_up(value: int) -> int:
    """Return the next number that has four round quarters: 4, 8, 12, 16, 20, 24, 32, 40 …"""
    step = 1
    while True:
        for factor in (4, 8, 12, 16, 20, 24, 32):
            if step * factor >= value:
                return step * factor
        step *= 10


# --- status and sessions -------------------------------------------------------------------------


def _ring(report: AccessReport) -> str:
    """Draw the classes of status as a ring, and the codes beside it."""
    counts = [
        (label, css, sum(getattr(each, name) for each in report.hours))
        for name, label, css in _KINDS
    ]
    total = sum(count for _, _, count in counts) or 1
    around = 2 * math.pi * _RADIUS
    parts = []
    passed = 0.0
    for label, css, count in counts:
        length = around * count / total
        if count:
            parts.append(
                f'<circle class="of {css}" cx="100" cy="100" r="{_RADIUS}" '
                f'stroke-dasharray="{length:.2f} {around - length:.2f}" '
                f'stroke-dashoffset="{around / 4 - passed:.2f}">'
                f"<title>{label}: {count:,}</title></circle>"
            )
        passed += length
    # "Not found" is an answer; only an error of the server is none.
    answered = 100 * sum(each[2] for each in counts[:3]) / total if report.hits else 0.0
    return (
        '<div class="ring"><svg viewBox="0 0 200 200" role="img" aria-label="hits by status">'
        f"{''.join(parts)}"
        f'<text class="big" x="100" y="104" text-anchor="middle">{answered:.1f} %</text>'
        '<text x="100" y="124" text-anchor="middle">answered</text></svg>'
        f"{_rows(report.statuses, css=_css_of_status)}</div>"
    )


def _css_of_status(status: str) -> str:
    return next((css for _, label, css in _KINDS if label[0] == status[:1]), "bar")


def _columns(counts: Sequence[Counted]) -> str:
    """Draw a column for each class."""
    width, height, base = 520, 250, 214
    most = max((each.count for each in counts), default=0) or 1
    step = width / max(len(counts), 1)
    parts = [f'<line class="grid" x1="0" x2="{width}" y1="{base}" y2="{base}"/>']
    for index, each in enumerate(counts):
        x = index * step
        tall = (base - 34) * each.count / most
        middle = x + step / 2
        parts.append(
            f'<rect class="of bar" x="{x + step * 0.17:.1f}" y="{base - tall:.1f}" '
            f'width="{step * 0.66:.1f}" height="{tall:.1f}" rx="3"/>'
            f'<text x="{middle:.1f}" y="{base - tall - 8:.1f}" text-anchor="middle">'
            f"{each.count:,}</text>"
            f'<text x="{middle:.1f}" y="{base + 22}" text-anchor="middle">'
            f"{escape(each.name)}</text>"
        )
    return (
        f'<svg class="few" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="sessions by number of hits">'
        f"{''.join(parts)}</svg>"
    )


def _rows(counts: Sequence[Counted], *, css: Callable[[str], str] = lambda name: "bar") -> str:
    """Draw names with bars behind them."""
    if not counts:
        return "<p>none</p>"
    most = max(each.count for each in counts) or 1
    rows = "".join(
        f'<div class="row {css(each.name)}"><div style="--share:{100 * each.count / most:.1f}%" '
        f'title="{escape(each.name)}">{escape(each.name)}</div><span>{each.count:,}</span></div>'
        for each in counts
    )
    return f'<div class="rows">{rows}</div>'
