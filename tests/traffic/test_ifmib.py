"""Interface tables of switches: every recorded walk, and our own for shares, roles and restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.model import Why
from clustertop.signals import ifmib
from clustertop.signals.ifmib import HOST, PEER, UPLINK, Look, Role
from clustertop.signals.snmp_walk import rows
from leafports import of_looks
from traffic.shared import needs_shared, sample

SAMPLES = [
    # file, interfaces, up, data ports, bits
    ("arista-eos.snmprec", 55, 10, 52, {64}),
    ("aruba-cx-100g.snmprec", 56, 14, 52, {64}),
    ("cumulus-edgecore.snmprec", 57, 9, 52, {64}),
    ("cumulus-mellanox.snmprec", 60, 46, 50, {0}),
    ("dell-sonic.snmprec", 56, 37, 54, {64}),
    ("dnos-z9100.snmprec", 59, 20, 49, {64}),
    ("junos-qfx5130.snmprec", 60, 9, 24, {64}),
    ("mellanox-onyx.snmpwalk", 55, 28, 46, {64}),
    ("nxos-93180yc.snmprec", 59, 6, 54, {64}),
    ("snmpsim-arista-7150s.snmprec", 59, 42, 52, {64}),
    ("snmpsim-nexus5000.snmprec", 60, 44, 31, {64}),
]


def load(name: str) -> ifmib.Switch:
    return ifmib.read(rows(sample(f"switch/snmp/{name}")))


@needs_shared
@pytest.mark.parametrize(("name", "count", "up", "data", "bits"), SAMPLES, ids=[row[0] for row in SAMPLES])
def test_samples_read_as_noted(name: str, count: int, up: int, data: int, bits: set[int]) -> None:
    switch = load(name)
    interfaces = switch.interfaces.values()
    assert (len(interfaces), sum(bool(one.up) for one in interfaces)) == (count, up)
    assert len(switch.data_ports()) == data
    assert {one.bits for one in interfaces} == bits
    assert all(one.name for one in interfaces)


@needs_shared
def test_samples_in_detail() -> None:
    arista = load("arista-eos.snmprec")
    assert max(one.in_octets or 0 for one in arista.interfaces.values()) == pytest.approx(44.7e12, rel=0.001)
    junos = load("junos-qfx5130.snmprec")
    assert max(one.bits_per_second or 0 for one in junos.data_ports()) == 400e9
    assert not {one.name for one in junos.data_ports()} & {"et-0/0/0.0", "et-0/0/32.16386", "irb", "re0:mgmt-0"}
    nexus = load("snmpsim-nexus5000.snmprec")
    assert "Ethernet1/32" in {one.name for one in nexus.data_ports()}  # it came as hex digits
    dnos = load("dnos-z9100.snmprec")
    assert "TenGigabitEthernet 1/1/1" in {one.name for one in dnos.data_ports()}
    assert all(one.bits_per_second is None for one in load("cumulus-mellanox.snmprec").interfaces.values())


@needs_shared
@pytest.mark.parametrize(("name", "saturated"), [("snmpsim-arista-7150s.snmprec", 24), ("snmpsim-nexus5000.snmprec", 43)])
def test_sample_tables_of_both_widths_agree(name: str, saturated: int) -> None:
    interfaces = load(name).interfaces.values()
    assert sum(one.speed == ifmib.SATURATED_SPEED for one in interfaces) == saturated
    for one in interfaces:
        assert one.in_octets is not None
        assert one.in_octets_32 is not None
        ahead = (one.in_octets - one.in_octets_32) % 2**32  # read a moment later, or before
        assert min(ahead, 2**32 - ahead) < 2**31
        if one.speed == ifmib.SATURATED_SPEED:
            assert one.bits_per_second == (one.high_speed or 0) * 1e6 > 4e9


@needs_shared
def test_sample_aliases_say_which_ports_are_uplinks() -> None:
    switch = load("nxos-93180yc.snmprec")
    found = {switch.interfaces[index].name for index, role in ifmib.roles(switch).items() if role.role == UPLINK}
    assert found == {"Ethernet1/53", "Ethernet1/54"}


# ---- our own switch

NAMES = {1: "lo", 2: "mgmt0", 11: "Ethernet1", 12: "Ethernet2", 13: "Ethernet2.100", 49: "Ethernet49", 50: "Ethernet50",
         60: "Port-Channel1", 70: "Vlan7"}  # fmt: skip
TYPES = {1: 24, 60: 161, 70: 136, 13: 135}


def table(octets: dict[int, tuple[int, int]], uptime: float = 9000, discontinuity: int = 0, aliases: dict[int, str] | None = None,
          names: dict[int, str] | None = None, down: tuple[int, ...] = ()) -> ifmib.Switch:
    """A switch with in and out octets per index; all ports 100 Gb/s."""
    names = NAMES if names is None else names
    lines = [f"1.3.6.1.2.1.1.3.0|67|{int(uptime * 100)}", "1.3.6.1.2.1.1.5.0|4|leaf7"]
    for index, name in names.items():
        into, out = octets.get(index, (10**15, 10**15))
        x, i = "1.3.6.1.2.1.31.1.1.1", "1.3.6.1.2.1.2.2.1"
        lines += [
            f"{i}.2.{index}|4|{name}", f"{i}.3.{index}|2|{TYPES.get(index, 6)}", f"{i}.8.{index}|2|{2 if index in down else 1}",
            f"{x}.1.{index}|4|{name}", f"{x}.6.{index}|70|{into}", f"{x}.10.{index}|70|{out}", f"{x}.15.{index}|66|100000",
            f"{x}.19.{index}|67|{discontinuity}", f"{x}.18.{index}|4|{(aliases or {}).get(index, '')}",
        ]
    return ifmib.read(rows("\n".join(lines)))


def test_the_share_of_a_leaf_from_two_looks() -> None:
    """D6 b and D3's kind: physical ports only, 64-bit counters, and the lag, VLAN and sub-interface repeat nothing."""
    before = Look(100, table({11: (0, 0), 12: (0, 0), 49: (0, 0), 50: (0, 0)}))
    after = Look(110, table({11: (600, 50), 12: (400, 50), 49: (0, 300), 50: (0, 100), 60: (10**16, 10**16)}, uptime=9010))
    known = ifmib.roles(after.switch, uplinks=["Ethernet49", "Ethernet5*"])
    assert {after.switch.interfaces[index].name: role.role for index, role in known.items()} == {
        "Ethernet1": HOST, "Ethernet2": HOST, "Ethernet49": UPLINK, "Ethernet50": UPLINK}
    share = of_looks(before, after, known)
    assert (share.host_in, share.uplink_out, share.ratio) == (100, 40, 0.4)
    assert share.imbalance == pytest.approx(0.5)
    first = of_looks(None, before, known)
    assert (first.ratio, first.why.startswith("no rate for")) == (None, True)


def test_d5_a_leaf_that_restarted_is_unknown_once() -> None:
    """D5 a, b: the uptime confirms it; the next look counts again."""
    looks = [
        Look(0, table({11: (9 * 10**12, 0), 49: (0, 9 * 10**12)}, uptime=1e6)),
        Look(10, table({11: (10**6, 0), 49: (0, 10**5)}, uptime=5)),
        Look(20, table({11: (3 * 10**6, 0), 49: (0, 3 * 10**5)}, uptime=15)),
    ]
    into = [ifmib.rates(last, now, 11)[0] for last, now in zip([None, *looks], looks, strict=False)]
    assert [one.value for one in into] == [None, None, 200_000]
    assert (into[1].why, into[1].confirmed) == (Why.RESET, True)


def test_indices_given_anew_and_a_discontinuity_are_no_rate() -> None:
    before = Look(0, table({11: (100, 100)}))
    moved = Look(10, table({11: (900, 900)}, names={11: "Ethernet9"}, uptime=9010))
    assert ifmib.rates(before, moved, 11)[0].why == Why.FIRST_READING
    cleared = Look(10, table({11: (900, 900)}, uptime=9010, discontinuity=77))
    assert ifmib.rates(before, cleared, 11)[0].why == Why.RESET


def test_roles_by_neighbour_alias_and_config() -> None:
    switch = table({}, aliases={11: "to gpu01 eth2", 12: "spare", 50: "Uplink to spine-2"})
    neighbours = {"Ethernet49": ("spine-1.dc.net", True), "Ethernet12": ("x", True)}
    found = ifmib.roles(switch, neighbours=neighbours, nodes=["gpu01"])
    assert {switch.interfaces[index].name: role for index, role in found.items()} == {
        "Ethernet1": Role(HOST, "alias"), "Ethernet2": Role(""), "Ethernet49": Role(UPLINK, "lldp spine-1.dc.net"),
        "Ethernet50": Role(UPLINK, "alias")}
    by_lldp = ifmib.roles(switch, nodes=["gpu01", "gpu02"], leaves=["leaf8"], neighbours={
        "Ethernet1": ("GPU02.dc.net", None), "Ethernet2": ("phone", False), "Ethernet49": ("leaf8", True), "Ethernet50": ("?", None)})
    assert [role.role for role in by_lldp.values()] == [HOST, HOST, PEER, UPLINK]


def test_patterns_for_host_ports_leave_the_others_to_what_else_is_known() -> None:
    switch = table({}, aliases={12: "Uplink to spine-1"})
    found = ifmib.roles(switch, uplinks=["*49"], hosts=["Ethernet1"])
    assert [found[index] for index in (11, 12, 49, 50)] == [
        Role(HOST, "config"), Role(UPLINK, "alias"), Role(UPLINK, "config"), Role("")]
    assert ifmib.roles(switch, hosts=["Ethernet1"])[49] == Role("")


def test_members_of_a_lag_by_what_is_stacked_on_what() -> None:
    i, stack = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.2.1.3"
    lines = [f"{i}.3.{index}|2|{kind}" for index, kind in ((11, 6), (12, 6), (13, 6), (60, 161), (70, 136))]
    lines += [f"{stack}.{upper}.{lower}|2|1" for upper, lower in ((60, 11), (70, 60), (70, 12), (0, 70), (60, 99), (11, 0), (60, 13))]
    switch = ifmib.read(rows("\n".join([*lines, "1.2.840.10006.300.43.1.2.1.1.13.13|2|61"])))
    assert {index: one.lag for index, one in switch.interfaces.items()} == {11: 60, 12: None, 13: 61, 60: None, 70: None}


def test_a_port_of_unknown_role_stands_beside_the_share_and_a_down_one_not_at_all() -> None:
    before = Look(0, table(dict.fromkeys(NAMES, (0, 0))))
    after = Look(10, table({11: (100, 0), 12: (50, 0), 49: (0, 10), 50: (0, 0)}, uptime=9010, down=(50,)))
    known = {11: Role(HOST), 49: Role(UPLINK), 50: Role(UPLINK)}
    share = of_looks(before, after, known)
    assert (share.ratio, share.unknown_ports, share.unplaced_in) == (0.1, ("Ethernet2",), 5)
    assert share.loads == {"Ethernet49": pytest.approx(1 * 8 / 100e9)}


def test_names_only_is_no_counter() -> None:
    switch = ifmib.read(rows("1.3.6.1.2.1.2.2.1.2.1|4|swp1\n1.3.6.1.2.1.2.2.1.2.2|4|bond1\n1.3.6.1.2.1.2.2.1.3.2|2|6\n"))
    assert [one.name for one in switch.data_ports()] == ["swp1"]
    into, out = ifmib.rates(Look(0, switch), Look(10, switch), 1)
    assert (into.value, out.value, into.why) == (None, None, Why.UNREADABLE)


def test_an_agent_with_the_old_table_only_wraps_at_32_bits() -> None:
    """D6 a, through the table."""
    def old(octets: int, ticks: int) -> ifmib.Switch:
        return ifmib.read(rows(f"1.3.6.1.2.1.1.3.0|67|{ticks}\n1.3.6.1.2.1.2.2.1.3.1|2|6\n1.3.6.1.2.1.2.2.1.5.1|66|1000000000\n"
                               f"1.3.6.1.2.1.2.2.1.10.1|65|{octets}\n1.3.6.1.2.1.2.2.1.16.1|65|0\n"))
    days = 40 * 8640000
    assert ifmib.rates(Look(0, old(4294960000, days)), Look(10, old(5000, days + 1000)), 1)[0].value == 1229.6
    assert ifmib.rates(Look(0, old(4294960000, days)), Look(10, old(5000, 400)), 1)[0].why == Why.RESET


@pytest.mark.parametrize(("line", "value"), [
    (".1.3.6.1.2.1.2.2.1.8.7 = INTEGER: up(1)", 1),
    ("iso.3.6.1.2.1.2.2.1.8.7 = INTEGER: 7", 7),
    (".1.3.6.1.2.1.1.3.0 = Timeticks: (559) 0:00:05.59", 559),
    ('.1.3.6.1.2.1.1.5.0 = STRING: "leaf: 7"', "leaf: 7"),
    (".1.3.6.1.2.1.31.1.1.1.18.7 = STRING:", ""),
    (".1.3.6.1.2.1.31.1.1.1.1.7 = Hex-STRING: 45 74 68 31 00 ", "Eth1"),
    ("1.3.6.1.2.1.31.1.1.1.1.7|4x|45746831", "Eth1"),
    ("1.3.6.1.2.1.2.2.1.6.7|4x|0a1b", "0a:1b"),
    ("1.3.6.1.2.1.31.1.1.1.6.7|70:numeric|12", None),
    ("1.3.6.1.2.1.31.1.1.1.6.7|70|12", 12),
    (".1.3.6.1.2.1.99.0 = No Such Object available on this agent at this OID", None),
    ("IF-MIB::ifName.7 = STRING: eth0", None),
    ("hello", None),
])
def test_lines_of_walks(line: str, value: int | str | None) -> None:
    found = [one for _, one in rows(line)]
    assert found == ([] if value is None else [value])


@given(st.text("0123456789.|:=ax STRINGCounter64()-", max_size=120))
def test_any_walk_is_read_without_an_error(text: str) -> None:
    switch = ifmib.read(rows(f"1.3.6.1.2.1.2.2.1.2.1|4|e\n{text}\n1.3.6.1.2.1.{text}"))
    assert switch.interfaces[1].name
