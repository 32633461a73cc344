"""What conntrack prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals.conntrack import Endpoint, parse_conntrack
from traffic.shared import needs_shared, sample


@needs_shared
@pytest.mark.parametrize("name", ["conntrack-L.txt", "conntrack-L-extended.txt", "proc-nf_conntrack.txt"])
def test_sample_flows_of_the_tracker(name: str) -> None:
    found = parse_conntrack(sample(f"sockets/conntrack/{name}"))
    assert [one.protocol for one in found].count("tcp") == 6
    (udp,) = (one for one in found if one.protocol == "udp")
    assert (udp.sent, udp.replied, udp.target.port) == (30840, False, 4791)
    assert any(":" in one.source.address for one in found)
    if name == "conntrack-L.txt":
        one = next(one for one in found if one.source == Endpoint("10.40.1.13", 45627))
        assert (one.target.address, one.sent, one.received) == ("10.40.2.21", 5292463228, 665200320)


def test_flows_without_accounting_have_no_bytes() -> None:
    (one,) = parse_conntrack("tcp      6 90 ESTABLISHED src=10.7.1.1 dst=10.7.2.9 sport=4 dport=5 "
                             "src=10.7.2.9 dst=10.7.1.1 sport=5 dport=4 [ASSURED] use=1\n")
    assert (one.sent, one.received, one.replied) == (None, None, True)


@needs_shared
def test_sample_statistics_are_no_flows() -> None:
    assert parse_conntrack(sample("sockets/proc/procfs-nf_conntrack-stat.txt")) == []


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_conntrack(text)
    parse_conntrack(f"tcp      6 90 ESTABLISHED src=10.7.1.1 dst=10.7.2.9 {text}")
