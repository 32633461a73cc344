"""Bytes in, payloads out: takes apart what a probe's stdout carries, whatever is mixed into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.wire.frame import MAX_FRAME

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LINE = MAX_FRAME + 4096
"""Longest line kept, in bytes: the longest payload, its marks, and some noise before them."""
SAMPLE = 200
"""Bytes kept of a line that is not a frame."""


class Framer:
    """Splits a byte stream into lines and takes the payload strictly from between the marks of one *nonce*.

    Args:
        nonce: the random hex digits of this connection.
        on_payload: called with each payload.
        on_word: called with the words of a line ``@@CT1 <nonce> word ...@@``.
        on_noise: called with ``noise``, ``truncated`` or ``oversized`` and the beginning of what it was.
    """

    __slots__ = (
        "_end", "_kept", "_noise", "_payload", "_skipping", "_start", "_word",
        "noise", "oversized", "truncated",
    )  # fmt: skip

    def __init__(
        self,
        nonce: str,
        on_payload: Callable[[bytes], None],
        on_word: Callable[[bytes], None],
        on_noise: Callable[[str, bytes], None],
    ) -> None:
        self._start = f"@@CT1 {nonce} ".encode()
        self._end = f" {nonce} CT1@@".encode()
        self._payload = on_payload
        self._word = on_word
        self._noise = on_noise
        self._kept = bytearray()
        self._skipping = False
        self.noise = 0
        """Lines, or parts of lines, that were not ours."""
        self.truncated = 0
        self.oversized = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream, split anywhere."""
        newline = data.find(b"\n")
        if newline < 0:
            self._keep(data)
            return
        start = self._start
        if newline == len(data) - 1 and not self._kept and not self._skipping and data.startswith(start):
            # Nearly always: exactly one line, and it is a frame.
            size = len(start)
            end = len(data) - len(self._end) - 1
            if data[size] == 0x7B and data.find(self._end, size) == end:
                self._payload(data[size:end])
                return
        begin = 0
        while newline >= 0:
            self._take(data[begin:newline])
            begin = newline + 1
            newline = data.find(b"\n", begin)
        if begin < len(data):
            self._keep(data[begin:])

    def redirect(self, on_payload: Callable[[bytes], None]) -> None:
        """Give payloads to another from now on."""
        self._payload = on_payload

    def close(self) -> None:
        """The stream ended: what is left of a line is truncated or noise."""
        self._take(b"")

    def _take(self, part: bytes) -> None:
        """A line is over, *part* is its last piece."""
        if self._skipping:
            self._skipping = False
        elif len(self._kept) + len(part) > MAX_LINE:
            self._too_long(part)
            self._skipping = False
        elif self._kept:
            self._kept += part
            line = bytes(self._kept)
            self._kept.clear()
            self._line(line)
        else:
            self._line(part)

    def _keep(self, data: bytes) -> None:
        if self._skipping:
            return
        if len(self._kept) + len(data) > MAX_LINE:
            self._too_long(data)
        else:
            self._kept += data

    def _too_long(self, data: bytes) -> None:
        sample = bytes(self._kept[:SAMPLE]) + data[:SAMPLE]
        self._kept.clear()
        self._skipping = True
        self.oversized += 1
        self._noise("oversized", sample[:SAMPLE])

    def _line(self, line: bytes) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        start = line.find(self._start)
        if start < 0:
            if line:
                self._count_noise(line)
            return
        if start:
            self._count_noise(line[:start])
        start += len(self._start)
        if line[start : start + 1] == b"{":
            end = line.find(self._end, start)
            if end < 0:
                self.truncated += 1
                self._noise("truncated", line[start : start + SAMPLE])
                return
            if end + len(self._end) < len(line):
                self._count_noise(line[end + len(self._end) :])
            self._payload(line[start:end])
            return
        end = line.find(b"@@", start)
        if end < 0:
            self.truncated += 1
            self._noise("truncated", line[start : start + SAMPLE])
        else:
            self._word(line[start:end])

    def _count_noise(self, line: bytes) -> None:
        self.noise += 1
        self._noise("noise", line[:SAMPLE])
