"""The marks the console draws, each with an ASCII twin, and text cut and padded by terminal cells."""

from __future__ import annotations

import locale
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TWINS = str.maketrans({
    "°": "", "…": ">", "–": "-", "—": "-", "×": "x", "µ": "u", "·": ".", "≥": ">=", "≤": "<=", "→": "->", "’": "'",
})
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of marks. Every status mark is one narrow cell (East Asian Width N or Na)."""

    ascii: bool
    ok: str
    unknown: str
    info: str
    warning: str
    critical: str
    stale: str
    lost: str
    released: str
    ascending: str
    descending: str
    pointer: str
    dot: str
    more: str

    def marks(self) -> tuple[str, ...]:
        """Every status mark."""
        return (self.ok, self.unknown, self.info, self.warning, self.critical, self.stale, self.lost, self.released,
                self.ascending,
                self.descending, self.pointer, self.dot)

    def plain(self, text: str) -> str:
        """Return *text* as this set may show it: unchanged, or in ASCII with ``?`` for what has no twin."""
        if not self.ascii or text.isascii():
            return text
        return text.translate(_TWINS).encode("ascii", "replace").decode("ascii")

    def fit(self, text: str, width: int, align: str = "<") -> str:
        """Return *text* in exactly *width* cells, cut on grapheme borders; ``align`` is ``<`` or ``>``."""
        text = self.plain(text)
        if text.isascii():
            size = len(text)
            if size > width:
                return text[: width - 1] + self.more if width > 0 else ""
        else:
            size = cell_len(text)
            if size > width:
                text = self._cut(text, width)
                size = cell_len(text)
        pad = " " * (width - size)
        return pad + text if align == ">" else text + pad

    def _cut(self, text: str, width: int) -> str:
        if width <= 0:
            return ""
        out, used = [], 0
        for cluster in _clusters(text):
            size = cell_len(cluster)
            if used + size > width - 1:
                break
            out.append(cluster)
            used += size
        return "".join(out) + self.more

    def spark(self, values: Sequence[float], width: int, lo: float, hi: float) -> str:
        """Return the newest *values* as *width* cells between *lo* and *hi*; unknown (NaN) leaves a gap."""
        span = (hi - lo) or 1.0
        if self.ascii:
            ramp = "_.-=*#"
            return "".join(
                " " if value != value else ramp[min(5, max(0, int((value - lo) / span * 6)))]
                for value in values[-width:]
            ).rjust(width)
        levels = [0 if value != value else 1 + min(3, max(0, int((value - lo) / span * 4)))
                  for value in values[-2 * width:]]
        levels = [0] * (2 * width - len(levels)) + levels
        return "".join(
            chr(0x2800 + _LEFT[levels[at]] + _RIGHT[levels[at + 1]]) if levels[at] or levels[at + 1] else " "
            for at in range(0, 2 * width, 2)
        )


UNICODE = Glyphs(False, ok="∙", unknown="?", info="i", warning="▴", critical="▮", stale="~", lost="X",
                 released="◦", ascending="▴", descending="▾", pointer="▸", dot="∙", more="…")
ASCII = Glyphs(True, ok=".", unknown="?", info="i", warning="!", critical="#", stale="~", lost="X",
               released="o", ascending="^", descending="v", pointer=">", dot="-", more=">")


def utf8_locale() -> bool:
    """Whether the user's locale draws UTF-8."""
    return locale.getpreferredencoding(False).lower().replace("-", "") in {"utf8", "utf_8"}


def _clusters(text: str) -> Iterator[str]:
    """Characters with whatever of no width follows them."""
    held = ""
    for char in text:
        if held and cell_len(char) == 0:
            held += char
            continue
        if held:
            yield held
        held = char
    if held:
        yield held
