"""Which column of the port table holds which RDMA counter, and what kind of news it brings.

Classes: ``hard`` (any increase is a fault), ``soft`` (a rate is a fault: by the hour, the minute or the second),
``congestion``, ``traffic``, ``info``. The names stand in :mod:`clustertop.signals.rdma_catalogue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from clustertop.signals import rdma_catalogue as catalogue

if TYPE_CHECKING:
    from clustertop.signals.metric import CounterClass

Pace = Literal["", "hour", "minute", "second"]
_PACES: dict[str, Pace] = {"": "", "h": "hour", "m": "minute", "s": "second"}
_RATES = {
    "port_xmit_data": "transmit_bytes_per_second", "port_rcv_data": "receive_bytes_per_second",
    "port_xmit_packets": "transmit_packets_per_second", "port_rcv_packets": "receive_packets_per_second",
    "port_xmit_data_64": "wide_transmit_bytes_per_second", "port_rcv_data_64": "wide_receive_bytes_per_second",
    "tx_bytes": "own_transmit_bytes_per_second", "rx_bytes": "own_receive_bytes_per_second",
    "ip6OutOctets": "ip6_transmit_bytes_per_second", "ip6InOctets": "ip6_receive_bytes_per_second",
}
_WORDS = ("port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64")
"""These count words of 4 bytes; nothing else does."""
_BYTES = ("tx_bytes", "rx_bytes", "ip6OutOctets", "ip6InOctets", "retrans_bytes", "send_bytes", "recv_bytes",
          "rdma_read_bytes", "rdma_write_bytes")
_EXTRA_COLUMNS = {
    "rnr_nak_sent": "receiver-not-ready NAKs sent",
    "hw_link_downed": "the network interface below the software port went down",
}
"""Columns that no counter is called like: the first counter kept there says the rest."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One file of ``counters/`` (family ``c``), ``counters_ext/`` (``x``) or ``hw_counters/`` (``h``)."""

    name: str
    family: str
    cls: CounterClass
    meaning: str
    source: str
    driver: str = ""
    """Block of the catalogue."""
    column: str = ""
    """Column of the port table that holds it; empty: known but not kept."""
    pace: Pace = ""
    """Of a soft error: what its limit is counted by."""
    bits: int = 0
    scale: int = 1
    """Unit of the file in bytes where it counts words: 4 for the data counters, nothing else."""
    rate: str = ""
    is_bytes: bool = False
    aliases: tuple[str, ...] = ()
    """Of a column's counter: ``family:name`` of the others that the same column holds."""

    @property
    def raw(self) -> str:
        """The probe's column."""
        return f"{self.family}:{self.name}"


def _read() -> tuple[Counter, ...]:
    """Every line of the catalogue. Raises ValueError for one that says something impossible."""
    out: list[Counter] = []
    for driver, block in catalogue.BLOCKS.items():
        for line in block.strip().splitlines():
            names, kind, place, meaning = (part.strip() for part in line.split(" | "))
            cls, _, pace = kind.partition("/")
            if cls not in {"hard", "soft", "congestion", "traffic", "info"} or (cls == "soft") != bool(pace):
                raise ValueError(f"{driver}: {line}: no such class")
            for name in names.split(","):
                column = "" if place == "-" else name if place == "." else place
                out.append(Counter(
                    name, catalogue.FAMILY.get(driver, "h"), cast("CounterClass", cls), meaning,
                    catalogue.SOURCES[driver], driver, column, _PACES[pace], catalogue.BITS.get(name, 0)
                    if driver == "ibta" else 0, 4 if name in _WORDS else 1, _RATES.get(column, ""), column in _BYTES,
                ))
    return tuple(out)


def _columns(every: tuple[Counter, ...]) -> tuple[Counter, ...]:
    """The counter that stands for each column, with the others' names as aliases."""
    first: dict[str, Counter] = {}
    aliases: dict[str, dict[str, None]] = {}
    for counter in sorted(every, key=lambda one: one.column != one.name):
        if not counter.column:
            continue
        if counter.column != counter.name and counter.column not in first and counter.column not in _EXTRA_COLUMNS:
            raise ValueError(f"{counter.driver}: {counter.name}: no column {counter.column}")
        chief = first.setdefault(counter.column, counter)
        if chief.cls != counter.cls or chief.pace != counter.pace:
            raise ValueError(f"{counter.driver}: {counter.name} is not of the class of {counter.column}")
        if counter.raw != chief.raw:
            aliases.setdefault(counter.column, {})[counter.raw] = None
    return tuple(
        Counter(chief.name, chief.family, chief.cls, _EXTRA_COLUMNS.get(column, chief.meaning), chief.source,
                chief.driver, column, chief.pace, chief.bits, chief.scale, chief.rate, chief.is_bytes,
                tuple(aliases.get(column, ())))
        for column, chief in first.items()
    )


CATALOGUE = _read()
COUNTERS = _columns(CATALOGUE)
"""One per column of the port table."""
BY_COLUMN = {counter.column: counter for counter in COUNTERS}
_KNOWN = frozenset(counter.raw for counter in CATALOGUE)
_SPELLING: dict[tuple[str, str], str] = {}
for _one in CATALOGUE:
    _SPELLING.setdefault((_one.driver, _one.column), _one.name)


def known(raw: str) -> bool:
    """Whether the catalogue has the file ``family:name``; mlx5 repeats its own for representors as ``vport_...``."""
    return raw in _KNOWN or (raw.startswith("h:vport_") and "h:" + raw.removeprefix("h:vport_") in _KNOWN)


def spelling(column: str, driver: object) -> str:
    """What *driver* (as its link in sysfs says) calls the counter of *column*."""
    block = catalogue.DRIVERS.get(driver, "") if isinstance(driver, str) else ""
    return _SPELLING.get((block, column)) or BY_COLUMN[column].name


def files_of(driver: str) -> list[str]:
    """The probe's columns that a port of block *driver* shows and the console keeps, IBTA's first."""
    blocks = ("ibta", driver) if driver in {"mlx5", "mlx4"} else (driver,)
    return [counter.raw for block in blocks for counter in CATALOGUE if counter.driver == block and counter.column]
