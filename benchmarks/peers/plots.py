"""Bars with their spread, as SVG, without any library."""

from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 760, 210, 130, 20, 9, 46
OURS, THEIRS, INK, FAINT = "#1f6f8b", "#b0b7bd", "#222222", "#dddddd"


def number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def bars(path: Path, title: str, unit: str, rows: list[tuple[str, dict]]) -> None:
    """Draws one bar for each (name, spread); a spread has median, min and max."""
    height = TOP + len(rows) * (BAR + GAP) + 14
    most = max(spread["max"] for _, spread in rows) or 1.0
    room = WIDTH - LEFT - RIGHT

    def at(value: float) -> float:
        return LEFT + room * value / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-size="15" fill="{INK}">{escape(title)}</text>',
        f'<text x="{WIDTH - 10}" y="22" text-anchor="end" fill="{INK}">{escape(unit)}</text>',
    ]
    for quarter in range(5):
        x = at(most * quarter / 4)
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
