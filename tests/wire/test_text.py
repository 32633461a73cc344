"""What is left of text from elsewhere."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.text import MAX_TEXT, clean


@given(st.text() | st.binary(), st.integers(1, 40))
def test_what_is_left_is_one_printable_line_within_the_limit_and_cleaned_once(value: str | bytes, limit: int) -> None:
    left = clean(value, limit)
    assert left.isprintable()
    assert len(left) <= limit
    assert clean(left, limit) == left


def test_every_code_point() -> None:
    bad = [f"U+{code:04X}" for code in range(sys.maxunicode + 1) if not clean(f"a{chr(code)}b").isprintable()]
    assert bad == []


@pytest.mark.parametrize(("value", "left"), [
    ("plain text", "plain text"),
    ("", ""),
    ("rack\t7\nrow 2\r", "rack 7 row 2"),
    ("\x1b[31mred\x1b]0;title\x07", "[31mred]0;title"),
    ("\u30e9\u30c3\u30af \u00fc\u00df \U0001f525", "\u30e9\u30c3\u30af \u00fc\u00df \U0001f525"),
    ("5\u00a0A\u30001\u2009m", "5 A 1 m"),
    ("a\ud7fcb\ue000c\U000f0000d", "abcd"),
    ("pdu\u202efdp\u200b\ufeff", "pdufdp"),
    (b"caf\xc3\xa9 \xff\x00", "caf\u00e9 \ufffd"),
])
def test_examples(value: str | bytes, left: str) -> None:
    assert clean(value) == left


def test_the_cut_is_marked() -> None:
    assert clean("x" * (MAX_TEXT + 1)) == "x" * (MAX_TEXT - 1) + "…"
    assert clean("\u30e9" * 9, 4) == "\u30e9\u30e9\u30e9…"
    assert clean(b"y" * 5000, 4) == "yyy…"
