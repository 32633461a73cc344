"""Screening facts as findings and as differences between peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clustertop.model import NodeInfo, Severity
from clustertop.probe.frames import Err
from clustertop.rules.outliers import outliers
from nodes import GPU, Fleet, gpus, table

if TYPE_CHECKING:
    from clustertop.probe.frames import Table

WELL = {"dns_seconds": 0, "dns": "ok", "somaxconn": 4096, "slow_start_after_idle": 1, "monitors": 0}


def facts(running: tuple[str, ...] = (), error: str = "", **changes: Any) -> Table:
    """A node's screening facts, as the probe sends them."""
    attrs: dict[str, Any] = {"host": "gpu7"}
    if running:
        attrs["monitors"] = list(running)
    if error:
        attrs["dns_error"] = error
    return table({"": {**WELL, "monitors": len(running), **changes}}, {"": attrs})


def look(*screens: Table, **more: Any) -> Fleet:
    """A fleet whose nodes said this, three times."""
    fleet = Fleet(len(screens), **more)
    for _ in range(3):
        for number, one in enumerate(screens):
            fleet.say(number, screen=one)
        fleet.step()
    return fleet


class TestFindings:
    def test_all_is_well(self) -> None:
        assert look(facts()).seen == []

    @pytest.mark.parametrize(("said", "rule", "severity", "message"), [
        (facts(dns_seconds=5.0, dns="no answer"), "dns_slow", Severity.WARNING, "own host name gpu7: no answer for 5.0 s"),
        (facts(dns_seconds=7.3), "dns_slow", Severity.WARNING, "own host name gpu7 took 7.3 s to look up"),
        (facts(dns_seconds=0.1, dns="EAI_NONAME", error="Name or service not known"), "dns_fails", Severity.WARNING,
         "own host name gpu7: Name or service not known (after 0.1 s)"),
        (facts(("nv-hostengine 1", "nvidia-smi 3", "telegraf 1")), "gpu_monitors", Severity.INFO,
         "monitors beside this one: nv-hostengine, nvidia-smi (3), telegraf"),
    ])
    def test_a_finding_by_itself(self, said: Table, rule: str, severity: Severity, message: str) -> None:
        fleet = look(said)
        (alert,) = fleet.alerts
        assert (alert.rule, alert.severity, alert.message) == (rule, severity, message)
        assert alert.thing.label == "n0"

    @pytest.mark.parametrize("said", [
        facts(dns_seconds=4.9),
        facts(("telegraf 1", "node_exporter 1")),
        facts(dns_seconds=Err("not asked for another root"), dns=Err("not asked for another root")),
        facts(monitors=Err("processes hidden: EACCES")),
    ], ids=["fast enough", "no gpu monitor", "not asked", "hidden"])
    def test_what_is_none(self, said: Table) -> None:
        assert look(said).seen == []

    def test_one_name_server_for_all_is_one_alert(self) -> None:
        fleet = look(*[facts(dns_seconds=5.0, dns="no answer")] * 5)
        (alert,) = fleet.alerts
        assert (alert.thing.table, len(alert.members)) == ("fleet", 5)

    def test_resizable_bar_off(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus({"bar1_total": 256 << 20}, {"bar1_total": 128 << 30}, {}))
        (alert,) = [alert for alert in fleet.alerts if alert.rule == "gpu_bar1"]
        assert (alert.thing.label, alert.severity) == ("GPU 0", Severity.INFO)
        assert alert.message == "BAR1 256 MiB, framebuffer 80.0 GiB: Resizable BAR is off"


class TestDifferences:
    def found(self, fleet: Fleet) -> list[str]:
        return [str(one) for one in outliers(fleet.view)]

    @pytest.mark.parametrize(("odd", "said"), [
        (facts(somaxconn=128), "n3: somaxconn 128, 3 of 4 peers have 4096"),
        (facts(slow_start_after_idle=0), "n3: slow_start_after_idle off, 3 of 4 peers have on"),
        (facts(dns_seconds=2.0), "n3: own name looked up in 2.0 s, 3 of 4 peers have fast"),
        (facts(dns="EAI_AGAIN"), "n3: name_lookup fails, 3 of 4 peers have resolves"),
        (facts(("nvtop 2",)), "n3: other monitors nvtop, 3 of 4 peers have none"),
    ])
    def test_one_of_four(self, odd: Table, said: str) -> None:
        assert self.found(look(facts(), facts(), facts(), odd)) == [said]

    def test_what_is_unknown_is_no_difference(self) -> None:
        odd = facts(**dict.fromkeys(WELL, Err("EACCES")))
        assert self.found(look(facts(), facts(), facts(), odd)) == []

    def test_how_many_processes_a_monitor_has_is_none(self) -> None:
        assert self.found(look(*[facts((f"nv-hostengine {count}",)) for count in (1, 2, 1)])) == []

    def _slots(self, **odd: Any) -> Fleet:
        fleet = Fleet(4)
        for number in range(4):
            row = {"cur_width": 16, "max_width": 16}
            attrs: dict[str, Any] = {"class": "0x020000", "vendor": "0x15b3", "device": "0x101d", "numa": 0, "path": []}
            if number == 3:
                row.update({key: value for key, value in odd.items() if key in row})
                attrs.update({key: value for key, value in odd.items() if key not in row})
            fleet.say(number, pcie=table({"0000:17:00.0": row}, {"0000:17:00.0": attrs}))
        fleet.step()
        return fleet

    def test_numa_node_of_a_slot(self) -> None:
        assert self.found(self._slots(numa=1)) == ["n3 17:00.0: NUMA node 1, 3 of 4 peers have 0"]
        assert self.found(self._slots(numa=-1)) == ["n3 17:00.0: NUMA node none, 3 of 4 peers have 0"]

    def test_a_node_that_does_not_say_is_no_difference(self) -> None:
        assert self.found(self._slots(numa=None)) == []

    def test_pcie_width_of_like_devices(self) -> None:
        assert self.found(self._slots(cur_width=8)) == ["n3 17:00.0: width_lanes x8, 3 of 4 peers have x16"]


class TestUnclaimed:
    def memory(self, fleet: Fleet) -> list[tuple[float | None, str]]:
        gpu = fleet["gpu"]
        return [(gpu.value("memory_unclaimed_bytes", row), gpu.reason("memory_unclaimed_bytes", row))
                for row in range(len(gpu))]

    def processes(self, *rows: tuple[str, int, object], error: str = "") -> Table:
        return table({f"{gpu}/{pid}": {"mem_used": used} for gpu, pid, used in rows},
                     {f"{gpu}/{pid}": {"gpu": gpu, "pid": pid} for gpu, pid, _ in rows}, error)

    def test_what_is_used_minus_what_processes_hold(self) -> None:
        fleet = Fleet()
        assert GPU["mem_used"] == 60 << 30
        listed = self.processes(("GPU-0", 1, 20 << 30), ("GPU-0", 2, 30 << 30), ("GPU-1", 3, 61 << 30))
        fleet.step(gpu=gpus({}, {}, {"mem_used": Err("Unknown Error")}), process=listed)
        assert self.memory(fleet) == [(float(10 << 30), ""), (0.0, ""), (None, "processes not listed")]

    def test_it_is_unknown_where_processes_are_not_listed_or_not_all_of_them(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus({}))
        assert self.memory(fleet) == [(None, "processes not listed")]
        fleet.step(gpu=gpus({}), process=self.processes(("GPU-0", 1, 1 << 30), error="GPU 1: Unknown Error"))
        assert self.memory(fleet) == [(None, "processes not listed")]

    def test_a_process_that_does_not_say_leaves_it_unknown(self) -> None:
        fleet = Fleet()
        listed = self.processes(("GPU-0", 1, 1 << 30), ("GPU-0", 2, Err("not available")), ("GPU-1", 3, 1 << 30))
        fleet.step(gpu=gpus({}, {}), process=listed)
        assert self.memory(fleet) == [(None, "processes not listed"), (float(59 << 30), "")]


def test_what_a_node_says_is_cleaned_and_its_one_row_is_the_node() -> None:
    fleet = Fleet([NodeInfo("n0")])
    fleet.step(screen=table({"a": {**WELL, "monitors": 1}},
                            {"a": {"host": "x\x1b[2J", "monitors": ["nvtop 1", "[/b] 9"]}}))
    view = fleet["screen"]
    assert (view.keys, view.labels) == (("",), ("n0",))
    assert "\x1b" not in str(view.attrs)
