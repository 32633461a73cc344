"""The encoder against the console's decoder."""

from __future__ import annotations

import json

import pytest

from clustertop.probe.frames import MAX_LINE, Encoder, Err, Group, Table, encode_table, line
from clustertop.wire.frame import decode
from probe.harness import Values

ROWS = [("a", {"index": 0, "name": "A"}), ("b", {"index": 1}), ("c", {})]
COLUMNS = ["u", "v", "w"]
CELLS = [1, 2, 3, 0.5, "16.0 GT/s PCIe", Err("EINVAL"), 10**18, None, -1]


def table(**changed: object) -> Table:
    cells = list(CELLS)
    for name, value in changed.items():
        cells[int(name[1:])] = value
    return Table(list(ROWS), list(COLUMNS), cells)


def through(encoder: Encoder, tables: dict[str, Table], t: float = 1.0, values: Values | None = None) -> Values:
    payload = line(encoder.encode({"g": Group(t, 1.0, tables, n=1)}, t, 1.7e9, {"cpu": 0.25}, {"host": "h"}), "")
    values = values or Values()
    values.take(decode(payload))
    return values


def test_full_frame_gives_every_value() -> None:
    values = through(Encoder(), {"t": table()})
    assert values.frame is not None
    assert values.frame.full
    assert values.rows["t"] == ["a", "b", "c"]
    assert values.attrs["t"]["a"] == {"index": 0, "name": "A"}
    assert values.facts == {"host": "h"}
    got = [values.cell("t", row, column) for column in COLUMNS for row in "abc"]
    assert got == [1, 2, 3, 0.5, "=16.0 GT/s PCIe", "!EINVAL", 1e18, None, -1]


def test_later_frames_are_counted_from_the_full_one() -> None:
    encoder = Encoder()
    values = through(encoder, {"t": table()})
    through(encoder, {"t": table(c0=7)}, 2.0, values)
    assert values.cell("t", "a", "u") == 7
    # A frame lost in between changes nothing: this one says again what differs from the full frame.
    encoder.encode({"g": Group(3.0, 1.0, {"t": table(c0=8, c1=9)})}, 3.0, 0.0, {}, {"host": "h"})
    through(encoder, {"t": table(c1=9)}, 4.0, values)
    assert values.frame is not None
    assert not values.frame.full
    assert values.frame.q == 4
    assert values.frame.b == 1
    assert values.cell("t", "a", "u") == 1
    assert values.cell("t", "b", "u") == 9


def test_unchanged_table_costs_nothing() -> None:
    encoder = Encoder()
    through(encoder, {"t": table()})
    frame = encoder.encode({"g": Group(2.0, 1.0, {"t": table()})}, 2.0, 0.0, {}, {"host": "h"})
    assert "tb" not in frame["g"]["g"]


def test_the_interval_asked_for_is_sent_only_while_another_is_in_effect() -> None:
    encoder = Encoder()
    for iv, iw, sent in ((2.0, 2.0, None), (8.0, 2.0, 2.0), (2.0, 0.0, None)):
        frame = encoder.encode({"g": Group(1.0, iv, {}, iw=iw)}, 1.0, 0.0)
        assert frame["g"]["g"].get("iw") == sent


def test_number_becomes_unknown_and_back() -> None:
    encoder = Encoder()
    values = through(encoder, {"t": table()})
    through(encoder, {"t": table(c0=Err("GPU is lost"), c1=None, c5=4)}, 2.0, values)
    assert values.cell("t", "a", "u") == "!GPU is lost"
    assert values.cell("t", "b", "u") == "!not provided"
    assert values.cell("t", "c", "v") == 4
    through(encoder, {"t": table()}, 3.0, values)
    assert values.cell("t", "a", "u") == 1
    assert values.cell("t", "c", "v") == "!EINVAL"


def test_zero_and_false_and_text_of_a_number_differ() -> None:
    encoder = Encoder()
    values = through(encoder, {"t": table(c0=0)})
    through(encoder, {"t": table(c0="0")}, 2.0, values)
    assert values.cell("t", "a", "u") == "=0"


def test_runs_are_joined_over_short_gaps_only() -> None:
    rows = [(str(index), {}) for index in range(6)]
    base = Table(rows, ["x"], [1, 1, 1, 10**15, 1, 1])
    part = encode_table(Table(rows, ["x"], [2, 1, 2, 10**15, 2, 1]), base)
    assert part["i"] == [0, 3, 4, 1]
    assert part["x"] == [2, 1, 2, 2]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1 << 70, -(1 << 70)])
def test_numbers_that_json_or_the_console_cannot_take_travel_as_text(value: float) -> None:
    values = through(Encoder(), {"t": table(c0=value)})
    assert values.cell("t", "a", "u") == f"={value}"


def test_floats_are_rounded_to_three_decimals() -> None:
    part = encode_table(Table([("a", {})], ["x", "y"], [0.12345, 2.0]))
    assert json.dumps(part["x"]) == "[0.123, 2]"


def test_new_row_or_column_or_fact_or_request_or_time_makes_a_full_frame() -> None:
    encoder = Encoder(full_every=60.0)

    def full(tables: dict[str, Table], t: float, facts: dict[str, object]) -> bool:
        frame = encoder.encode({"g": Group(t, 1.0, tables)}, t, 0.0, {}, facts)
        return bool(frame["q"] == frame["b"])

    one = Table([("a", {})], ["x"], [1])
    assert full({"t": one}, 0.0, {})
    assert not full({"t": one}, 1.0, {})
    assert full({"t": Table([("a", {"name": "n"})], ["x"], [1])}, 2.0, {})
    assert full({"t": one, "u": one}, 3.0, {})
    assert full({"t": one}, 4.0, {})
    assert full({"t": Table([("a", {})], ["x", "y"], [1, 2])}, 5.0, {})
    assert full({"t": one}, 6.0, {})
    assert full({"t": one}, 7.0, {"driver": "1"})
    assert not full({"t": one}, 66.0, {"driver": "1"})
    assert full({"t": one}, 67.0, {"driver": "1"})
    encoder.want_full()
    assert full({"t": one}, 68.0, {"driver": "1"})
    assert not full({"t": one}, 69.0, {"driver": "1"})


def test_too_many_rows_and_columns_are_cut_off() -> None:
    big = Table([(str(row), {}) for row in range(1100)], [str(column) for column in range(600)], [7] * 660000)
    assert len(big.rows) == 1024
    assert len(big.columns) == 512
    assert len(big.cells) == 1024 * 512


def test_cells_must_fit() -> None:
    with pytest.raises(ValueError, match="3 cells for 2 rows and 1 columns"):
        Table([("a", {}), ("b", {})], ["x"], [1, 2, 3])


def test_hostile_text_stays_one_ascii_line() -> None:
    nasty = "a\nb\u2028c\ud800\x1b[31m@@CT1 " + "x" * 2000
    text = line(
        Encoder().encode({"g": Group(1.0, 1.0, {"t": Table([(nasty, {nasty: nasty})], ["x"], [nasty])})}, 1.0, 0.0),
        "0123456789abcdef",
    )
    assert text.count(b"\n") == 1
    assert text.endswith(b"\n")
    text.decode("ascii")
    values = Values()
    values.take(decode(text[len("@@CT1 0123456789abcdef ") : -len(" 0123456789abcdef CT1@@\n")]))
    assert len(values.now["t"][0]) == 513


def test_too_long_line_drops_the_largest_group_and_says_so() -> None:
    big = Table([(f"{row:0500d}", {}) for row in range(1000)], ["x"], [1] * 1000)
    small = Table([("a", {})], ["x"], [1])
    frame = Encoder().encode({"big": Group(1.0, 1.0, {"t": big}), "small": Group(1.0, 1.0, {"t": small})}, 1.0, 0.0)
    assert len(line(frame, "n", 10000)) < 10000 < len(line(frame, "n", MAX_LINE))
    got = decode(line(frame, "", 10000))
    assert got.g["big"].st == "error"
    assert "more than a frame" in got.g["big"].e
    assert got.g["small"].st == "ok"
    assert got.g["small"].tb["t"].x == [1]


def test_a_group_that_has_nothing_to_read_says_so_in_few_bytes_once_it_is_known() -> None:
    encoder, group = Encoder(), Group(1.0, 10.0, {}, ms=0.1, st="off", n=1)
    parts = [encoder.encode({"disk": group}, float(at), 0.0)["g"]["disk"] for at in range(1, 5)]
    assert parts[0] == parts[1] == {"t": 1.0, "iv": 10, "n": 1, "ms": 0.1, "st": "off"}
    assert parts[2] == parts[3] == {"n": 1, "st": "off"}
    group.iv = 20.0
    assert encoder.encode({"disk": group}, 5.0, 0.0)["g"]["disk"]["iv"] == 20
    encoder.want_full()
    assert encoder.encode({"disk": group}, 6.0, 0.0)["g"]["disk"]["t"] == 1.0, "a full frame says all"
