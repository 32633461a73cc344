"""What nvidia-smi may print beside the usual: columns, units, process names, warnings, broken documents, garbage."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clustertop.probe.frames import Err
from clustertop.signals import gpu as gpu_table
from clustertop.signals import smi, smi_text, smi_xml

GIB = 1 << 30


def one(text: str, *columns: str) -> smi.Gpu:
    gpu, = smi.parse_csv(text, columns).gpus
    return gpu


def test_columns_go_by_name_whatever_their_order_and_number() -> None:
    with_header = one("utilization.gpu [%], some.new.field [furlongs], index, temperature.gpu\n 97 %, 3 furlongs, 4, 61\n")
    without = one("97, 3, 4, 61\n", "utilization.gpu", "some.new.field", "index", "temperature.gpu")
    assert with_header.cells == without.cells == {"util": 97, "temp": 61}
    assert with_header.attrs == without.attrs == {"index": 4}


@pytest.mark.parametrize(("kind", "text", "number"), [
    ("%", "97 %", 97), ("%", "97", 97), ("MiB", "81559 MiB", 81559 << 20), ("MiB", "80 GiB", 80 * GIB), ("W", "433.78 W", 433780),
    ("W", " 433.78", 433780), ("C", "24 C", 24), ("C", "-2 C", -2), ("x", "16x", 16), ("x", "16", 16), ("P", "P0", 0), ("P", "P15", 15),
    ("on", "Enabled", 1), ("on", "Disabled", 0), ("on", "No", 0), ("on", "Active", 1), ("bits", "0x0000000000000044", 0x44),
    ("MHz", "1980 MHz", 1980), ("", "[  7 ]", 7), ("", "0", 0),
])  # fmt: skip
def test_units_stand_in_the_cell_or_not(kind: str, text: str, number: float) -> None:
    assert smi.cell(text, kind) == number


def test_a_unit_of_another_kind_is_no_number() -> None:
    for kind, text in (("%", "97 W"), ("C", "61 %"), ("W", "61 C"), ("MiB", "3 W"), ("", "3 MiB"), ("x", "16 GT/s")):
        assert isinstance(smi.cell(text, kind), Err), (kind, text)


def test_commas_in_names_do_not_shift_the_columns() -> None:
    gpu = one("index, name, utilization.gpu [%]\n0, Graphics, Device, rev. 2, 12 %\n")
    assert (gpu.attrs["name"], gpu.cells["util"]) == ("Graphics, Device, rev. 2", 12)
    text = "pid, process_name, used_gpu_memory [MiB]\n7, /opt/my app, v2/a\\b.exe, [N/A]\n8, python, 5 MiB\nnoise\n"
    got = smi_text.processes(text)
    assert [(process.pid, process.name) for process in got] == [(7, "/opt/my app, v2/a\\b.exe"), (8, "python")]
    assert [process.memory for process in got] == [smi.NOT_PROVIDED, 5 << 20]


def test_a_line_that_is_no_row_is_a_note() -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:17:00.0"
    got = smi.parse_csv(f"index, temperature.gpu, pstate\n0, 40, P0\n1, 41\n2, 42, P0, 7\n3, 43, P8\n{warning}\n")
    assert [gpu.attrs["index"] for gpu in got.gpus] == [0, 3]
    assert got.notes == ["1, 41", "2, 42, P0, 7", warning]
    assert not got.error


def test_a_field_that_the_driver_does_not_know_is_named() -> None:
    got = smi.parse_csv('Field "clocks_event_reasons.active" is not a valid field to query.\n\n', ("index", "pstate"), 2)
    assert got.bad_field == "clocks_event_reasons.active"
    assert not got.gpus
    assert smi.parse_csv('Field "x" is not a valid field to query.\n', ("index",), 0).bad_field == "x"


def test_identity_is_the_uuid_else_the_address_else_the_place() -> None:
    text = "uuid, pci.bus_id, pstate\nGPU-1, 00000000:17:00.0, P0\n[Unknown Error], 00000000:65:00.0, P0\n[N/A], N/A, P0\nGPU-1, 00000000:66:00.0, P0\n"
    assert [gpu.key for gpu in smi.parse_csv(text).gpus] == ["GPU-1", "pci:00000000:65:00.0", "index:2", "pci:00000000:66:00.0"]


XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
<driver_version>570.1</driver_version><attached_gpus>2</attached_gpus>
<gpu id="00000000:17:00.0"><product_name>NVIDIA H100</product_name><uuid>GPU-1</uuid>
<processes><process_info><pid>7</pid><process_name>{name}</process_name></process_info></processes>
<temperature><gpu_temp> 61 C </gpu_temp><gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold></temperature>
<clocks_event_reasons><clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_hw_slowdown>{hw}</clocks_event_reason_hw_slowdown></clocks_event_reasons>
<gpu_power_readings><power_draw>67.03 W</power_draw></gpu_power_readings>
<module_power_readings><power_draw>900.00 W</power_draw></module_power_readings></gpu>
<gpu id="00000000:65:00.0"><uuid>GPU-2</uuid><temperature><gpu_temp>GPU is lost</gpu_temp></temperature></gpu>
</nvidia_smi_log>
WARNING: infoROM is corrupted at gpu 0000:17:00.0
"""


def document(name: str = "python", hw: str = "Not Active") -> str:
    return XML.replace("{name}", name).replace("{hw}", hw)


def test_a_document_of_two_gpus() -> None:
    got = smi_xml.parse_xml(document())
    first, second = got.gpus
    assert (first.cells["temp"], first.cells["power_mw"], first.cells["reasons"]) == (61, 67030, 0)
    assert first.cells["temp_slowdown"] == smi.NOT_PROVIDED, "a distance to a limit is no limit"
    assert second.cells["temp"] == Err("GPU is lost")
    assert (got.attached, got.facts, got.error) == (2, {"driver": "570.1"}, "")
    assert got.notes == ["WARNING: infoROM is corrupted at gpu 0000:17:00.0"]


@pytest.mark.parametrize(("hw", "mask"), [("Active", 8), ("Not Active", 0), ("N/A", 0), ("Unknown Error", Err("Unknown Error"))])
def test_a_mask_with_a_bit_that_could_not_be_read_is_unknown(hw: str, mask: object) -> None:
    assert smi_xml.parse_xml(document(hw=hw)).gpus[0].cells["reasons"] == mask


@pytest.mark.parametrize("name", ["a & b", "x\x01\x1b[31my", "&amp;", "&boom;", "&#0;", "\udcff", "a]]>b", "<defunct>", "a</b>"])
def test_a_process_may_be_called_anything(name: str) -> None:
    got = smi_xml.parse_xml(document(name))
    assert not got.error
    assert [gpu.attrs["uuid"] for gpu in got.gpus] == ["GPU-1", "GPU-2"]
    assert got.gpus[0].cells["temp"] == 61


def test_entities_are_not_expanded_and_no_file_is_read() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;"><!ENTITY f SYSTEM "file:///etc/passwd">]>'
    for begin in (bomb + "<nvidia_smi_log>", "<nvidia_smi_log>" + bomb):
        text = begin + '<gpu id="00000000:17:00.0"><product_name>&b;&f;</product_name></gpu></nvidia_smi_log>'
        got = smi_xml.parse_xml(text)
        assert "aaa" not in repr(got.gpus)
        assert "root:" not in repr(got.gpus)


def test_a_document_that_breaks_off_keeps_the_gpus_told_in_full() -> None:
    text = document()
    got = smi_xml.parse_xml(text[: text.index("GPU is lost")])
    assert [gpu.attrs["uuid"] for gpu in got.gpus] == ["GPU-1"]
    assert "breaks off" in got.error


def test_depth_and_size_are_bounded() -> None:
    assert "deeply" in smi_xml.parse_xml("<nvidia_smi_log>" + "<a>" * 5000).error
    long = smi.parse_csv("index, name\n" + "0, x\n" * (smi.MAX_TEXT // 5 + 9))
    assert len(long.gpus) == smi.MAX_GPUS
    assert len(smi.parse_csv("x\n" * 100_000, ("index", "name")).notes) <= smi.MAX_NOTES


PIECES = st.sampled_from(["index", "uuid", "utilization.gpu [%]", "temperature.gpu", "0", "97 %", "[N/A]", "ERR!", ",", ", ", "\n", "GPU-1", " ",
                          "-", "99999999999999999999", "1.5 W", "nan", "\x00", "\ud800", "|", "<gpu>", "Link 0: ", "\t", "P0", "# gpu", "=", "::"])
GARBAGE = st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=60).map("".join),
                    st.text(alphabet=string.printable, max_size=300))


@settings(max_examples=60, deadline=None)
@given(GARBAGE, st.integers(0, 255))
@example("index, utilization.gpu [%]\n,", 0)
def test_garbage_gives_unknowns_and_never_an_exception(text: str, status: int) -> None:
    for got in (smi.parse_csv(text, ("index", "utilization.gpu"), status), smi.parse_csv("index, pstate\n" + text),
                smi_xml.parse_xml(text, status), smi_xml.parse_xml("<nvidia_smi_log>" + text), smi.failed(text, status),
                smi_xml.parse_text("Attached GPUs : 1\nGPU 00000000:00:09.0\n" + text)):
        assert not (status and got.gpus and got.error)
        for gpu in got.gpus:
            assert all(isinstance(cell, int | float | Err) for cell in gpu.cells.values())
    for parse in (smi_text.table, smi_text.nvlink, smi_text.listing, smi_text.dmon, smi_text.topology, smi_text.processes):
        parse(text)


@given(st.text(max_size=40), st.sampled_from(sorted(smi._SCALES)))
def test_no_zero_is_invented(text: str, kind: str) -> None:
    got = smi.cell(text, kind)
    if not isinstance(got, Err) and got == 0:
        assert "0" in text
        assert not set(text) & set("123456789")


def test_every_column_of_the_query_is_one_of_the_table_or_an_extra() -> None:
    known = set(gpu_table.TABLE.raw_index)
    extra = {"pcie_gen_hostmax"}
    assert {column for column, _, _ in smi.FIELDS} - extra <= known
    assert {column for column, _, _ in smi_xml._PATHS} - extra <= known
