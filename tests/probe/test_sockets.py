"""TCP bytes by peer: between racks of network namespaces, and by answers of the kernel that were written by hand."""

from __future__ import annotations

from typing import Any

import pytest

import racks
from netns import inside
from probe.harness import interpreter


def missing(got: dict[str, Any], which: str, sent: dict[str, dict[str, int]]) -> list[str]:
    """Flows that are not within 1 % of what was sent."""
    wrong = []
    for source, books in sent.items():
        for target, count in books.items():
            node, other = (source, target) if which == "transmit" else (target, source)
            value = got[which].get(node, {}).get(other, 0.0)
            if not 0.99 * count <= value <= 1.01 * count:
                wrong.append(f"{source} to {target}: {count}, {which} says {value}")
    return wrong


@pytest.mark.parametrize("version", ["3.6", "3.13"])
@pytest.mark.parametrize("way", ["", "ss"])
def test_what_was_sent_between_racks_is_what_is_read(version: str, way: str) -> None:
    """Sockets that were there, that open, that close within an interval; IPv4, IPv6 and mapped; both ends."""
    got = inside(racks.SCRIPT, interpreter(version), way, "" if way else "short", links=racks.LINKS)
    strangers = {"10.88.9.9": 250_000, racks.SHARED: 150_000}
    assert {name: got["sent"]["n0"][name] for name in strangers} == strangers
    assert not missing(got, "transmit", got["sent"]), "nobody's and several nodes' address stand for themselves"
    for name in strangers:
        del got["sent"]["n0"][name]
    # What came from the address of two is n1's by its own socket, but n0 cannot be told to have sent it there.
    got["sent"]["n0"]["n1"] += strangers[racks.SHARED]
    assert not missing(got, "receive", got["sent"])
    words = "ss; short-lived sockets not counted" if way else "sock_diag"
    assert {facts["sockets"] for facts in got["facts"]} == {words}
    known = [values for peers in got["peers"].values() for values in peers.values()]
    assert not {"127.0.0.1", "::1", "10.88.0.1", "fd00:88::1"} & got["peers"]["n0"].keys(), "nothing of it left the node"
    assert not [key for peers in got["peers"].values() for key in peers if key.startswith("::ffff:")]
    assert all(0 < values["rtt_seconds"] <= values["rtt_max_seconds"] < 1 for values in known)
    assert all(0 < values["rtt_variation_seconds"] <= values["rtt_variation_max_seconds"] < 1 for values in known)
    sockets = {(node, key): values["sockets"] for node, peers in got["peers"].items() for key, values in peers.items()}
    assert sockets["n0", "10.88.0.2"] == 2, "one each way"
    assert sockets["n0", "10.88.1.3"] == 1
