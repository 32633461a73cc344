"""Devices beside the nodes: who owns their rows, what is known of their links, and that a recording keeps them."""

import msgspec
import numpy as np
import pytest

from clustertop.core import Core
from clustertop.inventory import Inventory
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.places import Device, Feed, Site, Supply
from clustertop.plan import Plan
from clustertop.record import Recorder, Recording, play
from clustertop.replay import replay_core
from clustertop.rules.spec import builtin
from clustertop.store.store import Store
from clustertop.wire.frame import Frame, FrameError, GroupPart
from clustertop.wire.transport import PollSettings

NODES = (NodeInfo("n1", rack="r1"), NodeInfo("n2", rack="r1"))
SITE = Site(
    (Feed("r1-A", 16.0, 230.0, pair="r1-B", pdu="pdu-a", supplies=(Supply("n1", ("1",)), Supply("n2", ("1",)))),
     Feed("r1-B", 16.0, 230.0, pair="r1-A", supplies=(Supply("n1", ("2",)),))),
    (Device("pdu-a", "pdu", None, "10.0.0.7:161", rack="r1", interval_seconds=10.0),
     Device("n2-bmc", "bmc", None, "10.0.0.8:443", of="n2", interval_seconds=60.0)),
)
PDU, BMC = 2, 3


def told(at: float, state: str = "ok", interval: float = 10.0, **more: object) -> Frame:
    return Frame(1, 1, 1, at, 0.0, g={"pdu": GroupPart(at, iv=interval, ms=40.0, st=state, n=1)}, **more)


class TestOwners:
    def test_nodes_stand_first_then_devices_then_feeds_then_the_fleet(self):
        store = Store(NODES, site=SITE)
        assert [(one.name, one.kind) for one in store.owners.all] == [
            ("n1", "node"), ("n2", "node"), ("pdu-a", "pdu"), ("n2-bmc", "bmc"), ("r1-A", "feed"), ("r1-B", "feed"),
            ("fleet", "fleet")]

    def test_what_a_bmc_says_is_kept_under_its_node_and_a_pdus_under_itself(self):
        store = Store(NODES, site=SITE)
        assert store.owners.host[BMC] == 1
        assert store.owners.host[PDU] == PDU

    def test_an_owner_is_found_by_name_and_table(self):
        twin = Site((Feed("n1"),), (Device("n1", "pdu", None),))
        owners = Store(NODES, site=twin).owners
        assert (owners.number("gpu", "n1"), owners.number("device", "n1"), owners.number("feed", "n1")) == (0, 2, 3)
        assert owners.number("traffic", "fleet") == 4
        assert owners.number("feed", "n2") is None

    def test_hosts_of_owners_are_nodes_only(self):
        store = Store(NODES, site=SITE)
        store.tick(1.0)
        view = store.view(1.0, 0.0)
        assert view.hosts((0, PDU, BMC, 5, 6)) == (0, 1)
        assert len(view.nodes) == 2


class TestLinks:
    def test_before_anything_is_heard_all_is_unknown(self):
        store = Store(NODES, site=SITE)
        store.tick(5.0)
        table = store.view(5.0, 0.0)["device"]
        assert table.labels == ("PDU pdu-a", "BMC n2-bmc")
        assert np.isnan(table.col("reachable")).all()
        assert table.reason("age_seconds", 0) == "not read yet"

    def test_a_good_reading_answers_and_ages(self):
        store = Store(NODES, site=SITE)
        store.link(LinkEvent(PDU, 1.0, LinkState.UP))
        store.frame(PDU, 2.0, 0.0, told(2.0))
        store.tick(27.0)
        table = store.view(27.0, 0.0)["device"]
        assert table.value("reachable", 0) == 1.0
        assert table.value("age_seconds", 0) == pytest.approx(25.0)
        assert table.value("age_intervals", 0) == pytest.approx(2.5)
        assert table.value("reading_seconds", 0) == pytest.approx(0.04)

    def test_a_failed_attempt_is_a_reading_of_the_link_only(self):
        store = Store(NODES, site=SITE)
        store.link(LinkEvent(PDU, 1.0, LinkState.UNREACHABLE, "read", "no answer"))
        for at in (2.0, 12.0):
            store.frame(PDU, at, 0.0, told(at, "error"))
        store.tick(13.0)
        view = store.view(13.0, 0.0)
        assert view["device"].value("reachable", 0) == 0.0
        assert view["device"].reads[0] == 2
        assert view["device"].reason("age_seconds", 0) == "not read yet"
        assert view.link_reasons[PDU] == "no answer"

    def test_a_link_of_a_device_is_no_link_of_a_node(self):
        store = Store(NODES, site=SITE)
        store.link(LinkEvent(BMC, 1.0, LinkState.AUTH_FAILED, "login", "password refused"))
        store.tick(2.0)
        view = store.view(2.0, 0.0)
        assert view["device"].value("reachable", 1) == 0.0
        assert np.isnan(view["node"].col("reachable")).all()

    def test_a_frame_that_counts_from_another_is_refused(self):
        with pytest.raises(FrameError, match="not a full one"):
            Store(NODES, site=SITE).frame(PDU, 1.0, 0.0, msgspec.structs.replace(told(1.0), b=0))


class TestRecording:
    def test_feeds_and_devices_come_back_without_their_addresses(self, tmp_path):
        path = tmp_path / "flight.ct"
        plan = Plan(Inventory(NODES), PollSettings(), builtin(), site=SITE)
        with Recorder(path, plan) as tap:
            core = Core(NODES, plan.rules, tap=tap, site=SITE)
            core.on_link(LinkEvent(PDU, 1.0, LinkState.UP), 100.0)
            frame = told(2.0)
            core.on_frame(PDU, 2.0, 101.0, frame, msgspec.json.encode(frame))
            core.tick(3.0, 102.0)
        recording = Recording(path)
        assert recording.site.feeds == SITE.feeds
        assert [(one.name, one.kind, one.of, one.where) for one in recording.site.devices] == [
            ("pdu-a", "pdu", "", ""), ("n2-bmc", "bmc", "n2", "")]
        again = replay_core(recording)
        for step in recording.steps():
            play(again, step)
        assert recording.note == ""
        assert again.snapshot.view["device"].value("reachable", 0) == 1.0
        assert again.snapshot.view["device"].value("age_seconds", 0) == pytest.approx(1.0)


def test_what_a_device_says_of_itself_is_in_its_row_as_it_says_it_now() -> None:
    store = Store(NODES, site=SITE)
    said = {"model": "Own PDU", "notes": "2 of its parts \x1b[31mdid not answer" + "y" * 900, "where": "elsewhere", "kind": "x"}
    store.frame(PDU, 1.0, 0.0, told(1.0, h=said))
    store.tick(1.0)
    attrs = store.view(1.0, 0.0)["device"].attrs[0]
    assert (attrs["model"], attrs["kind"], attrs["where"]) == ("Own PDU", "pdu", "10.0.0.7:161")
    assert str(attrs["notes"]).startswith("2 of its parts")
    assert "\x1b" not in str(attrs["notes"])
    assert len(str(attrs["notes"])) <= 300
    store.frame(PDU, 11.0, 0.0, told(11.0, h={"model": "Own PDU"}))
    store.tick(11.0)
    later = store.view(11.0, 0.0)["device"].attrs[0]
    assert "notes" not in later
    assert later["model"] == "Own PDU"
    assert "notes" in attrs, "a view stays as it was"
