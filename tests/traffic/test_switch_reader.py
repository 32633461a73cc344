"""Switches over SNMP: recorded ones behind a real agent, and one of our own whose counters move, at the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pysnmp.proto.api import v2c

from clustertop.model import Why
from clustertop.signals import ifmib, octets
from clustertop.signals.snmp_walk import rows
from clustertop.sources.snmp import SnmpError
from clustertop.sources.switch import WHOLE_SECONDS, Roles, SwitchReader, SwitchReading
from leafports import of_reading
from pdus import snmpsim, snmpwalk
from snmp_fake import Request, fake, table
from traffic.shared import SAMPLES, needs_shared, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clustertop.sources.oids import Oid
    from pdus import Snmpsim

IF: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IFX: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
LLDP: Oid = (1, 0, 8802, 1, 1, 2, 1)
NAMES = {1: b"Ethernet1", 2: b"Ethernet2", 9: b"Ethernet49", 10: b"Ethernet50"}
CONFIG = Roles(uplinks=("Ethernet49", "Ethernet50"))
MEGABYTE = 10**6


class Steps:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.7e9 + self.now


class Leaf:
    """A switch of ours: what it says, and how it goes on."""

    def __init__(self, *, bits: int = 64, speed: int = 100_000, names: dict[int, bytes] | None = None) -> None:
        self.rows: dict[Oid, Any] = {}
        self.clock = Steps()
        self.bits = bits
        self.uptime = 900_000.37
        self.names = dict(names or NAMES)
        self.requests = 0
        self.silent = False
        self.octets = {index: [7 * 10**14 % 2**bits, 10**12 % 2**bits] for index in self.names}
        sys = (1, 3, 6, 1, 2, 1, 1)
        self.rows |= {(*sys, 1, 0): b"Own OS\r\nversion 1", (*sys, 5, 0): b"leaf7"}
        for index, name in self.names.items():
            self.rows |= {(*IF, 2, index): name, (*IF, 3, index): 6, (*IF, 8, index): 1, (*IFX, 1, index): name,
                          (*IFX, 18, index): b"", (*IF, 5, index): v2c.Gauge32(min(speed * 10**6, 2**32 - 1))}
            if bits == 64:
                self.rows |= {(*IFX, 15, index): v2c.Gauge32(speed), (*IFX, 19, index): v2c.TimeTicks(0)}
            for column in (13, 14, 19, 20):
                self.rows[(*IF, column, index)] = v2c.Counter32(5)
        self.tell()

    def tell(self) -> None:
        self.rows[1, 3, 6, 1, 2, 1, 1, 3, 0] = v2c.TimeTicks(round(self.uptime * 100) % 2**32)
        for index, pair in self.octets.items():
            for column, old, value in zip((6, 10), (10, 16), pair, strict=True):
                if self.bits == 64:
                    self.rows[(*IFX, column, index)] = v2c.Counter64(value)
                else:
                    self.rows[(*IF, old, index)] = v2c.Counter32(value)

    def go(self, seconds: float, **per_second: tuple[float, float]) -> None:
        """Let time pass; *per_second*: bytes in and out of each port, by its name."""
        self.clock.now += seconds
        self.uptime += seconds
        for index, name in self.names.items():
            for way, speed in enumerate(per_second.get(name.decode(), (0, 0))):
                self.octets[index][way] = int(self.octets[index][way] + speed * seconds) % 2**self.bits
        self.tell()

    def answers(self) -> Callable[[Request], list[bytes]]:
        def answer(request: Request) -> list[bytes]:
            self.requests += 1
            return [] if self.silent else table(self.rows)(request)

        return answer


def share(reading: SwitchReading) -> float | None:
    return of_reading(reading).ratio


def port(reading: SwitchReading, name: str) -> Any:
    return next(one for one in reading.ports if one.name == name)


BUSY = {"Ethernet1": (600 * MEGABYTE, 0.0), "Ethernet2": (400 * MEGABYTE, 0.0), "Ethernet49": (0.0, 200 * MEGABYTE),
        "Ethernet50": (0.0, 50 * MEGABYTE)}
QUIET = {"Ethernet1": (100 * MEGABYTE, 0.0), "Ethernet49": (0.0, 10 * MEGABYTE)}


@pytest.mark.parametrize("extra", [0, 40], ids=["GETBULK", "GET"])
async def test_the_share_of_a_leaf_with_moving_counters(extra: int) -> None:
    leaf = Leaf()
    for index in range(100, 100 + extra):  # VLANs: with many of them only the ports are asked for
        leaf.rows |= {(*IF, 2, index): b"Vlan%d" % index, (*IF, 3, index): 136, (*IFX, 1, index): b"Vlan%d" % index,
                      (*IFX, 6, index): v2c.Counter64(10**15), (*IF, 8, index): 1}
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        first = await reader.read()
        at_first = leaf.requests
        leaf.go(10, **BUSY)
        second = await reader.read()
        assert leaf.requests - at_first <= 6
        kinds = {request.kind for request in agent.seen[at_first:]}
        leaf.go(10, **QUIET)
        third = await reader.read()
    assert kinds == {"GetRequestPDU" if extra else "GetBulkRequestPDU"}
    assert (first.name, first.description) == ("leaf7", "Own OS version 1")
    assert [one.name for one in first.ports] == ["Ethernet1", "Ethernet2", "Ethernet49", "Ethernet50"]
    assert (share(first), port(first, "Ethernet1").into.why) == (None, Why.FIRST_READING)
    assert share(second) == pytest.approx(0.25)
    assert share(third) == pytest.approx(0.1)
    busy = of_reading(second)
    assert busy.host_in == pytest.approx(1e9)
    assert busy.imbalance == pytest.approx(0.6)
    one = port(second, "Ethernet49")
    assert (one.key, one.role, one.role_by, one.up, one.bits_per_second) == ("9", "uplink", "config", True, 100e9)
    assert one.out_bytes - port(first, "Ethernet49").out_bytes == 2000 * MEGABYTE


async def test_a_reboot_is_unknown_once() -> None:
    """D5 a, b: also where the counters are beyond the old ones at once."""
    leaf = Leaf()
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        shares = [share(await reader.read())]
        for step in range(5):
            leaf.go(10, **BUSY)
            if step == 2:
                leaf.uptime = 4.2
                leaf.octets = {index: [0, 0] for index in leaf.octets} | {1: [9 * 10**15, 9 * 10**15]}
                leaf.tell()
            reading = await reader.read()
            shares.append(share(reading))
            if step == 2:
                assert {(one.into.why, one.into.confirmed) for one in reading.ports} == {(Why.RESET, True)}
                assert {one.errors.rate.why for one in reading.ports} == {Why.RESET}
    assert shares == [None, pytest.approx(0.25), pytest.approx(0.25), None, pytest.approx(0.25), pytest.approx(0.25)]


async def test_d6_a_cleared_port_and_a_discontinuity_are_unknown_once_and_others_go_on() -> None:
    leaf = Leaf()
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        await reader.read()
        leaf.go(10, **BUSY)
        leaf.octets[1][0] = 12
        leaf.rows[(*IFX, 19, 2)] = v2c.TimeTicks(77)
        leaf.tell()
        reading = await reader.read()
        leaf.go(10, **BUSY)
        after = await reader.read()
    one, two = port(reading, "Ethernet1"), port(reading, "Ethernet2")
    assert (one.into.value, one.into.why) == (None, Why.RESET)
    assert (two.into.value, two.into.why, two.into.confirmed) == (None, Why.RESET, True)
    assert port(reading, "Ethernet49").out.value == pytest.approx(200e6)
    assert (share(reading), of_reading(reading).why) == (None, "no rate for Ethernet1, Ethernet2")
    assert share(after) == pytest.approx(0.25)


async def test_d6_counters_of_32_bits_wrap_where_the_port_is_slow_and_are_too_narrow_where_it_is_not() -> None:
    slow, fast = Leaf(bits=32, speed=1000), Leaf(bits=32, speed=2500)
    for leaf in (slow, fast):
        leaf.octets[1][0] = 2**32 - 1000
        leaf.tell()
        async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
            await reader.read()
            leaf.go(10, Ethernet1=(100 * MEGABYTE, 0), Ethernet49=(0, 25 * MEGABYTE))
            wrapped = await reader.read()
            leaf.go(20 if leaf is fast else 10, Ethernet1=(100 * MEGABYTE, 0), Ethernet49=(0, 25 * MEGABYTE))
            later = await reader.read()
        assert (share(wrapped), port(wrapped, "Ethernet1").into.value) == (pytest.approx(0.25), pytest.approx(100e6))
    assert port(later, "Ethernet1").into.why == octets.TOO_NARROW


async def test_errors_that_were_cleared_are_no_wrap() -> None:
    leaf = Leaf()
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        await reader.read()
        leaf.go(10)
        leaf.rows[(*IF, 13, 1)] = v2c.Counter32(0)  # cleared at the switch
        leaf.rows[(*IF, 14, 1)] = v2c.Counter32(105)
        leaf.rows[(*IF, 20, 1)] = v2c.Counter32(25)
        leaf.rows[(*IF, 13, 2)] = v2c.Counter32(2**32 - 10)
        reading = await reader.read()
        leaf.go(10)
        leaf.rows[(*IF, 13, 2)] = v2c.Counter32(90)  # gone round
        later = await reader.read()
    one = port(reading, "Ethernet1")
    assert (one.discards.rate.value, one.discards.rate.why) == (None, Why.RESET)
    assert (one.errors.total, one.errors.rate.value) == (130, 12)
    assert port(later, "Ethernet1").discards.rate.value == 0
    assert port(later, "Ethernet2").discards.rate.value == 10
    assert (one.pauses.total, one.pauses.rate.value, one.pauses.rate.why) == (None, None, Why.NOT_PROVIDED)


async def test_pause_frames_where_they_are_offered() -> None:
    leaf = Leaf()
    pause: Oid = (1, 3, 6, 1, 2, 1, 10, 7, 10, 1)
    for index in leaf.names:
        leaf.rows |= {(*pause, 3, index): v2c.Counter32(10), (*pause, 4, index): v2c.Counter32(0)}
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        await reader.read()
        leaf.go(10)
        leaf.rows[(*pause, 3, 2)] = v2c.Counter32(60)
        reading = await reader.read()
    assert (port(reading, "Ethernet2").pauses.total, port(reading, "Ethernet2").pauses.rate.value) == (60, 5)


async def test_the_switchs_own_clock_counts_where_an_answer_comes_late() -> None:
    leaf = Leaf()
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        await reader.read()
        leaf.go(10, **BUSY)
        leaf.clock.now += 0.9  # the answer was made 0.9 s ago
        late = await reader.read()
        leaf.go(10, **BUSY)
        leaf.clock.now -= 0.9
        leaf.uptime += 5000  # a clock that jumps is not used
        leaf.tell()
        odd = await reader.read()
    assert port(late, "Ethernet1").into.value == pytest.approx(600e6)
    assert port(odd, "Ethernet1").into.value == pytest.approx(600e6 * 10 / 9.1)


async def test_indices_given_anew_without_a_restart_are_no_rate() -> None:
    leaf = Leaf()
    leaf.rows[1, 3, 6, 1, 2, 1, 31, 1, 5, 0] = v2c.TimeTicks(5)
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        await reader.read()
        leaf.go(10, **BUSY)
        leaf.rows[1, 3, 6, 1, 2, 1, 31, 1, 5, 0] = v2c.TimeTicks(90_000_000)
        for index, name in ((1, b"Ethernet50"), (10, b"Ethernet1")):
            leaf.rows |= {(*IFX, 1, index): name, (*IF, 2, index): name}
        reading = await reader.read()
    assert port(reading, "Ethernet1").into.why == port(reading, "Ethernet50").into.why == Why.FIRST_READING
    assert (port(reading, "Ethernet1").key, port(reading, "Ethernet1").role) == ("10", "host")
    assert port(reading, "Ethernet2").into.value == pytest.approx(400e6)


async def test_a_switch_that_was_silent_counts_on_from_its_last_reading() -> None:
    leaf = Leaf()
    async with (fake(leaf.answers()) as agent,
                SwitchReader(agent.agent(timeout=0.5, retries=0), CONFIG, leaf.clock) as reader):
        await reader.read()
        leaf.silent = True
        leaf.go(10, **BUSY)
        with pytest.raises(SnmpError, match="no answer within"):
            await reader.read()
        leaf.silent = False
        leaf.go(10, **BUSY)
        assert share(await reader.read()) == pytest.approx(0.25)


async def test_a_port_that_is_left_out_is_unknown_and_all_is_read_again_in_a_while() -> None:
    leaf = Leaf()
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        await reader.read()
        leaf.go(10, **BUSY)
        gone = {name: leaf.rows.pop(name) for name in list(leaf.rows) if name[-1] == 9 and name[:-2] in (IF, IFX)}
        del leaf.octets[9]
        del leaf.names[9]
        reading = await reader.read()
        leaf.go(70, **BUSY)
        later = await reader.read()
    assert gone
    one = port(reading, "Ethernet49")
    assert (one.out.value, one.out.why, one.up) == (None, Why.UNREADABLE, None)
    assert share(reading) is None
    assert "Ethernet49" not in {one.name for one in later.ports}


async def test_roles_by_lldp_with_a_link_between_leaves_and_a_lag() -> None:
    leaf = Leaf(names={1: b"Ethernet1", 2: b"Ethernet2", 9: b"Ethernet49", 10: b"Ethernet50", 11: b"Ethernet51"})
    leaf.rows |= {(*IF, 2, 60): b"Port-Channel1", (*IF, 3, 60): 161, (*IFX, 1, 60): b"Port-Channel1", (*IF, 8, 60): 1}
    leaf.rows |= {(1, 3, 6, 1, 2, 1, 31, 1, 2, 1, 3, 60, member): 1 for member in (9, 10)}
    leaf.rows[(*IFX, 18, 2)] = b"to gpu02 eth0"
    for index, (peer, bits) in {1: (b"gpu01", b"\x10\x00"), 9: (b"spine1", b"\x28\x00"), 11: (b"leaf8.dc", b"\x28\x00")}.items():
        local, at = 500 + index, (0, 500 + index, 1)
        leaf.rows |= {(*LLDP, 3, 7, 1, 3, local): leaf.names[index], (*LLDP, 4, 1, 1, 5, *at): b"\0\1\2\3\4\5",
                      (*LLDP, 4, 1, 1, 9, *at): peer, (*LLDP, 4, 1, 1, 12, *at): bits}
    roles = Roles(nodes=("gpu01", "gpu02"), leaves=("leaf7", "leaf8"))
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), roles, leaf.clock) as reader:
        await reader.read()
        leaf.go(10, **BUSY, Ethernet51=(900 * MEGABYTE, 900 * MEGABYTE))
        reading = await reader.read()
    assert {one.name: (one.role, one.role_by, one.peer, one.lag) for one in reading.ports} == {
        "Ethernet1": ("host", "lldp gpu01", "gpu01", ""), "Ethernet2": ("host", "alias", "", ""),
        "Ethernet49": ("uplink", "lldp spine1", "spine1", "Port-Channel1"), "Ethernet50": ("", "", "", "Port-Channel1"),
        "Ethernet51": ("peer", "lldp leaf8.dc", "leaf8.dc", "")}
    found = of_reading(reading)
    assert (found.ratio, found.unknown_ports) == (pytest.approx(0.2), ("Ethernet50",))


async def test_a_port_whose_neighbour_is_no_longer_heard_keeps_its_role() -> None:
    """LLDP forgets the neighbour of a port that went down, and an answer of its table may be lost."""
    leaf = Leaf()

    def beside(peer: bytes, bits: bytes) -> dict[Oid, Any]:
        return {(*LLDP, 3, 7, 1, 3, 510): b"Ethernet50", (*LLDP, 4, 1, 1, 5, 0, 510, 1): b"\0\1\2\3\4\5",
                (*LLDP, 4, 1, 1, 9, 0, 510, 1): peer, (*LLDP, 4, 1, 1, 12, 0, 510, 1): bits}

    spine, roles = beside(b"spine1", b"\x28\x00"), Roles(nodes=("gpu01",))
    leaf.rows |= spine
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), roles, leaf.clock) as reader:
        told = [port(await reader.read(), "Ethernet50")]
        for name in spine:
            del leaf.rows[name]
        leaf.rows[(*IF, 8, 10)] = 2
        for _ in range(2):
            leaf.go(WHOLE_SECONDS + 1, **BUSY)
            told.append(port(await reader.read(), "Ethernet50"))
        leaf.rows |= beside(b"gpu01", b"\x10\x00")
        leaf.go(WHOLE_SECONDS + 1, **BUSY)
        told.append(port(await reader.read(), "Ethernet50"))
    uplink = ("uplink", "lldp spine1", "spine1")
    assert [(one.role, one.role_by, one.peer) for one in told] == [uplink] * 3 + [("host", "lldp gpu01", "gpu01")]
    assert [one.up for one in told] == [True, False, False, False]


async def test_without_anything_known_of_roles_the_share_is_unknown_and_it_says_what_to_do() -> None:
    leaf = Leaf()
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), clock=leaf.clock) as reader:
        reading = await reader.read()
    assert reading.notes == ("none of its ports is known as an uplink: name them by uplinks in the config, or turn LLDP on",)
    assert share(reading) is None


async def test_hostile_texts_are_cleaned() -> None:
    leaf = Leaf()
    leaf.rows[1, 3, 6, 1, 2, 1, 1, 5, 0] = b"\x1b[31mleaf\xff\n7"
    leaf.rows[(*IFX, 18, 1)] = "\x9b2J‮core".encode()
    leaf.rows[(*IFX, 1, 2)] = b"\xff\xfe[bold]"
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        reading = await reader.read()
    for text in (reading.name, *(text for one in reading.ports for text in (one.name, one.alias, one.peer))):
        assert text.isprintable()
    assert {one.alias for one in reading.ports} == {"", "2Jcore"}


async def test_the_whole_is_read_again_after_ten_minutes() -> None:
    leaf = Leaf()
    async with fake(leaf.answers()) as agent, SwitchReader(agent.agent(), CONFIG, leaf.clock) as reader:
        await reader.read()
        leaf.rows[(*IFX, 18, 1)] = b"new words"
        leaf.go(10, **BUSY)
        assert port(await reader.read(), "Ethernet1").alias == ""
        leaf.go(WHOLE_SECONDS, **BUSY)
        reading = await reader.read()
    assert port(reading, "Ethernet1").alias == "new words"
    assert share(reading) == pytest.approx(0.25)


# ---- recorded switches behind a real agent

RECORDED = [
    # file, physical ports, of them with octets, of them with a neighbour by LLDP (SONiC's 23rd is at its management port)
    ("arista-eos", 52, 52, 6), ("aruba-cx-100g", 52, 52, 0), ("cumulus-edgecore", 52, 52, 0), ("cumulus-mellanox", 50, 0, 0),
    ("dell-sonic", 54, 54, 22), ("dnos-z9100", 49, 49, 1), ("junos-qfx5130", 24, 24, 0), ("nxos-93180yc", 54, 54, 0),
    ("snmpsim-arista-7150s", 52, 52, 2), ("snmpsim-nexus5000", 31, 31, 9),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snmpsim]:
    with snmpsim({"": SAMPLES / "switch/snmp"}, tmp_path_factory.mktemp("switches")) as agent:
        yield agent


def as_noted(reading: SwitchReading, text: str) -> None:
    """Compare what the client read with what the recording holds; its own tests say that that is as noted."""
    switch = ifmib.read(rows(text))
    want = {one.name: one for one in switch.data_ports()}
    assert {one.name for one in reading.ports} == set(want)
    for one in reading.ports:
        told = want[one.name]
        narrow = told.bits == 32
        assert one.up is told.up
        assert one.bits_per_second == told.bits_per_second
        assert (one.in_bytes, one.out_bytes) == (
            (told.in_octets_32, told.out_octets_32) if narrow else (told.in_octets, told.out_octets))
        assert one.alias == ("" if told.alias == "00:00" else told.alias)  # octets that are no text


@needs_shared
@pytest.mark.parametrize(("name", "ports", "counted", "neighbours"), RECORDED, ids=[row[0] for row in RECORDED])
async def test_recorded_switches_read_as_noted(
        recorded: Snmpsim, name: str, ports: int, counted: int, neighbours: int) -> None:
    async with SwitchReader(recorded.agent(name)) as reader:
        first = await reader.read()
        before = reader.client.requests
        second = await reader.read()
        asked = reader.client.requests - before
    as_noted(first, sample(f"switch/snmp/{name}.snmprec"))
    as_noted(second, sample(f"switch/snmp/{name}.snmprec"))
    assert len(first.ports) == ports
    assert sum(one.in_bytes is not None for one in first.ports) == counted
    assert sum(bool(one.peer) for one in first.ports) == neighbours
    assert asked <= 2 + ports * 12 / 12
    assert {one.into.why for one in first.ports} == {Why.FIRST_READING if counted else Why.NOT_PROVIDED}
    assert any("no octet counters" in note for note in first.notes) is not bool(counted)


@needs_shared
async def test_a_switch_recorded_as_text_reads_as_noted() -> None:
    recording = {name: v2c.Counter64(value) if isinstance(value, int) else value
                 for name, value in snmpwalk(SAMPLES / "switch/snmp/mellanox-onyx.snmpwalk").items() if not isinstance(value, str)}
    async with fake(table(recording)) as agent, SwitchReader(agent.agent()) as reader:
        reading = await reader.read()
    as_noted(reading, sample("switch/snmp/mellanox-onyx.snmpwalk"))
    assert len(reading.ports) == 46
