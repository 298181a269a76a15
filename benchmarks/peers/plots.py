"""Bars with their spread, and lines, as SVG, without any library."""

import math
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 760, 210, 130, 20, 9, 46
OURS, THEIRS, INK, FAINT = "#1f6f8b", "#b0b7bd", "#222222", "#dddddd"


def number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def head(height: int, title: str, unit: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-size="15" fill="{INK}">{escape(title)}</text>',
        f'<text x="{WIDTH - 10}" y="22" text-anchor="end" fill="{INK}">{escape(unit)}</text>',
    ]


def bars(
    path: Path, title: str, unit: str, rows: list[tuple[str, dict]], least: float | None = None
) -> None:
    """Draws one bar for each (name, spread); a spread has median, min and max.

    With `least` the axis is logarithmic and begins there.
    """
    height = TOP + len(rows) * (BAR + GAP) + 14
    most = max(spread["max"] for _, spread in rows) or 1.0
    space = WIDTH - LEFT - RIGHT

    def at(value: float) -> float:
        if least is None:
            return LEFT + space * value / most
        decades = math.log10(max(value, least) / least)
        return LEFT + space * decades / math.log10(most / least)

    parts = head(height, title, unit)
    ticks = [most * quarter / 4 for quarter in range(5)]
    if least is not None:
        ticks = [least * 10**power for power in range(math.floor(math.log10(most / least)) + 1)]
        parts += [
            f'<text x="{at(tick):.1f}" y="{height - 1}" text-anchor="middle" font-size="10" '
            f'fill="{INK}">{tick:g}</text>'
            for tick in ticks
        ]
    for tick in ticks:
        x = at(tick)
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 12}" stroke="{FAINT}"/>'
        )
    for index, (name, spread) in enumerate(rows):
        y = TOP + index * (BAR + GAP)
        middle = y + BAR / 2
        fill = OURS if name.startswith("Thalweg") else THEIRS
        parts += [
            f'<text x="{LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end" fill="{INK}">'
            f"{escape(name)}</text>",
            f'<rect x="{LEFT}" y="{y}" width="{at(spread["median"]) - LEFT:.1f}" '
            f'height="{BAR}" fill="{fill}"/>',
            f'<line x1="{at(spread["min"]):.1f}" y1="{middle}" x2="{at(spread["max"]):.1f}" '
            f'y2="{middle}" stroke="{INK}" stroke-width="1.5"/>',
            f'<text x="{at(spread["max"]) + 8:.1f}" y="{middle + 4:.1f}" fill="{INK}">'
            f'{number(spread["median"])}</text>',
        ]
    parts.append("</svg>")
    path.write_text("\n".join(parts) + "\n")


def lines(
    path: Path, title: str, unit: str, steps: list[str], rows: list[tuple[str, list[dict]]]
) -> None:
    """Draws one line for each (name, a spread for each step); the axis is logarithmic."""
    height, bottom, right = 300, 262, WIDTH - 250
    spreads = [spread for _, row in rows for spread in row]
    low = min(spread["min"] for spread in spreads)
    high = max(spread["max"] for spread in spreads)

    def y(value: float) -> float:
        return bottom - (bottom - TOP) * math.log(value / low) / math.log(high / low)

    xs = [70 + (right - 70) * step / (len(steps) - 1) for step in range(len(steps))]
    parts = head(height, title, unit)
    for x, step in zip(xs, steps):
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{FAINT}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 22}" text-anchor="middle" fill="{INK}">'
            f"{escape(step)}</text>"
        )
    for tick in (1, 3, 10, 30, 100, 300, 1000, 3000):
        if low <= tick <= high:
            parts.append(
                f'<line x1="70" y1="{y(tick):.1f}" x2="{right}" y2="{y(tick):.1f}" stroke="{FAINT}"/>'
            )
            parts.append(
                f'<text x="62" y="{y(tick) + 4:.1f}" text-anchor="end" fill="{INK}">{tick}</text>'
            )
    # Names stand at the lines' ends, and a line's height apart.
    names: dict[str, float] = {}
    for name, row in sorted(rows, key=lambda row: y(row[1][-1]["median"])):
        names[name] = max(y(row[-1]["median"]) + 4, max(names.values(), default=0) + 16)
    for name, row in rows:
        color = OURS if name.startswith("Thalweg") else "#7a848c"
        dash = ' stroke-dasharray="6 4"' if "shm" in name else ""
        points = " ".join(f"{x:.1f},{y(spread['median']):.1f}" for x, spread in zip(xs, row))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>'
        )
        for x, spread in zip(xs, row):
            parts.append(
                f'<line x1="{x:.1f}" y1="{y(spread["min"]):.1f}" x2="{x:.1f}" '
                f'y2="{y(spread["max"]):.1f}" stroke="{color}"/>'
            )
        parts.append(
            f'<text x="{right + 10}" y="{names[name]:.1f}" fill="{INK}">'
            f"{escape(name)}</text>"
        )
    parts.append("</svg>")
    path.write_text("\n".join(parts) + "\n")
