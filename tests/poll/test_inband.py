"""A node's BMC in band: lines in, a BMC's tables out, in full frames and in those that count from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from clustertop.poll.inband import InBand, reading
from clustertop.probe.frames import Encoder, Group, Table
from clustertop.sources.bmc_reading import PsuState
from clustertop.wire.frame import Frame, GroupPart, Row, TablePart, decode

if TYPE_CHECKING:
    from clustertop.sources.bmc_reading import BmcReading

LINES = {
    "sdr/000": "PS1 Input Power  | 21h | ok  | 10.1 | 412 Watts",
    "sdr/001": "PS1 Status       | 22h | ok  | 10.1 | Presence detected",
    "sdr/002": "PS2 Status       | 24h | ok  | 10.2 | Presence detected, Power Supply AC lost",
    "sdr/003": "Inlet Temp       | 04h | ok  |  7.1 | 23 degrees C",
    "dcmi/000": "    Instantaneous power reading:   780 Watts",
    "dcmi/001": "    Power reading state is:  activated",
    "power/000": "Chassis Power is on",
}


def to_part(said: BmcReading, at: float) -> GroupPart:
    """The power of the whole, and a row per supply: enough to see rows come and values change."""
    watts = said.watts.number
    return GroupPart(at, tb={
        "bmc": TablePart(r=[Row("", {"over": said.source, "notes": "; ".join(said.notes)})], c=["watts", "psus"],
                         i=[1, 1] if watts is None else [0, 2], x=[len(said.psus)] if watts is None else [watts, len(said.psus)]),
        "psu": TablePart(r=[Row(one.id) for one in said.psus], c=["state"], j=list(range(len(said.psus))),
                         s=[f"={one.state.value}" for one in said.psus])})


class Node:
    """A probe's end of the wire."""

    def __init__(self) -> None:
        self.encoder = Encoder()
        self.count = 0
        self.tables: dict[str, Table] = {}

    def say(self, lines: dict[str, str] | None, notes: str = "", **state: Any) -> Frame:
        """The next frame; without *lines* the reading is that of before."""
        if lines is not None:
            self.count += 1
            rows = [(key, {"notes": notes} if notes and not at else {}) for at, key in enumerate(lines)]
            self.tables = {"ipmi": Table(rows, ["text"], list(lines.values()))}
        groups = {"host": Group(10.0 + self.count, 2.0, {"node": Table([("", {})], ["ncpu"], [8])}, n=self.count),
                  "bmc": Group(10.0 + self.count, 10.0, self.tables, n=self.count, **state)}
        made = self.encoder.encode(groups, 10.5 + self.count, 0.0, {}, {})
        return decode(json.dumps(made).encode())


def test_lines_are_read_as_over_the_network() -> None:
    said = reading(LINES, 7.0, "dcmi: no")
    assert (said.source, said.watts.number, said.watts_source, said.host_power) == ("in-band", 780.0, "DCMI power reading", "on")
    assert [(one.id, one.state, one.input_watts.number) for one in said.psus] == [
        ("ps1", PsuState.OK, 412.0), ("ps2", PsuState.AC_LOST, None)]
    assert (said.taken_at, said.notes) == (7.0, ("dcmi: no",))
    assert {one.name for one in said.sensors} >= {"Inlet Temp"}


def test_nothing_said_is_nothing_known() -> None:
    said = reading({})
    assert (said.watts.number, said.psus, said.sensors, said.host_power) == (None, (), (), "")


def test_a_full_frame_has_the_tables_and_keeps_the_rest_of_the_group() -> None:
    frame = Node().say(LINES, notes="n")
    made, whole = InBand(to_part).convert(frame, 100.0)
    assert whole
    assert made.g["host"] is frame.g["host"]
    part = made.g["bmc"]
    assert (part.n, part.iv, part.t, part.st) == (1, 10.0, 11.0, "ok")
    assert set(part.tb) == {"bmc", "psu"}
    assert part.tb["bmc"].x == [780.0, 2.0]
    assert part.tb["bmc"].r == [Row("", {"over": "in-band", "notes": "n"})]
    assert part.tb["psu"].s == ["=ok", "=ac_lost"]


def test_later_frames_say_every_value_anew_without_rows() -> None:
    node, inband = Node(), InBand(to_part)
    inband.convert(node.say(LINES))
    made, whole = inband.convert(node.say({**LINES, "dcmi/000": "    Instantaneous power reading:   790 Watts"}))
    part = made.g["bmc"].tb["bmc"]
    assert whole
    assert not made.full
    assert (part.r, part.c, part.i, part.x) == (None, None, [0, 2], [790.0, 2.0])
    # What is no longer known is said, and not left as it was.
    made, _ = inband.convert(node.say({**LINES, "dcmi/000": "", "dcmi/001": "", "sdr/000": "PS1 Input Power  | 21h | ns  | 10.1 | No Reading"}))
    part = made.g["bmc"].tb["bmc"]
    assert (part.i, part.x, part.j, part.s) == ([1, 1], [2.0], [0], ["!not provided"])
    # And back to what the full frame said.
    made, _ = inband.convert(node.say(LINES))
    assert made.g["bmc"].tb["bmc"].x == [780.0, 2.0]


def test_an_old_reading_stays_an_old_one() -> None:
    node, inband = Node(), InBand(to_part)
    inband.convert(node.say(LINES))
    for _ in range(3):
        frame = node.say(None)
    made, whole = inband.convert(frame)
    assert whole
    assert made is frame
    assert made.g["bmc"].o == 1


def test_a_supply_that_is_new_asks_for_a_full_frame() -> None:
    node, inband = Node(), InBand(to_part)
    inband.convert(node.say(LINES))
    changed = {**LINES, "sdr/003": "PS3 Status       | 25h | ok  | 10.3 | Presence detected"}
    made, whole = inband.convert(node.say(changed))
    assert not whole
    assert set(made.g) == {"host"}, "no tables would mean: as in the last full frame"
    node.encoder.want_full()
    made, whole = inband.convert(node.say(changed))
    assert whole
    assert made.g["bmc"].tb["psu"].s == ["=ok", "=ac_lost", "=ok"]


def test_a_frame_that_counts_from_one_never_seen_asks_for_a_full_one() -> None:
    node, inband = Node(), InBand(to_part)
    inband.convert(node.say(LINES))
    node.encoder.want_full()
    node.say(LINES)
    made, whole = inband.convert(node.say({**LINES, "sdr/003": "Inlet Temp | 04h | ok | 7.1 | 24 degrees C"}))
    assert not whole
    assert set(made.g) == {"host"}, "no tables would mean: as in the last full frame"


def test_an_error_goes_through_with_its_words() -> None:
    frame = Node().say(None, st="error", e="ipmitool needs root on the node")
    made, whole = InBand(to_part).convert(frame)
    assert whole
    assert (made.g["bmc"].st, made.g["bmc"].e) == ("error", "ipmitool needs root on the node")


def test_after_a_reconnect_an_error_has_no_lines_of_before() -> None:
    inband = InBand(to_part)
    inband.convert(Node().say(LINES))
    made, whole = inband.convert(Node().say(None, st="error", e="no such tool"))
    assert whole
    assert (made.g["bmc"].st, made.g["bmc"].tb) == ("error", {})


def test_a_bmc_that_is_read_over_the_network_is_left_alone() -> None:
    frame = msgspec.structs.replace(Node().say(None), g={"bmc": to_part(reading(LINES), 1.0)})
    made, whole = InBand(to_part).convert(frame)
    assert whole
    assert made is frame


def test_hostile_tables_are_no_lines() -> None:
    frame = Node().say(LINES)
    for bad in (TablePart(r=[Row("sdr/0")], c=["other"], j=[0], s=["=x"]), TablePart(r=[Row("sdr/0")], c=["text"], j=[7], s=["=x"]),
                TablePart(r=[Row("sdr/0", {"notes": ["a"]})], c=["text"], i=[0, 1], x=[1.0])):
        part = msgspec.structs.replace(frame.g["bmc"], tb={"ipmi": bad})
        made, whole = InBand(to_part).convert(msgspec.structs.replace(frame, g={"bmc": part}))
        assert whole
        assert "ipmi" not in made.g["bmc"].tb
