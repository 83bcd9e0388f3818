"""A dashboard as one SVG, drawn from the answers that its queries gave: what Grafana would show, without Grafana."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

from deploy.checks.dashboards import COLUMNS, Dashboard, Panel
from deploy.checks.live.prometheus import Series
from deploy.checks.live.run import Findings

CELL_WIDTH, CELL_HEIGHT, GAP, TOP = 42, 24, 8, 44
_LEFT, _RIGHT, _HEAD, _FOOT = 48, 10, 28, 46
_COLOURS: Final = ("#3274d9", "#e0752d", "#56a64b", "#a352cc", "#e02f44", "#8a8a8a", "#14a0a0", "#c9a300")
_MOST_LINES: Final = 8
_MOST_POINTS: Final = 60
_LEGEND_LETTERS: Final = 50
_THOUSAND: Final = 1000
_STYLE: Final = (
    "text{font:11px sans-serif;fill:#333}.t{font-weight:bold;font-size:12px}.h{font-weight:bold;font-size:17px}"
    ".s{font-size:9px;fill:#666}.n{font-size:28px;font-weight:bold}"
)


@dataclass(frozen=True, slots=True)
class _Line:
    legend: str
    points: tuple[tuple[float, float], ...]


def draw(dashboard: Dashboard, findings: Findings) -> str:
    """The SVG."""
    width = COLUMNS * CELL_WIDTH + GAP
    height = (
        max(y + h for _, y, _, h in (panel.place for panel in dashboard.panels)) * CELL_HEIGHT + GAP + TOP
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>',
        f'<text class="h" x="{GAP}" y="28">{escape(dashboard.title)}</text>',
        f'<text class="s" x="{width - GAP}" y="28" text-anchor="end">{findings.end - findings.begin:.0f} s under load, '
        "one worker killed in the middle</text>",
    ]
    for panel in dashboard.panels:
        x, y, _, _ = panel.place
        parts.append(f'<g transform="translate({x * CELL_WIDTH + GAP} {y * CELL_HEIGHT + TOP})">')
        parts += _panel(panel, _lines(dashboard.name, panel, findings), findings)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _lines(name: str, panel: Panel, findings: Findings) -> list[_Line]:
    lines = [
        _Line(_legend(legend, series), _thinned([point for point in series.points if point[1] == point[1]]))
        for expression, legend in panel.queries
        for series in findings.answers.get((name, panel.title, expression), ())
    ]
    lines.sort(key=lambda line: max((value for _, value in line.points), default=0.0), reverse=True)
    return [line for line in lines if line.points]


def _legend(template: str, series: Series) -> str:
    for label, value in series.labels.items():
        template = template.replace(f"{{{{{label}}}}}", value)
    return template


def _thinned(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    step = max(1, len(points) // _MOST_POINTS)
    return tuple(points[::step])


def _panel(panel: Panel, lines: Sequence[_Line], findings: Findings) -> Iterator[str]:
    width, height = _size(panel)
    if not panel.queries:
        yield f'<text class="t" x="0" y="17">{escape(panel.title)}</text>'
        return
    yield f'<rect width="{width}" height="{height}" rx="3" fill="#fff" stroke="#dcdcdc"/>'
    yield f'<text class="t" x="10" y="18">{escape(panel.title)}</text>'
    if not lines:
        yield f'<text class="s" x="{width / 2}" y="{height / 2}" text-anchor="middle">nothing in this run</text>'
    elif panel.kind == "stat":
        value = lines[0].points[-1][1]
        colour = "#c4162a" if panel.red is not None and value >= panel.red else "#2b7a2b"
        place = f'x="{width / 2}" y="{height / 2 + 20}" text-anchor="middle"'
        yield f'<text class="n" {place} style="fill:{colour}">{_said(value, panel.unit)}</text>'
    else:
        yield from _graph(panel, lines, findings)


def _size(panel: Panel) -> tuple[int, int]:
    _, _, columns, rows = panel.place
    return columns * CELL_WIDTH - GAP, rows * CELL_HEIGHT - GAP


def _graph(panel: Panel, lines: Sequence[_Line], findings: Findings) -> Iterator[str]:
    most = max(value for line in lines for _, value in line.points) or 1.0
    width, height = _size(panel)
    right, bottom = width - _RIGHT, height - _FOOT
    seconds = max(1.0, findings.end - findings.begin)

    def place(point: tuple[float, float]) -> tuple[int, int]:
        at, value = point
        x = _LEFT + (at - findings.begin) / seconds * (right - _LEFT)
        return round(x), round(bottom - value / most * (bottom - _HEAD))

    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - _HEAD)
        yield f'<path d="M{_LEFT} {y}H{right}" stroke="#eee"/>'
        yield f'<text class="s" x="{_LEFT - 4}" y="{y + 3}" text-anchor="end">{_said(most * share, panel.unit)}</text>'
    for line, colour in zip(lines[:_MOST_LINES], _COLOURS, strict=False):
        yield f'<path d="{_path([place(point) for point in line.points])}" fill="none" stroke="{colour}"/>'
    yield from _legends(lines, height - _FOOT + 16)


def _path(places: Sequence[tuple[int, int]]) -> str:
    begin = f"M{places[0][0]} {places[0][1]}"
    return begin + "".join(f"L{x} {y}" for (_, _), (x, y) in pairwise(places))


def _legends(lines: Sequence[_Line], y: int) -> Iterator[str]:
    x, letters = 10, 0
    for line, colour in zip(lines[:_MOST_LINES], _COLOURS, strict=False):
        if letters and letters + len(line.legend) > _LEGEND_LETTERS:
            x, y, letters = 10, y + 12, 0
        yield f'<rect x="{x}" y="{y - 7}" width="7" height="7" fill="{colour}"/>'
        yield f'<text class="s" x="{x + 10}" y="{y}">{escape(line.legend)}</text>'
        x, letters = x + 18 + 5 * len(line.legend), letters + len(line.legend) + 3


def _said(value: float, unit: str) -> str:
    """A value with its unit, as short as it is clear."""
    if unit == "percentunit":
        return f"{value * 100:.0f} %"
    if unit == "s":
        return f"{value * _THOUSAND:.3g} ms" if 0 < value < 1 else f"{value:.3g} s"
    number = f"{value / _THOUSAND:.3g} k" if value >= _THOUSAND else f"{value:.3g}"
    return f"{number}/s" if unit in ("ops", "reqps") else number
