"""Network interfaces: what they belong to, and what their drivers count of pauses, discards and errors.

Sources of the counters stand in :mod:`clustertop.signals.ethtool_catalogue`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from clustertop.signals import ethtool_catalogue as catalogue
from clustertop.signals.metric import Metric, table
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.signals.columns import Columns
    from clustertop.signals.metric import CounterClass

PRIORITIES = 8
MOST_NAMES = 65536
"""Most lines of ``ethtool -S`` that are read of one interface."""
_LINE = re.compile(r"^\s*(.+?):\s+(\d+)\s*$")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Statistic:
    """One name of one driver."""

    name: str
    driver: str
    cls: CounterClass
    column: str
    """Column of the link table; empty: known but not kept."""
    meaning: str
    source: str


def _read() -> tuple[Statistic, ...]:
    """Every name of the catalogue, each priority its own. Raises ValueError for a line that is impossible."""
    out: list[Statistic] = []
    for driver, block in catalogue.BLOCKS.items():
        for line in block.strip().splitlines():
            names, kind, column, meaning = (part.strip() for part in line.split(" | "))
            cls = kind.partition("/")[0]
            if cls not in {"hard", "soft", "congestion", "traffic", "info"}:
                raise ValueError(f"{driver}: {line}: no such class")
            for name in names.split(","):
                out += [Statistic(
                    name.replace("#", str(number)), driver, cast("CounterClass", cls),
                    "" if column == "-" else column.replace("#", str(number)), meaning, catalogue.SOURCES[driver],
                ) for number in (range(PRIORITIES) if "#" in name else (0,))]
    return tuple(out)


CATALOGUE = _read()
_KNOWN = {one.name: one for one in reversed(CATALOGUE)}


def _metrics() -> tuple[Metric, ...]:
    """One counter per column; the first name in the catalogue is its own, the others its aliases."""
    columns: dict[str, list[Statistic]] = {}
    for one in CATALOGUE:
        if one.column:
            columns.setdefault(one.column, []).append(one)
    out = []
    for column, ones in columns.items():
        if len({one.cls for one in ones}) != 1:
            raise ValueError(f"{column}: {', '.join(one.name for one in ones)} are of different classes")
        names = list(dict.fromkeys(f"e:{one.name}" for one in ones))
        priority = _DIGITS.search(column)
        words = ones[0].meaning + (f", priority {priority.group()}" if priority else "")
        out.append(Metric(column, "", words, names[0], "counter", hi=2.0**64, cls=ones[0].cls, source=ones[0].source,
                          aliases=tuple(names[1:])))
    return tuple(out)


_COUNTERS = _metrics()


def _named(*parts: str) -> tuple[str, ...]:
    return tuple(metric.name for metric in _COUNTERS if metric.name.startswith(parts))


SUMS: dict[str, tuple[str, ...]] = {
    "receive_pause_frames_per_second": _named("receive_pause_"),
    "transmit_pause_frames_per_second": _named("transmit_pause_"),
    "discards_per_second": ("receive_discards_total", "transmit_discards_total", "no_buffer_total",
                            "transmit_ring_discards_total", "pci_buffer_overflows_total"),
    "shaped_per_second": _named("receive_bandwidth_", "transmit_bandwidth_", "packet_rate_", "connections_"),
    "physical_errors_per_second": ("receive_crc_errors_total", "receive_symbol_errors_total",
                                   "receive_uncorrected_total"),
}
"""Rate column of the link table: the counters that it adds."""
OF_PORT = ("receive_pause_frames_per_second", "transmit_pause_frames_per_second", "discards_per_second")
"""Rates that an RDMA port has of its network interfaces."""

TABLE = table("link", "net", "network links", (
    *_COUNTERS,
    Metric("receive_pause_frames_per_second", "/s", "pause frames received, all priorities: the switch holds the port "
           "back", kind="derived", label="pause rx"),
    Metric("transmit_pause_frames_per_second", "/s", "pause frames sent, all priorities: the port holds the switch "
           "back", kind="derived", label="pause tx"),
    Metric("discards_per_second", "/s", "packets dropped for want of buffers, either way", kind="derived",
           label="discards"),
    Metric("shaped_per_second", "/s", "packets held or dropped because a cloud's allowance is used up", kind="derived",
           label="shaped"),
    Metric("physical_errors_per_second", "/s", "packets and symbols broken on the wire", kind="derived",
           label="phy err"),
))


def label(key: str, attrs: Mapping[str, object]) -> str:
    """The interface's name."""
    return str(attrs.get("name") or key)


def known(name: str) -> Statistic | None:
    """What the catalogue says of a name of ``ethtool -S``; None: nothing."""
    return _KNOWN.get(name)


def parse(text: str) -> dict[str, int]:
    """Return name to number of the output of ``ethtool -S``; a line that is none is left out, a later one counts.

    With or without its heading, and with names that hold colons (``[0]: rx_errors``).
    """
    out: dict[str, int] = {}
    for line in text.splitlines()[:MOST_NAMES]:
        found = _LINE.match(line)
        if found and len(found.group(2)) <= 20 and int(found.group(2)) < 2**64:
            out[clean(found.group(1), 64)] = int(found.group(2))
    return out


def kept(statistics: Mapping[str, int]) -> dict[str, int]:
    """Return what the link table keeps of *statistics*, by its columns."""
    return {one.column: number for name, number in statistics.items()
            if (one := _KNOWN.get(name)) is not None and one.column}


def rates(
    t: Columns, growth: NDArray[np.float64], counters: tuple[str, ...], seconds: NDArray[np.float64],
    fresh: NDArray[np.bool_],
) -> None:
    """Add counters up to rates, in place, in the rows that are *fresh*.

    Args:
        t: the link table.
        growth: [counters, rows] since the reading before, NaN where unknown.
        counters: the names of its rows.
        seconds: [rows] between the two readings, NaN at the first.
        fresh: [rows] whether there is a new reading.
    """
    place = {name: number for number, name in enumerate(counters)}
    for name, members in SUMS.items():
        mine = [member for member in members if member in place]
        rows = growth[[place[member] for member in mine]]
        there = np.array([~np.isnan(t.col(member)) for member in mine])
        # One that was reset, or is seen for the first time, leaves the sum unknown: a part is not the whole.
        unknown = (there & np.isnan(rows)).any(axis=0) | ~there.any(axis=0) | ~(seconds > 0)
        total = np.where(there, np.nan_to_num(rows), 0.0).sum(axis=0)
        rate = np.where(unknown, np.nan, total / np.where(seconds > 0, seconds, 1.0))
        t.put(name, np.where(fresh, rate, t.col(name)))


def interfaces_of(port: Mapping[str, Attr]) -> Iterable[str]:
    """The names of the network interfaces below an RDMA port: one, or the members of its bond."""
    several = port.get("netdevs")
    if isinstance(several, list):
        return several
    one = port.get("netdev")
    return (one,) if isinstance(one, str) else ()
