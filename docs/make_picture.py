"""Draw docs/console.svg from the real console over a fleet made by code, and bring docs/console.md's keys up to date.

    python docs/make_picture.py [SCREEN] [WIDTHxHEIGHT] [-o FILE] [--theme NAME]

The picture holds no font and no link: plain text on plain rectangles, which every viewer draws alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "tui"))
os.environ.update(TEXTUAL_COLOR_SYSTEM="truecolor", TEXTUAL_ANIMATIONS="none")

from rich.cells import cell_len  # noqa: E402
from rich.terminal_theme import DIMMED_MONOKAI  # noqa: E402

from clustertop.tui.actions import markdown  # noqa: E402
from clustertop.tui.app import ConsoleApp  # noqa: E402
from fleet import FleetSource, faulty  # noqa: E402

if TYPE_CHECKING:
    from rich.color import Color
    from rich.segment import Segment

WIDE, TALL, MARGIN = 8.4, 18, 14
BEGIN, END = "<!-- keys: made by docs/make_picture.py -->", "<!-- end of keys -->"


def _hex(color: Color | None, default: str, *, foreground: bool) -> str:
    if color is None or color.is_default:
        return default
    red, green, blue = color.get_truecolor(DIMMED_MONOKAI, foreground=foreground)
    return f"#{red:02x}{green:02x}{blue:02x}"


def svg(lines: list[list[Segment]], width: int, text: str, background: str) -> str:
    """Return *lines* of segments as a picture."""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width * WIDE + 2 * MARGIN:.0f} '
        f'{len(lines) * TALL + 2 * MARGIN}" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'
        f"'DejaVu Sans Mono',monospace\" font-size=\"14\">",
        f'<rect width="100%" height="100%" rx="8" fill="{background}"/>',
    ]
    words: list[str] = []
    for y, line in enumerate(lines):
        x = 0
        top = MARGIN + y * TALL
        for segment in line:
            cells = cell_len(segment.text)
            style = segment.style
            color = _hex(style.color if style else None, text, foreground=True)
            fill = _hex(style.bgcolor if style else None, background, foreground=False)
            if style is not None and style.reverse:
                color, fill = fill, color
            left = MARGIN + x * WIDE
            if fill != background:
                out.append(f'<rect x="{left:.1f}" y="{top}" width="{cells * WIDE:.1f}" height="{TALL}" fill="{fill}"/>')
            body = segment.text.rstrip()
            skip = len(body) - len(body.lstrip())
            body = body.lstrip()
            if body:
                bold = ' font-weight="bold"' if style is not None and style.bold else ""
                words.append(
                    f'<text x="{left + skip * WIDE:.1f}" y="{top + 13.5}" fill="{color}"{bold} xml:space="preserve" '
                    f'textLength="{cell_len(body) * WIDE:.1f}" lengthAdjust="spacingAndGlyphs">{escape(body)}</text>')
            x += cells
    return "\n".join([*out, *words, "</svg>"]) + "\n"


async def picture(
    source: FleetSource, keys: list[str], size: tuple[int, int], theme: str, *, ascii_only: bool = False
) -> tuple[str, str]:
    """Return the console's screen after *keys* as SVG and as text."""
    app = ConsoleApp(source, theme_name=theme, ascii_only=ascii_only)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for key in keys:
            if key.startswith("type:"):
                await pilot.press(*key[5:])
            else:
                await pilot.press(key)
            await pilot.pause()
        await pilot.pause()
        app.say("")
        app._said = ("", 0.0)
        app.draw_front()
        await pilot.pause()
        lines = [list(strip) for strip in app.screen._compositor.render_strips()]
        colors = app.themes[app.theme_name].colors
    text = "\n".join("".join(piece.text for piece in line).rstrip() for line in lines)
    named = {"default": "#12161c"}
    return svg(lines, size[0], named.get(colors["text"], colors["text"]) if colors["text"] != "default" else "#d5dbe3",
               named.get(colors["background"], colors["background"])), text


def keys_into(page: Path) -> None:
    """Put the table of keys between its marks in *page*."""
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{markdown()}\n{END}{tail}", encoding="utf-8")


def main() -> None:
    """Write the picture and the keys."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("screen", nargs="?", default="1,n", help="keys to press, with commas between")
    parser.add_argument("size", nargs="?", default="120x34")
    parser.add_argument("-o", default=str(HERE / "console.svg"))
    parser.add_argument("--theme", default="dark")
    parser.add_argument("--ascii", action="store_true")
    parser.add_argument("--text", action="store_true", help="also print the screen as text")
    options = parser.parse_args()
    wide, tall = (int(part) for part in options.size.split("x"))
    made, text = asyncio.run(picture(faulty(), options.screen.split(","), (wide, tall), options.theme,
                                     ascii_only=options.ascii))
    Path(options.o).write_text(made, encoding="utf-8")
    if options.text:
        print(text)
    keys_into(HERE / "console.md")


if __name__ == "__main__":
    main()
