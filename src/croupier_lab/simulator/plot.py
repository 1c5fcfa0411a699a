"""Plots as plain SVG: a few lines and some text, which every browser and code host can show.

A plotting library would be the largest dependency of the package.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from croupier.core.market.units import SECOND
from croupier_lab.simulator.replay import MinuteTotals, ReplayScore

WIDTH: Final = 860
HEIGHT: Final = 320
LEFT: Final = 64
RIGHT: Final = 170
TOP: Final = 40
BOTTOM: Final = 44
MIN_VALUE: Final = 1e-6
STEPS: Final = (1, 2, 5, 10, 20, 30, 60, 120, 240, 480, 1440)
MAX_STEPS: Final = 8
COLOURS: Final = ("#7f7f7f", "#d62728", "#ff7f0e", "#1f77b4", "#2ca02c", "#9467bd")


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    unit: str
    value: Callable[[MinuteTotals, int], float]
    """Value of one minute; the second argument is the number of pods."""
    of_limits: bool = False
    """The chart is meaningless without limits."""


CHARTS: Final[Mapping[str, Chart]] = {
    "late": Chart(
        "Late work",
        "CPU spent on work that had waited too long",
        lambda minute, _: minute.late / _micros(minute),
    ),
    "throttling": Chart(
        "Throttling",
        "% of pods throttled by their limit",
        lambda minute, pods: 100 * minute.throttled / (pods * minute.seconds),
    ),
    "slack": Chart(
        "Slack",
        "CPU allowed by limits and not used",
        lambda minute, _: minute.slack / _micros(minute),
        of_limits=True,
    ),
    "resizes": Chart(
        "Resizes",
        "per pod and hour",
        lambda minute, pods: 3600 * minute.resizes / (pods * minute.seconds),
    ),
}


def draw(scores: Sequence[ReplayScore]) -> dict[str, str]:
    """SVG documents by name, with one line per policy and one point per minute."""
    return {name: _drawn(chart, scores) for name, chart in CHARTS.items()}


def _micros(minute: MinuteTotals) -> int:
    return minute.seconds * SECOND


def _drawn(chart: Chart, scores: Sequence[ReplayScore]) -> str:
    series = {
        score.name: [chart.value(minute, score.pods) for minute in score.minutes]
        for score in scores
        if score.slack is not None or not chart.of_limits
    }
    top = _round_up(max((max(values) for values in series.values()), default=0.0))
    minutes = max(len(score.minutes) for score in scores)
    parts = [
        _text(LEFT, 22, chart.title, size=15, bold=True),
        _text(LEFT + 110, 22, chart.unit),
        *_axes(top, minutes),
    ]
    colours = {score.name: COLOURS[index % len(COLOURS)] for index, score in enumerate(scores)}
    for index, (name, values) in enumerate(series.items()):
        colour = colours[name]
        row = TOP + 14 + 20 * index
        edge = WIDTH - RIGHT + 14
        parts.append(_path(values, top, minutes, colour))
        parts.append(f'<path d="M{edge} {row - 4}h18" stroke="{colour}" stroke-width="3"/>')
        parts.append(_text(edge + 24, row, name))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="none">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def _axes(top: float, minutes: int) -> list[str]:
    parts = []
    for step in range(5):
        value = top * step / 4
        y = _y(value, top)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{value:.3g}", anchor="end"))
    parts.extend(
        _text(_x(minute, minutes), HEIGHT - BOTTOM + 18, str(minute), anchor="middle")
        for minute in range(0, minutes, _step(minutes))
    )
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "minutes", anchor="middle"))
    return parts


def _path(values: Sequence[float], top: float, minutes: int, colour: str) -> str:
    points = " ".join(f"{_x(index, minutes):.1f},{_y(value, top):.1f}" for index, value in enumerate(values))
    return f'<polyline points="{points}" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round"/>'


def _x(minute: int, minutes: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * minute / max(1, minutes - 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight} fill="#333333">'
        f"{escape(words)}</text>"
    )


def _step(minutes: int) -> int:
    """The distance of two numbers on the axis."""
    return next((step for step in STEPS if minutes <= MAX_STEPS * step), STEPS[-1])


def _round_up(value: float) -> float:
    """To a number that is easy to read when divided by four; never 0."""
    if value < MIN_VALUE:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10, 20) if size * step >= value)
