"""Text that came from somewhere else.

A node, a BMC or a switch may send anything. What they send is cleaned here, once, at the wire; after that it is
drawn literally and never parsed as markup.
"""

from __future__ import annotations

import re

MAX_TEXT = 512
"""Longest text kept from one remote value, in characters."""

# C0 and C1 controls, DEL, zero-width and bidirectional controls, line and paragraph separators, the byte order
# mark, tag characters, variation selectors (terminals disagree about their width) and lone surrogates.
_HOSTILE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164"
    "\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
# Of these what is never part of a word: controls but for tab and line ends, separators, changes of direction.
_ORDER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def order(value: str) -> str:
    """The first character of *value* that a terminal may take as an order and draws nothing of; empty: none."""
    found = _ORDER.search(value)
    return found[0] if found else ""


def clean(value: str | bytes, limit: int = MAX_TEXT) -> str:
    """Return *value* as one line of printable text of at most *limit* characters.

    Bytes are decoded as UTF-8 with U+FFFD for what is not. Tabs and newlines become blanks, as do blanks of
    other widths; escape sequences lose their ESC and so their meaning. What is left is printable (``str.isprintable``).
    """
    if isinstance(value, bytes):
        value = value[: limit * 4].decode("utf-8", errors="replace")
    if value.isascii() and value.isprintable():
        return value if len(value) <= limit else value[: limit - 1] + "…"
    value = value.replace("\t", " ").replace("\n", " ").replace("\r", "")
    value = _HOSTILE.sub("", value)
    if not value.isprintable():
        # Blanks of other widths, code points that nobody has given a meaning, private ones: a terminal may do anything.
        value = "".join(" " if one.isspace() else one for one in value if one.isprintable() or one.isspace())
    return value if len(value) <= limit else value[: limit - 1] + "…"
