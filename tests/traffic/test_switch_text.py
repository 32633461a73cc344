"""What switches print of their ports: every recorded output, and our own for what they do not show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals import switch_text
from clustertop.signals.switch_text import data_ports
from traffic.shared import needs_shared, sample


@needs_shared
@pytest.mark.parametrize("name", ["counters", "counters-all", "counters-after-clear"])
def test_sample_sonic_tables(name: str) -> None:
    ports = switch_text.parse_sonic_counters(sample(f"switch/sonic/show-interfaces-{name}.txt"))
    assert list(ports) == ["Ethernet0", "Ethernet4", "Ethernet8", "Ethernet9"]
    first = ports["Ethernet0"]
    assert (first.up, first.in_bytes_per_second, first.in_ratio, first.out_bytes_per_second) == (False, 2e9, 0.64, 1.5e9)
    assert (first.counts["TX_ERR"], ports["Ethernet4"].up, ports["Ethernet4"].in_ratio) == (None, None, None)
    assert ports["Ethernet4"].in_bytes_per_second == 204800
    if name != "counters-after-clear":
        assert {key: first.counts[key] for key in ("RX_OK", "RX_ERR", "RX_DRP")} == {"RX_OK": 8, "RX_ERR": 10, "RX_DRP": 100}
        assert ports["Ethernet4"].counts["RX_DRP"] == 1000
    else:
        assert first.counts["RX_OK"] == 0


@needs_shared
def test_sample_sonic_pauses_and_database() -> None:
    pfc = switch_text.parse_sonic_pfc(sample("switch/sonic/show-pfc-counters.txt"))
    assert (pfc["Ethernet0"]["rx"][0], pfc["Ethernet0"]["rx"][3], pfc["Ethernet8"]["tx"][0]) == (1200, 203, 1810)
    ports = switch_text.parse_sonic_db(sample("switch/sonic/counters_db.json"))
    assert set(ports) == {"Ethernet0", "Ethernet4", "Ethernet8"}  # PortChannels repeat them
    assert (ports["Ethernet0"].in_bytes_per_second, ports["Ethernet8"].out_bytes_per_second) == (2e9, 13.37e6)


@needs_shared
def test_sample_eos_in_both_forms() -> None:
    ports = switch_text.parse_eos_text(sample("switch/cli/arista_eos_show_interfaces2.txt"))
    first = ports["Ethernet1"]
    assert (first.up, first.in_bytes, first.out_bytes, first.bits_per_second, first.alias) == (True, 381190, 0, 1e9, "Test interface Et1")
    assert ports["Management0"].counts["input discards"] == 47
    assert ports["Vlan100"].in_bytes is None
    assert {port.name for port in data_ports(ports.values())} == {f"Ethernet{number}" for number in range(1, 5)}
    json_ports = switch_text.parse_eos_json(sample("switch/json/eos-show_interfaces.json"))
    one = json_ports["Ethernet1"]
    assert (one.up, one.bits_per_second, one.in_bytes, one.lag) == (False, 10e9, 0, "Port-Channel1")
    assert [port.name for port in data_ports(json_ports.values())] == ["Ethernet1"]
    assert json_ports["Port-Channel1.20"].in_bytes is None


@needs_shared
def test_sample_nxos() -> None:
    ports = switch_text.parse_nxos_counters(sample("switch/cli/nxos-ShowInterfaceCounters-golden_output1_output.txt"))
    one = ports["Eth1/33"]
    assert (one.in_bytes, one.out_bytes, one.counts["OutBcastPkts"]) == (1162614, 12199396, 1)
    errors = switch_text.parse_nxos_counters(sample("switch/cli/nxos-ShowInterfaceCountersErrors-golden_output_1_output.txt"))
    assert errors["Eth1/1"].counts["SQETest-Err"] is None
    assert (errors["Eth1/1"].counts["Xmit-Err"], errors["Eth1/1"].counts["Stomped-CRC"]) == (230, 13450)
    status = switch_text.parse_nxos_status(sample("switch/cli/cisco_nxos_show_interface_status1.txt"))
    assert len(status) == 9
    assert (status["Eth1/2"].up, status["Eth1/2"].alias, status["Eth1/2"].bits_per_second) == (True, "interface2", 10e9)
    assert (status["mgmt0"].alias, status["mgmt0"].bits_per_second) == ("", 1e9)
    detail = switch_text.parse_nxos_json(sample("switch/json/nxos-counters-detailed.json.txt"))
    assert len(detail) == 62
    assert (detail["Ethernet1/2"].in_bytes, detail["Ethernet1/2"].out_bytes) == (None, 5399880000)
    assert detail["Ethernet1/4"].in_bytes == 94486427294
    assert not any(port.name.startswith(("Vlan", "mgmt", "port-channel")) for port in data_ports(detail.values()))


def test_sonic_of_several_namespaces_with_a_preamble_and_inner_ports() -> None:
    ports = switch_text.parse_sonic_counters(
        "The rates are calculated within 3 seconds period\n"
        "        IFACE    STATE      RX_OK      RX_BPS    RX_UTIL\n"
        "-------------  -------  ---------  ----------  ---------\n"
        "    Ethernet0        U  1,234,567  1.50 GB/s      12.00%\n"
        " Ethernet-BP0        U          5    0.00 B/s      0.00%\n"
        "\n"
        "        IFACE    STATE      RX_OK      RX_BPS    RX_UTIL\n"
        "-------------  -------  ---------  ----------  ---------\n"
        "Ethernet-Rec0        X          5         N/A       -1.0\n"
        "   Ethernet16        X          5         N/A       -1.0\n")
    assert (ports["Ethernet0"].counts["RX_OK"], ports["Ethernet0"].in_bytes_per_second) == (1234567, 1.5e9)
    assert (ports["Ethernet16"].up, ports["Ethernet16"].in_bytes_per_second, ports["Ethernet16"].in_ratio) == (False, None, None)
    assert [port.name for port in data_ports(ports.values())] == ["Ethernet0", "Ethernet16"]


def test_a_table_of_one_row_is_an_object() -> None:
    ports = switch_text.parse_nxos_json('{"TABLE_interface": {"ROW_interface": {"interface": "Ethernet1/1", "eth_inbytes": "7"}}}')
    assert (ports["Ethernet1/1"].in_bytes, ports["Ethernet1/1"].out_bytes) == (7, None)


@pytest.mark.parametrize("reader", [switch_text.parse_sonic_db, switch_text.parse_eos_json, switch_text.parse_nxos_json])
@pytest.mark.parametrize("text", ["{}", "[]", "nothing", '{"interfaces": 3, "TABLE_interface": 3, "COUNTERS_PORT_NAME_MAP": 3}'])
def test_json_of_another_kind_is_refused(reader: object, text: str) -> None:
    with pytest.raises(ValueError, match=r"holds no|not JSON"):
        reader(text)  # type: ignore[operator]


@given(st.one_of(st.text(max_size=150), st.text("IFACE -RX_OKUDport.0123456789,%MB/s\n", max_size=250)))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for reader in (switch_text.parse_sonic_counters, switch_text.parse_eos_text, switch_text.parse_nxos_counters,
                   switch_text.parse_nxos_status):
        for port in reader(text).values():
            assert port.in_bytes is None or port.in_bytes >= 0
    switch_text.parse_sonic_pfc(text)
