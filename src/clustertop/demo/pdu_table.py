"""A demo PDU's objects: a metered three-phase rack PDU as a Raritan PX3 shows itself (PDU2-MIB, 1.3.6.1.4.1.13742.6).

An inlet with power and energy, three phases and six banks with current, each with its rating, the device's own limits
and a state. No outlets. The controller has a supply of its own: it answers also where its feed is dead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from clustertop.demo import ber
from clustertop.demo.feeds import PHASES, RATING_AMPS
from clustertop.demo.power import BANK_AMPS, BANKS_EACH

if TYPE_CHECKING:
    from collections.abc import Callable

    from clustertop.demo.power import Power
    from clustertop.demo.snmp_agent import Value
    from clustertop.sources.oids import Oid

BASE: Oid = (1, 3, 6, 1, 4, 1, 13742, 6)
_SYSTEM: Oid = (1, 3, 6, 1, 2, 1, 1)
_AMPS, _VOLTS, _WATTS, _VA, _FACTOR, _ENERGY, _TRIP = 1, 4, 5, 6, 7, 8, 15
_DIGITS = {_AMPS: 2, _VOLTS: 1, _WATTS: 0, _VA: 0, _FACTOR: 2, _ENERGY: 0}
_INLET, _INLET_ROW, _INLET_NOW = (3, 3, 4, 1), (1, 1), (5, 2, 3, 1)
_PHASE, _PHASE_NOW = (3, 3, 6, 1), (5, 2, 4, 1)
_BANK, _BANK_NOW = (3, 4, 4, 1), (5, 3, 3, 1)
_LIMIT_SHARES = (0.8, 0.9)
"""The device's own limits, warning and critical, of the rating: as such PDUs come."""
_BOTH_ENABLED = b"\x30"
"""Bits 2 and 3: upper warning, upper critical."""
_NORMAL, _ABOVE_WARNING, _ABOVE_CRITICAL = 4, 5, 6
_CLOSED = 1


def table(power: Power, feed: int, uptime_hundredths: Callable[[], int]) -> dict[Oid, Value]:
    """Return the objects of the PDU on *feed*."""
    name = power.wiring.feeds[feed].pdu
    rows: dict[Oid, Value] = {
        (*_SYSTEM, 1, 0): _text(f"PX3 of the demo, 3 x {RATING_AMPS:g} A, at {name}"),
        (*_SYSTEM, 2, 0): ber.oid(BASE),
        (*_SYSTEM, 3, 0): lambda: ber.integer(uptime_hundredths(), ber.TIMETICKS),
        (*_SYSTEM, 5, 0): _text(name),
        (*BASE, 3, 2, 1, 1, 2, 1): _text("Raritan (simulated)"),
        (*BASE, 3, 2, 1, 1, 3, 1): _text("PX3-DEMO-63"),
        (*BASE, 3, 2, 1, 1, 4, 1): _text(f"DEMO{feed:05d}"),
        (*BASE, 3, 2, 2, 1, 13, 1): _text(name),
        (*BASE, 3, 2, 3, 1, 6, 1, 1, 1): _text("4.2.0-demo"),
        (*BASE, 3, 3, 3, 1, 2, *_INLET_ROW): _text("I1"),
        (*BASE, 3, 3, 3, 1, 7, *_INLET_ROW): _text(f"{RATING_AMPS:g}A"),
    }
    _inlet(rows, power, feed)
    for phase in range(PHASES):
        _phase(rows, power, feed, phase)
    for bank in range(PHASES * BANKS_EACH):
        _bank(rows, power, feed, bank)
    return rows


def _text(text: str) -> bytes:
    return ber.cell(ber.OCTETS, text.encode())


def _number(made: Callable[[], float], digits: int) -> bytes:
    return ber.integer(round(made() * 10**digits))


def _sensor(rows: dict[Oid, Value], fixed: Oid, now: Oid, row: Oid, sensor: int, value: Callable[[], float]) -> None:
    """A sensor's value and its decimal digits."""
    rows[(*BASE, *fixed, 7, *row, sensor)] = ber.integer(_DIGITS[sensor])
    rows[(*BASE, *now, 4, *row, sensor)] = partial(_number, value, _DIGITS[sensor])


def _limited(rows: dict[Oid, Value], fixed: Oid, row: Oid, rating: float) -> None:
    """The device's own limits of a current."""
    warning, critical = (ber.integer(round(rating * share * 100)) for share in _LIMIT_SHARES)
    rows[(*BASE, *fixed, 24, *row, _AMPS)] = warning
    rows[(*BASE, *fixed, 23, *row, _AMPS)] = critical
    rows[(*BASE, *fixed, 25, *row, _AMPS)] = ber.cell(ber.OCTETS, _BOTH_ENABLED)


def _state(amps: float, rating: float) -> bytes:
    share = amps / rating
    warning, critical = _LIMIT_SHARES
    return ber.integer(_ABOVE_CRITICAL if share > critical else _ABOVE_WARNING if share > warning else _NORMAL)


def _inlet(rows: dict[Oid, Value], power: Power, feed: int) -> None:
    def watts() -> float:
        return float(power.phase_watts[feed].sum())

    def apparent() -> float:
        return float((power.amps[feed] * power.volts[feed]).sum())

    def factor() -> float:
        return watts() / apparent() if apparent() else 1.0

    for sensor, value in ((_WATTS, watts), (_VA, apparent), (_FACTOR, factor),
                          (_ENERGY, lambda: float(power.kwh[feed]) * 1000.0)):  # fmt: skip
        _sensor(rows, _INLET, _INLET_NOW, _INLET_ROW, sensor, value)


def _phase(rows: dict[Oid, Value], power: Power, feed: int, phase: int) -> None:
    row = (*_INLET_ROW, phase + 1)

    def amps() -> float:
        return float(power.amps[feed, phase])

    for sensor, value in ((_AMPS, amps), (_VOLTS, lambda: float(power.volts[feed, phase])),
                          (_WATTS, lambda: float(power.phase_watts[feed, phase]))):  # fmt: skip
        _sensor(rows, _PHASE, _PHASE_NOW, row, sensor, value)
    _limited(rows, _PHASE, row, RATING_AMPS)
    rows[(*BASE, *_PHASE_NOW, 3, *row, _AMPS)] = lambda: _state(amps(), RATING_AMPS)


def _bank(rows: dict[Oid, Value], power: Power, feed: int, bank: int) -> None:
    row = (1, bank + 1)
    phase, half = divmod(bank, BANKS_EACH)
    rows[(*BASE, 3, 4, 3, 1, 2, *row)] = _text(f"C{bank + 1}")
    rows[(*BASE, 3, 4, 3, 1, 3, *row)] = _text(f"L{phase + 1}")
    rows[(*BASE, 3, 4, 3, 1, 5, *row)] = _text(f"{BANK_AMPS:g}A")
    _sensor(rows, _BANK, _BANK_NOW, row, _AMPS, lambda: float(power.bank_amps[feed, half, phase]))
    _limited(rows, _BANK, row, BANK_AMPS)
    rows[(*BASE, *_BANK_NOW, 3, *row, _TRIP)] = ber.integer(_CLOSED)
