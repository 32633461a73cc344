"""The framer takes payloads strictly from between its marks, however the stream is cut."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.wire.frame import MAX_FRAME
from clustertop.wire.framer import MAX_LINE, Framer

NONCE = "0123456789abcdef"


class Out:
    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.words: list[bytes] = []
        self.noise: list[tuple[str, bytes]] = []
        self.framer = Framer(NONCE, self.payloads.append, self.words.append, lambda *a: self.noise.append(a))


def line(payload: bytes, nonce: str = NONCE) -> bytes:
    return b"@@CT1 %s %s %s CT1@@\n" % (nonce.encode(), payload, nonce.encode())


def feed(*chunks: bytes) -> Out:
    out = Out()
    for chunk in chunks:
        out.framer.feed(chunk)
    return out


@pytest.mark.parametrize(
    ("stream", "payloads", "noise", "truncated"),
    [
        (line(b'{"a":1}'), [b'{"a":1}'], 0, 0),
        (line(b'{"a":1}') + line(b'{"a":2}'), [b'{"a":1}', b'{"a":2}'], 0, 0),
        (line(b'{"a":1}').replace(b"\n", b"\r\n"), [b'{"a":1}'], 0, 0),
        (b'welcome!\n{"note":1}\n' + line(b"{}") + b"logout at 12:00\n", [b"{}"], 3, 0),
        (b"no newline here" + line(b"{}"), [b"{}"], 1, 0),
        (line(b"{}")[:-1] + b"tail\n", [b"{}"], 1, 0),
        (line(b'{"a":1}', "f" * 16), [], 1, 0),
        (line(b'{"a":1}')[:20] + b"\n" + line(b"{}"), [b"{}"], 1, 0),
        (line(b'{"a":1}')[:30] + b"\n" + line(b"{}"), [b"{}"], 0, 1),
        (b"\n\r\n" + line(b"{}"), [b"{}"], 0, 0),
        (b"\xff\xfe\x1b]0;x\x07\n" + line(b'{"a":"\xff"}'), [b'{"a":"\xff"}'], 1, 0),
    ],
)
def test_payload_stands_between_the_marks(
    stream: bytes, payloads: list[bytes], noise: int, truncated: int
) -> None:
    out = feed(stream)
    assert out.payloads == payloads
    assert out.framer.noise == noise
    assert out.framer.truncated == truncated


def test_words() -> None:
    out = feed(b"x\n@@CT1 " + NONCE.encode() + b" ready 3.6.15@@\n", b"@@CT1 " + NONCE.encode() + b" failed a\n")
    assert out.words == [b"ready 3.6.15"]
    assert out.framer.truncated == 1


def test_end_of_stream_in_a_line_is_truncated() -> None:
    out = feed(line(b"{}"), line(b'{"a": 12345}')[:-12])
    out.framer.close()
    assert out.payloads == [b"{}"]
    assert [kind for kind, _ in out.noise] == ["truncated"]


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.builds(line, st.binary(max_size=40).map(lambda b: b"{" + b.replace(b"\n", b"") + b"}")),
        st.just(b"\n"),
        st.just(b"\r\n"),
        st.sampled_from([b"@@CT1 ", NONCE.encode(), b" CT1@@", b"@@CT1 " + NONCE.encode() + b" {", b" "]),
    ),
    max_size=12,
)


@given(PIECES, st.lists(st.integers(0, 400), max_size=20))
def test_any_chunking_gives_the_same(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces) + b"\n"
    whole = feed(stream)
    cuts = sorted({cut for cut in cuts if cut < len(stream)})
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    cut = feed(*chunks)
    single = feed(*(stream[i : i + 1] for i in range(len(stream))))
    for other in (cut, single):
        assert other.payloads == whole.payloads
        assert other.words == whole.words
        assert other.noise == whole.noise


def test_ten_megabytes_without_a_newline_stay_bounded() -> None:
    out = Out()
    block = b"x" * 32768
    tracemalloc.start()
    for _ in range(320):
        out.framer.feed(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * MAX_LINE
    assert out.framer.oversized == 1
    out.framer.feed(b"still the same line\n" + line(b"{}"))
    assert out.payloads == [b"{}"]
    assert out.framer.noise == 0


def test_longest_line_passes_and_one_more_byte_does_not() -> None:
    room = MAX_LINE - len(line(b"")) + 1
    fits = b"{" + b"x" * (room - 1)
    assert feed(line(fits)).payloads == [fits]
    assert feed(line(fits)[:100], line(fits)[100:]).payloads == [fits]
    assert feed(line(fits + b"x")[:100], line(fits + b"x")[100:]).framer.oversized == 1
    assert len(fits) > MAX_FRAME
