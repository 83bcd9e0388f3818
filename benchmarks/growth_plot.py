"""Draws the growth table as one picture: a pair of bars a row, in plain SVG."""

from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 760
LABELS: Final = 280
BAR: Final = 11
STEP: Final = 34


def draw(rows: Sequence[tuple[str, float, float]]) -> str:
    """Rows of (label, median, 95th percentile) in milliseconds as the text of an SVG."""
    most = max(p95 for _, _, p95 in rows)
    scale = (WIDTH - LABELS - 90) / most
    height = STEP * len(rows) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        '<text x="8" y="18" font-weight="bold">One claim, in ms: median (light) and 95th percentile (dark)</text>',
    ]
    for number, (label, median, p95) in enumerate(rows):
        top = 32 + number * STEP
        lines += [
            f'<text x="8" y="{top + 14}">{escape(label)}</text>',
            f'<rect x="{LABELS}" y="{top}" width="{median * scale:.1f}" height="{BAR}" fill="#9ecae1"/>',
            f'<rect x="{LABELS}" y="{top + BAR}" width="{p95 * scale:.1f}" height="{BAR}" fill="#2171b5"/>',
            f'<text x="{LABELS + p95 * scale + 6:.1f}" y="{top + BAR + 9}">{p95:.1f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
