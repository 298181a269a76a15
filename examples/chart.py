"""Lines of points as SVG, and a style, for the pages that the demos write."""

from __future__ import annotations

import html

import numpy as np

Point = tuple[float, float]

STYLE = """\
 body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #223 }
 table { border-collapse: collapse; margin: 1rem 0; width: 100% }
 td, th { padding: .25rem .5rem; text-align: left; border-bottom: 1px solid #dde; overflow-wrap: break-word }
 .n { text-align: right; font-variant-numeric: tabular-nums }
 img, svg { display: block; width: 100%; height: auto } svg { max-width: 42rem }
 .ok { color: #176b34; font-weight: 600 } .small { color: #556; font-size: .9rem }
"""
"""What the pages look like."""

WIDTH, HEIGHT = 640, 330
LEFT, RIGHT, TOP, BOTTOM = 70, 625, 15, 275
COLOURS = ["#c1440e", "#1b6ca8", "#2a7f3e", "#7a3f9d", "#8a6d00", "#444444"]


def ticks(low: float, high: float) -> list[float]:
    """Some round numbers from `low` to `high`."""
    wide = max(high - low, 1e-12)
    decade = 10.0 ** np.floor(np.log10(wide))
    step = next(decade * part for part in (0.1, 0.2, 0.5, 1, 2, 5) if wide / (decade * part) <= 7)
    return [float(at) for at in np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step]


def chart(
    lines: dict[str, list[Point]],
    x_name: str,
    y_name: str,
    marks: dict[str, float],
    *,
    powers: bool = False,
    spans: list[tuple[float, float]] | None = None,
) -> str:
    """Lines of points as SVG. With `powers` the y of a point is a power of ten; `spans` of x are shaded."""
    points = [point for line in lines.values() for point in line]
    x_low, x_high = min(p[0] for p in points), max(p[0] for p in points)
    y_low, y_high = min(p[1] for p in points), max(p[1] for p in points)
    if y_high - y_low < 1e-12:
        y_low, y_high = y_low - 1, y_high + 1

    def x(at: float) -> float:
        return LEFT + (RIGHT - LEFT) * (at - x_low) / max(x_high - x_low, 1e-12)

    def y(at: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (at - y_low) / (y_high - y_low)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="13" font-family="system-ui, sans-serif" fill="#223" '
             f'aria-label="{html.escape(y_name)} against {html.escape(x_name)}">']
    for begin, end in spans or []:
        parts.append(f'<rect x="{x(begin):.1f}" y="{TOP}" width="{x(end) - x(begin):.1f}" height="{BOTTOM - TOP}" fill="#f6d9d3"/>')
    for at in ticks(y_low, y_high):
        if powers and at % 1:
            continue
        text = f'10<tspan dy="-5" font-size="10">{at:.0f}</tspan>' if powers else f"{at:g}"
        parts.append(f'<path d="M{LEFT} {y(at):.1f}H{RIGHT}" stroke="#e2e2ea"/>'
                     f'<text x="{LEFT - 8}" y="{y(at) + 4:.1f}" text-anchor="end">{text}</text>')
    for at in ticks(x_low, x_high):
        parts.append(f'<path d="M{x(at):.1f} {BOTTOM}v5" stroke="#889"/>'
                     f'<text x="{x(at):.1f}" y="{BOTTOM + 20}" text-anchor="middle">{at:g}</text>')
    parts.append(f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#889"/>'
                 f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 40}" text-anchor="middle">{html.escape(x_name)}</text>'
                 f'<text transform="translate(16 {(TOP + BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_name)}</text>')
    for index, (name, at) in enumerate(marks.items()):
        parts.append(f'<path d="M{x(at):.1f} {TOP}V{BOTTOM}" stroke="#a11" stroke-width="2" stroke-dasharray="6 4"/>'
                     f'<text x="{x(at) + 6:.1f}" y="{TOP + 14 + 16 * index}" fill="#a11">{html.escape(name)}</text>')
    for index, (name, line) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in line)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        if len(lines) > 1:
            key = (TOP + BOTTOM) / 2 + 18 * index if len(lines) == 2 else BOTTOM - 18 * (len(lines) - index)
            parts.append(f'<path d="M{RIGHT - 170} {key}h24" stroke="{colour}" stroke-width="3"/>'
                         f'<text x="{RIGHT - 140}" y="{key + 4}">{html.escape(name)}</text>')
    return "".join(parts) + "</svg>"
