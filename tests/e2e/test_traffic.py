"""Traffic from the sockets' bytes to the rules: racks and leaf switches of network namespaces behind real sshds."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

import leaves
import nat
from netns import inside
from tools import need

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.sshd, pytest.mark.xdist_group("traffic")]
STRANGERS = ("10.88.9.9", leaves.SHARED)
"""Nobody's address, and one that two nodes have."""


def run(way: str, folder: Path) -> Any:
    return inside(leaves.SCRIPT, way, str(folder), links=leaves.LINKS, seconds=600)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run in which the kernel tells of the sockets."""
    return run("", tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="module", params=["kernel", "ss"])
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What is said of known bytes between known peers, by the kernel's answer and by ``ss``."""
    if request.param == "kernel":
        return request.getfixturevalue("kernel")["known"]
    return run("ss", tmp_path_factory.mktemp("ss"))["known"]


def rack(node: str) -> int:
    return int(node[1:]) // 2


def rates(known: Any) -> list[list[float]]:
    """Bytes per second from rack to rack, of what was sent between nodes."""
    out = [[0.0] * 3 for _ in range(3)]
    for source, books in known["sent"].items():
        for target, count in books.items():
            if target not in STRANGERS:
                out[rack(source)][rack(target)] += count / known["seconds"][source]
    return out


def fleet(told: Any, column: str) -> Any:
    """(value, reason) of the fleet's row."""
    return told["rows"]["fleet"][column]


def test_the_matrix_of_racks_is_what_was_sent(known: Any) -> None:
    assert known["racks"] == ["r0", "r1", "r2"]
    wanted = rates(known)
    for told, sent in zip(known["matrix"], wanted, strict=True):
        assert told == pytest.approx(sent, rel=0.01, abs=1.0)
    crossing = sum(sent for number, row in enumerate(wanted) for other, sent in enumerate(row) if other != number)
    assert fleet(known, "socket_cross_rack_ratio")[0] == pytest.approx(crossing / sum(map(sum, wanted)), rel=0.01)
    assert known["meters"]["sockets"][0] == "6/6 nodes"
    assert known["replayed"] == {key: known[key] for key in known["replayed"]}


def test_the_way_of_reading_is_said(known: Any) -> None:
    assert set(known["facts"]) in ({"sock_diag"}, {"ss; short-lived sockets not counted"})


def test_bytes_to_nobody_are_unplaced_beside_the_share(known: Any) -> None:
    told = {name: known["strangers"][name] * known["seconds"]["n0"] for name in STRANGERS}
    assert told == pytest.approx({name: known["sent"]["n0"][name] for name in STRANGERS}, rel=0.01)
    # The console's own connections are to no rack, either.
    own = known["strangers"].get(leaves.CONSOLE, 0.0)
    assert sum(known["strangers"].values()) == pytest.approx(own + 400_000 / known["seconds"]["n0"], rel=0.01)
    assert known["unplaced"][0] >= 0.99 * 400_000 / known["seconds"]["n0"]
    lost, total = fleet(known, "unplaced_ratio")[0], fleet(known, "bytes_per_second")[0]
    assert lost * total == pytest.approx(sum(known["unplaced"]), rel=0.01)


def test_without_a_rack_map_nothing_is_said_to_cross(known: Any) -> None:
    told = known["unmapped"]
    for column in ("socket_cross_rack_ratio", "share_ratio", "judged_ratio"):
        assert fleet(told, column) == [None, "no rack map"]
    assert (told["racks"], told["matrix"]) == ([], [])
    assert "no rack map" in told["sentences"][0]
    assert fleet(told, "bytes_per_second")[0] == pytest.approx(fleet(known, "bytes_per_second")[0], rel=1e-6)


# ---- the same traffic all the time, and the leaves' own ports over SSH


def test_uplinks_of_linux_switches_give_the_share_through_the_spine(kernel: Any) -> None:
    told = kernel["steady"]
    assert told["meters"]["uplinks"] == ["3/3 leaves", ""]
    ratios = {name: told["rows"][f"leaf/{name}"]["uplink_spine_ratio"][0] for name in leaves.LEAVES}
    # Acknowledgements cross the other way: a few thousandths.
    assert ratios == pytest.approx({"leaf0": 2 / 8, "leaf1": 1.0, "leaf2": 0.0}, rel=0.03, abs=0.01)
    assert fleet(told, "uplink_spine_ratio")[0] == pytest.approx(5 / 14, rel=0.05)
    assert fleet(told, "socket_cross_rack_ratio")[0] == pytest.approx(5 / 14, rel=0.05)
    assert fleet(told, "bytes_per_second")[0] == pytest.approx(14e6, rel=0.05)


def test_from_the_start_on_what_has_no_address_yet_is_not_lasting_as_unplaced(kernel: Any) -> None:
    """Nodes tell their addresses after their first sockets: by then these bytes are those of their nodes."""
    assert fleet(kernel["steady"], "unplaced_ratio")[0] < 0.01


def test_sockets_agree_with_uplinks_and_nics(kernel: Any) -> None:
    assert fleet(kernel["steady"], "disagreement_ratio")[0] < 0.1
    assert fleet(kernel["steady"]["with_nic"], "disagreement_ratio")[0] < 0.1
    assert rules(kernel["steady"]["with_nic"]) == ["cross_rack_share"]
    assert kernel["steady"]["with_nic"]["attrs"]["unreliable"] == []


def rules(told: Any) -> list[str]:
    return [line["rule"] for line in map(json.loads, told["lines"]) if line["kind"] == "raised"]


def test_what_nics_send_beyond_the_sockets_takes_the_alert_from_them(kernel: Any) -> None:
    """D4 a, with real numbers: of two meters the weaker one raises nothing; the other one does, and says so."""
    told = kernel["steady"]["with_more"]
    assert fleet(told, "disagreement_ratio")[0] == pytest.approx(1 - 1 / 1.6, abs=0.08)
    assert told["attrs"]["unreliable"] == ["sockets"]
    assert (told["attrs"]["meter"], told["attrs"]["definition"]) == ("uplinks", "through spine")
    assert sorted(rules(told)) == ["cross_rack_share", "meters_disagree"]
    share = next(line for line in map(json.loads, told["lines"]) if line["rule"] == "cross_rack_share")
    assert "through the spine" in share["message"]
    alone = kernel["steady"]["alone"]
    assert rules(alone) == ["meters_disagree"]
    assert fleet(alone, "share_ratio")[0] == pytest.approx(5 / 14, rel=0.05)
    assert fleet(alone, "judged_ratio") == [None, "meters disagree"]


def test_a_recording_with_peers_and_uplinks_says_what_the_live_run_said(kernel: Any) -> None:
    told = kernel["steady"]
    assert rules(told) == ["cross_rack_share"]
    again = told["replayed"]
    assert again["lines"] == told["lines"]
    for part in ("racks", "matrix", "unplaced", "rows", "strangers", "meters"):
        assert again[part] == told[part], part


def test_an_uplink_whose_counters_begin_anew_is_unknown_once(kernel: Any) -> None:
    told = kernel["steady"]["reset"]
    # By one second, in which ports are not read in one instant; what the share is stands in the test of uplinks above.
    assert told[0][0] == pytest.approx(1.0, abs=0.2)
    # The new port may not be up yet when it is first read.
    unknown = [why for ratio, why in told if ratio is None]
    assert unknown in (["no rate for swp49"], ["its uplinks are down"], ["its uplinks are down", "no rate for swp49"]), told
    assert told[-1][0] is not None


# ---- behind a router that translates addresses


@pytest.fixture(scope="module")
def translated() -> Any:
    """Known bytes through masquerade and DNAT of the kernel's nf_tables."""
    need("nft", "nftables")
    return inside(nat.SCRIPT, sys.executable, links=nat.LINKS, seconds=120)


@pytest.mark.parametrize("router", ["unknown", "known"])
def test_bytes_behind_nat_are_unplaced_and_none_is_lost(translated: Any, router: str) -> None:
    """Also where a node is the router: it has the address that its neighbours see, and not one of the sockets."""
    told = translated[router]
    sent = {name: (count, answered) for name, (*_, count, answered) in nat.FLOWS.items()}
    direct, through = sum(sent["direct"]), sum(sent["masquerade"]) + sum(sent["dnat"])
    racks = sorted({*nat.RACKS.values()})[: 3 if router == "known" else 2]
    assert told["racks"] == racks
    placed = [[float(direct) if here == there == "r0" else 0.0 for there in racks] for here in racks]
    for line, wanted in zip(told["matrix"], placed, strict=True):
        assert line == pytest.approx(wanted, rel=0.01, abs=1.0)
    assert told["talkers"] == []
    # Both ends tell of them as of bytes with somebody unknown.
    assert told["unplaced"][:2] == pytest.approx([through, through], rel=0.01)
    assert sum(told["unplaced"][2:]) == 0.0, "the router's rack has moved nothing"
    assert told["all"] == pytest.approx(direct + 2 * through, rel=0.01)
    strangers = {nat.NODES["n2"]: sent["masquerade"][0], nat.OUTSIDE: sent["masquerade"][1],
                 nat.VIRTUAL: sent["dnat"][0], nat.NODES["n1"]: sent["dnat"][1]}
    assert told["strangers"] == pytest.approx(strangers, rel=0.01)
