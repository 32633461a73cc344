"""GPU signals beyond utilisation and temperature: Xids, NVLink, stalled GPUs, persistence mode, released GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.model import Severity
from clustertop.probe.frames import Err, Table
from clustertop.signals import gpu, host, xid
from clustertop.signals.columns import Columns
from nodes import ZERO, Fleet, gpus, table

BUSY = {"util": 99, "power_mw": 600e3, "power_limit_mw": 700e3}
NO_XID = {"xid": 0, "xid_count": 0, "xids": ""}


def seen(*codes: int, at: float = 500.0) -> dict[str, Any]:
    """What the probe says of a GPU that had these Xids, oldest first."""
    counts = {code: codes.count(code) for code in codes}
    newest = sorted(counts, key=lambda code: -max(n for n, one in enumerate(codes) if one == code))
    return {"xid": codes[-1], "xid_count": len(codes), "xid_time": at,
            "xids": " ".join(f"{code}x{counts[code]}" for code in newest)}


class TestXids:
    @pytest.mark.parametrize(("codes", "severity", "text"), [
        ((79,), Severity.CRITICAL, "Xid 79, GPU has fallen off the bus (hardware)"),
        ((48, 45, 45), Severity.CRITICAL, "Xid 48, double bit ECC error (hardware)"),
        ((119,), Severity.CRITICAL, "Xid 119, GSP RPC timeout (driver)"),
        ((74,), Severity.WARNING, "Xid 74, NVLink error (fabric)"),
        ((149,), Severity.WARNING, "Xid 149, NVLink: NETIR error (fabric)"),
        ((13, 13, 43), Severity.INFO, "Xid 43, GPU stopped processing (application)"),
        ((31,), Severity.INFO, "Xid 31, GPU memory page fault (application)"),
        ((45,), Severity.INFO, "Xid 45, preemptive cleanup"),
        ((54,), Severity.CRITICAL, "(power)"),
        ((9999,), Severity.WARNING, "Xid 9999 (not in our catalog)"),
    ])
    def test_the_gravest_code_decides(self, codes: tuple[int, ...], severity: Severity, text: str) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus(NO_XID, NO_XID))
        assert fleet.seen == []
        changes = fleet.step(gpu=gpus(NO_XID, seen(*codes)))
        assert [(change.rule, change.severity, change.thing.label) for change in changes] == [
            ("gpu_xid", severity, "GPU 1")]
        assert text in changes[0].message

    def test_a_burst_is_one_alert_that_worsens_and_passes(self) -> None:
        fleet = Fleet()
        for what in ({**NO_XID}, seen(13), seen(*[13] * 17, 43), seen(*[13] * 17, 43, 48), NO_XID, NO_XID, NO_XID):
            fleet.step(gpu=gpus(what))
        assert fleet.rules == ["raised gpu_xid", "worsened gpu_xid", "cleared gpu_xid"]

    def test_age_is_counted_on_the_nodes_clock(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus(seen(13, at=420.0)))
        assert fleet["gpu"].value("xid_age_seconds", 0) == pytest.approx(81.0)

    def test_not_readable_is_unknown_and_no_alert(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus(dict.fromkeys(("xid", "xid_time", "xid_count", "xids"), Err("not readable"))))
        assert fleet["gpu"].value("xid_level", 0) is None
        assert fleet["gpu"].reason("xid_last", 0) == "not readable"
        assert fleet.seen == []

    def test_a_lost_gpu_still_has_its_xid(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus({**dict.fromkeys(("util", "mem_used", "power_mw", "temp", "pcie_width"),
                                                 Err("GPU is lost")), **seen(79)}))
        assert fleet.rules == ["raised gpu_xid", "worsened gpu_missing"]
        assert fleet.firing == ["gpu_missing"]
        assert "Xid 79" in fleet.alerts[0].message
        assert sorted(fleet.inside()) == ["gpu_missing GPU 0", "gpu_xid GPU 0"]

    def test_every_code_of_the_hour_is_kept_with_its_count(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus(NO_XID, seen(48, 45, 45)))
        table = fleet["gpu"]
        assert xid.listed(table.value("xid_codes", 1) or 0) == [(45, 2), (48, 1)]
        assert table.value("xid_worst", 1) == 48
        assert xid.listed(table.value("xid_codes", 0) or 0) == []

    def test_nodes_that_make_up_lists_without_end_cost_no_verdict(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(xid, "MOST_TEXTS", len(xid.TEXTS))
        assert xid.codes("45x2 79x987654") == 79.0
        assert xid.gravest(79.0) == 79.0
        assert xid.listed(79.0) == [(79, 0)]
        fleet = Fleet()
        fleet.step(gpu=gpus({**seen(79), "xids": "45x1 79x1234567"}))
        assert fleet["gpu"].value("xid_level", 0) == xid.CRITICAL

    @given(st.text(max_size=40))
    def test_garbage_is_no_xid(self, text: str) -> None:
        try:
            code = xid.worst(text)
        except ValueError:
            return
        assert code == 0 or f"{int(code)}x" in text

    def test_every_entry_says_what_to_do_and_each_code_is_there_once(self) -> None:
        assert all(one.name and one.todo and one.level for one in xid.XIDS.values())
        assert all(code == one.code for code, one in xid.XIDS.items())
        assert {code for code, one in xid.XIDS.items() if one.fault == "application"} >= {13, 31, 43, 45}
        assert all(xid.XIDS[code].level == xid.CRITICAL for code in (48, 64, 79, 92, 94, 95, 119, 120))


class TestMargin:
    def test_a_card_that_keeps_its_limits_to_itself_is_judged_by_its_own_margin(self) -> None:
        fleet = Fleet()
        keeps = {"temp_slowdown": Err("Not Supported"), "temp": 81}
        for margin in (26, 26, 4, 4):
            fleet.step(gpu=gpus({**keeps, "temp_margin": margin}, {"temp": 83, "temp_margin": 50}, {**keeps, "temp_margin": Err("Not Supported")}))
        assert [fleet["gpu"].value("temperature_margin_celsius", row) for row in range(3)] == [4, 4, None]
        assert [(change.thing.label[:5], change.severity, change.message) for change in fleet.seen] == [
            ("GPU 1", Severity.WARNING, "83 °C, slowdown at 87 °C"),
            ("GPU 0", Severity.WARNING, "81 °C, 4 °C from its own limit")]
        for _ in range(2):
            fleet.step(gpu=gpus({**keeps, "temp_margin": -2}, {}, keeps))
        assert fleet.seen[-1].severity == Severity.CRITICAL


class TestStalled:
    def play(self, *changes: dict[str, Any], seconds: int = 70) -> Fleet:
        fleet = Fleet()
        for _ in range(seconds):
            fleet.step(gpu=gpus(*changes))
        return fleet

    def test_full_utilisation_at_little_power_for_a_minute(self) -> None:
        fleet = self.play(BUSY, BUSY, {**BUSY, "power_mw": 180e3}, BUSY)
        assert fleet.firing == ["gpu_stalled"]
        change = fleet.seen[0]
        assert (change.thing.label, change.severity) == ("GPU 2", Severity.WARNING)
        assert change.message == ("busy but stalled: 99 % utilisation at 180 W, 30 % of what its busy neighbours draw")
        assert change.at - ZERO >= 60.0

    @pytest.mark.parametrize("changes", [
        (BUSY, BUSY, {**BUSY, "power_mw": 320e3}, BUSY),
        (BUSY, BUSY, {**BUSY, "power_mw": 180e3, "util": 90}, BUSY),
        (BUSY, {**BUSY, "power_mw": 180e3}),
        # All of them alike: the job is what it is.
        tuple({**BUSY, "power_mw": 180e3} for _ in range(8)),
        # A smaller card at its own limit.
        (BUSY, BUSY, BUSY, {**BUSY, "power_mw": 70e3, "power_limit_mw": 75e3}),
        (BUSY, BUSY, BUSY, {**BUSY, "power_mw": 180e3, "power_limit_mw": Err("Not Supported")}),
    ])
    def test_what_is_not_stalled(self, changes: tuple[dict[str, Any], ...]) -> None:
        assert "gpu_stalled" not in {change.rule for change in self.play(*changes).seen}

    def test_it_is_over_when_the_gpu_is_idle(self) -> None:
        fleet = self.play(BUSY, BUSY, {**BUSY, "power_mw": 180e3}, BUSY)
        for _ in range(12):
            fleet.step(gpu=gpus(BUSY, BUSY, {**BUSY, "util": 0, "power_mw": 90e3}, BUSY))
        assert fleet.rules[-1] == "cleared gpu_stalled"

    @given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.5, 0.95, 1.0]),
                              st.one_of(st.none(), st.integers(50, 700))), max_size=30))
    def test_the_columns_agree_with_one_gpu_at_a_time(self, rows: list[tuple[int, float, int | None]]) -> None:
        t = Columns.empty(gpu.TABLE, len(rows))
        t.row_node[:] = [node for node, _, _ in rows]
        t.put("utilization_ratio", np.array([util for _, util, _ in rows], float))
        t.put("power_watts", np.array([np.nan if power is None else power for _, _, power in rows], float))
        t.put("power_limit_watts", np.full(len(rows), 700.0))
        gpu.derive(t, np.zeros(len(rows), np.bool_))
        for number, (node, util, power) in enumerate(rows):
            others = [p for n, (o, u, p) in enumerate(rows) if n != number and o == node and u >= 0.95 and p]
            got = t.col("power_of_busy_peers_ratio")[number]
            if power is None or util < 0.95 or len(others) < 2:
                assert np.isnan(got)
            else:
                assert got == pytest.approx(power / float(np.median(others)))


class TestLinksAndModes:
    def test_links_down_beside_the_peers(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus({"nvlink_links": 18, "nvlink_up": 18}, {"nvlink_links": 18, "nvlink_up": 16}))
        assert [change.message for change in fleet.seen] == ["16 of 18 NVLinks up, 2 fewer than its neighbours"]

    def test_no_links_on_any_is_no_fault_and_not_supported_is_unknown(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus({"nvlink_links": 12, "nvlink_up": 0}, {"nvlink_links": 12, "nvlink_up": 0},
                                dict.fromkeys(("nvlink_links", "nvlink_up"), Err("Not Supported"))))
        assert fleet.seen == []
        assert fleet["gpu"].value("nvlink_links_missing", 2) is None

    def test_recoveries_rising(self) -> None:
        fleet = Fleet()
        for count in (7, 7, 9):
            fleet.step(gpu=gpus({"nvlink_recoveries": count}))
        assert fleet.firing == ["gpu_nvlink_recoveries"]

    def test_G6_persistence_mode_off_is_one_line_a_node_with_the_measured_time(self) -> None:  # noqa: N802
        fleet = Fleet(2)
        off = [{"persistence": 0}] * 7 + [{"persistence": 1}]
        fleet.now += 1
        for node in (0, 1):
            fleet.say(node, gpu=gpus(*(off if node else [{"persistence": 1}] * 8)),
                      states={"gpu": {"ms": 9400.0, "iv": 37.6}})
        fleet.tick()
        assert [(change.rule, change.severity, change.thing.node) for change in fleet.seen] == [
            ("gpu_persistence", Severity.INFO, "n1")]
        assert fleet.seen[0].message == "persistence mode off on 7 GPUs; the last reading took 9.4 s"
        assert fleet.core.snapshot is not None
        assert len(fleet.core.snapshot.alerts[0].members) == 6


class TestReleased:
    def test_released_gpus_are_neither_lost_nor_stale_nor_an_error(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus(count=8))
        gone = Table(gpus(count=8).rows, ["util", "temp", "mem_used", "power_mw", "pcie_width"],
                     [Err("released by the operator")] * 40)
        state = {"gpu": {"st": "released", "e": "released by the operator"}}
        for _ in range(120):
            fleet.step(gpu=gone, states=state)
        assert fleet.seen == []
        groups = fleet["group"]
        assert groups.value("group_state", 0) == host.RELEASED
        assert host.GROUP_WORDS[host.RELEASED] == "released"
        assert groups.attrs[0]["said"] == "released by the operator"
        assert fleet["gpu"].value("presence", 0) is None
        assert fleet["gpu"].value("utilization_ratio", 0) is None
        assert fleet["node"].value("gpus_present", 0) is None
        fleet.step(gpu=gpus(count=8))
        assert fleet["node"].value("gpus_present", 0) == 8
        assert fleet.seen == []


class TestProcesses:
    def test_rows_come_and_go_with_the_request(self) -> None:
        fleet = Fleet()
        rows = {"GPU-0/42": {"mem_used": 1 << 30}}
        attrs = {"GPU-0/42": {"gpu": "GPU-0", "pid": 42, "user": "ada", "command": "python3 train.py", "job": "7"}}

        def say(one: Table) -> None:
            fleet.now += 1
            frame = fleet.frame(0, gpu=gpus(count=2), process=one)
            fleet.send(0, frame)
            fleet.tick()

        say(table(rows, attrs))
        view = fleet["process"]
        assert (view.labels, view.value("gpu_memory_bytes", 0), view.attrs[0]["user"]) == (("pid 42",), 1 << 30, "ada")
        say(Table([], ["mem_used"], []))
        assert not fleet["process"].present.any()
        assert fleet.seen == []
