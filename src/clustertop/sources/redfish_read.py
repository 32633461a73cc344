"""What a Redfish service's resources say about power: bodies in, one :class:`BmcReading` out. Pure.

Sources: DMTF DSP0268 (schema supplement) for Power, PowerSubsystem, PowerSupplyMetrics, EnvironmentMetrics, Sensor,
Circuit, Outlet, PowerDistribution and MetricReport; the vendors' ways are noted beside what reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from clustertop.sources import redfish_map
from clustertop.sources.bmc_reading import (
    HOST_OFF,
    NO_READING,
    NOT_METERED,
    NOT_PROVIDED,
    OUT_OF_RANGE,
    RATING,
    Alarm,
    BmcReading,
    Circuit,
    Meter,
    Psu,
    Quantity,
    Redundancy,
    Sensor,
    Value,
    first,
    known,
    unknown,
)
from clustertop.sources.redfish_psu import legacy_psus, metered, modern_psu, with_sensors
from clustertop.sources.redfish_value import (
    items,
    legacy_sensor,
    mapping,
    plain_number,
    redundancy_state,
    sensor,
    text,
    value,
)
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_WATTS_PER_PSU = 10_000.0
"""A chassis capacity above this for each supply (two at least) is none; the largest shelf unit has 5.5 kW."""

_CIRCUIT_KINDS = {"Mains": "mains", "Branches": "branch", "Outlets": "outlet", "OutletGroups": "group"}
_TOTAL = re.compile(
    r"total_?hsc_?power|total_?power(?:_?in)?(?:_?\d+)?$|^system_?(?:input_?)?power|chassis_?power|node_?power")
_METRIC_UNITS = {"Watts": (Quantity.POWER, 1.0), "Volts": (Quantity.VOLTAGE, 1.0), "Amps": (Quantity.CURRENT, 1.0),
                 "Celsius": (Quantity.TEMPERATURE, 1.0), "RPM": (Quantity.SPEED, 1.0), "kWh": (Quantity.ENERGY, 3.6e6)}


Memo = dict[str, tuple[Mapping[str, Any], list[Sensor]]]
"""By path: a body, and the sensors that were made of it."""


@dataclass(slots=True)
class _Chassis:
    """What was found of one chassis."""

    name: str
    inner: bool = False
    meters: list[Meter] = field(default_factory=list)
    legacy: list[Psu] = field(default_factory=list)
    modern: list[Psu] = field(default_factory=list)
    sensors: list[Sensor] = field(default_factory=list)
    redundancy: list[Redundancy] = field(default_factory=list)
    capacity: Value = field(default_factory=Value)

    def psus(self) -> list[Psu]:
        """Its supplies, from whichever of the two schemas says more."""
        def told(psus: list[Psu]) -> int:
            return sum(one.known for psu in psus for one in (psu.input_watts, psu.output_watts, psu.input_volts))

        modern = with_sensors(self.modern, self.sensors)
        legacy = with_sensors(self.legacy, self.sensors) if self.legacy else []
        return metered(legacy if told(legacy) > told(modern) or not modern else modern)


def read(tree: Mapping[str, object], *, taken_at: float | None = None, memo: Memo | None = None) -> BmcReading:
    """Read what is in *tree* (path → decoded body). Whatever is not an object, or lacks a part, costs only itself.

    With *memo*, the sensors of bodies that are the same objects as at the call before are not made again.
    """
    bodies = {path: body for path, body in _spread(tree).items() if path}
    kinds: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for path, body in bodies.items():
        kinds.setdefault(redfish_map.kind(path, body), []).append((path, body))
    power_state = _power_state(kinds)
    made: Memo = {}
    chassis = _chassis(kinds, bodies, {} if memo is None else memo, made)
    if memo is not None:
        memo.clear()
        memo.update(made)
    circuits = [_circuit(path, body) for name in ("Circuit", "Outlet", "OutletGroup")
                for path, body in kinds.get(name, ())]
    pdu_meters = [meter for name in ("PowerDistributionMetrics", "RackPDU", "PowerDistribution")
                  for path, body in kinds.get(name, ()) if (meter := _pdu_meter(path, body)) is not None]
    meters = [_believed(meter, one, power_state) for one in chassis.values() for meter in one.meters] + pdu_meters
    psus = [psu for one in chassis.values() for psu in one.psus()]
    sensors = [each for one in chassis.values() for each in one.sensors]
    sensors += _reports(kinds, {each.id: each for each in sensors})
    inner = {one.name for one in chassis.values() if one.inner}
    parts = inner if len(inner) < len(chassis) else set()
    watts, source = _whole([meter for meter in meters if meter.chassis not in parts], psus, sensors)
    root = next((body for _, body in kinds.get("ServiceRoot", ())), {})
    makers = [body for name in ("Chassis", "RackPDU", "PowerDistribution") for _, body in kinds.get(name, ())]
    maker: Mapping[str, Any] = next((body for body in makers if text(body, "Model", "Manufacturer")), {})
    return BmcReading(
        source="redfish", taken_at=taken_at, vendor=text(root, "Vendor") or text(maker, "Manufacturer"),
        model=text(maker, "Model"), host_power=power_state, watts=watts, watts_source=source,
        capacity_watts=_capacity(chassis.values(), psus), meters=tuple(meters), psus=tuple(psus),
        redundancy=tuple(group for one in chassis.values() for group in one.redundancy),
        sensors=tuple(sensors), circuits=tuple(circuits), alarms=tuple(_alarms(kinds)),
        alarms_told=_told(kinds, bodies))


def _spread(tree: Mapping[str, object]) -> dict[str, Mapping[str, Any]]:
    """The bodies by the path they were asked for; members that came inlined in a collection as bodies of their own.

    A body's own ``@odata.id`` is not its identity: services copy it wrongly.
    """
    out: dict[str, Mapping[str, Any]] = {}
    for path, body in tree.items():
        if isinstance(body, dict):
            out[path.rstrip("/")] = body
    for body in list(out.values()):
        for path, inlined in redfish_map.members(body):
            if inlined:
                out.setdefault(path.rstrip("/"), inlined)
    return out


def _power_state(kinds: Mapping[str, list[tuple[str, Mapping[str, Any]]]]) -> str:
    """``on`` where any system or chassis is on, else the first word that there is."""
    words = [text(body, "PowerState").lower() for name in ("ComputerSystem", "Chassis")
             for _, body in kinds.get(name, ())]
    return "on" if "on" in words else next((word for word in words if word), "")


@lru_cache(maxsize=16384)
def _owner(path: str) -> str:
    """``/redfish/v1/Chassis/HGX_GPU_0/Sensors/…`` → ``HGX_GPU_0``, ``…/PowerEquipment/PowerShelves/S1/…`` → ``S1``."""
    parts = [part for part in path.split("/") if part][2:]
    if parts[:1] == ["PowerEquipment"]:
        parts = parts[1:]
    return parts[1] if len(parts) > 1 else "".join(parts)


def _chassis(
    kinds: Mapping[str, list[tuple[str, Mapping[str, Any]]]], bodies: Mapping[str, Mapping[str, Any]], memo: Memo,
    made: Memo,
) -> dict[str, _Chassis]:
    out: dict[str, _Chassis] = {}

    def sensors(path: str, body: Mapping[str, Any], make: Callable[[str, Mapping[str, Any]], list[Sensor]]
                ) -> list[Sensor]:
        known = memo.get(path)
        found = known[1] if known is not None and known[0] is body else make(path, body)
        made[path] = (body, found)
        return found

    def of(path: str) -> _Chassis:
        name = _owner(path)
        one = out.get(name)
        if one is None:
            one = out[name] = _Chassis(name)
        return one

    for path, body in kinds.get("Chassis", ()):
        out.setdefault(path.rsplit("/", 1)[-1], _Chassis(path.rsplit("/", 1)[-1], redfish_map.is_inner(body)))
    for path, body in kinds.get("EnvironmentMetrics", ()):
        if "PowerWatts" in body and "/Chassis/" in path:
            of(path).meters.append(Meter(path, _owner(path), "EnvironmentMetrics",
                                         value(body, "PowerWatts", Quantity.POWER)))
    for path, body in kinds.get("Power", ()):
        _legacy_power(of(path), path, body)
    for path, body in kinds.get("PowerSubsystem", ()):
        one = of(path)
        one.capacity = first(value(body, "CapacityWatts", Quantity.POWER), one.capacity)
        groups = items(body, "PowerSupplyRedundancy")
        one.redundancy = [_group(f"{path}#/PowerSupplyRedundancy/{n}", group, n) for n, group in enumerate(groups)] \
            or one.redundancy
    for path, body in kinds.get("PowerSupply", ()):
        metrics = bodies.get(redfish_map.local_path(body.get("Metrics")).rstrip("/"), {})
        of(path).modern.append(modern_psu(path, body, metrics))
    for path, body in kinds.get("Sensor", ()):
        of(path).sensors += sensors(path, body, _one_sensor)
    for path, body in kinds.get("Thermal", ()):
        of(path).sensors += sensors(path, body, _thermal)
    return out


def _one_sensor(path: str, body: Mapping[str, Any]) -> list[Sensor]:
    return [sensor(path, body, _owner(path))]


def _thermal(path: str, body: Mapping[str, Any]) -> list[Sensor]:
    owner = _owner(path)
    found = [legacy_sensor(f"{path}#/{name}/{n}", each, owner) for name in ("Temperatures", "Fans")
             for n, each in enumerate(items(body, name))]
    return [each for each in found if each is not None]


def _legacy_power(one: _Chassis, path: str, body: Mapping[str, Any]) -> None:
    """A Power resource. The first PowerControl with a figure is the chassis; further ones are parts (CPU, memory)."""
    taken = False
    watts = Value()
    for n, control in enumerate(items(body, "PowerControl")):
        capacity = value(control, "PowerCapacityWatts", Quantity.POWER)
        consumed = value(control, "PowerConsumedWatts", Quantity.POWER)
        if consumed.number and consumed.number == capacity.number:
            consumed = unknown(RATING)
        name = text(control, "Name") or "PowerControl"
        if taken:
            one.sensors.append(Sensor(f"{path}#/PowerControl/{n}", name, Quantity.POWER, consumed, one.name))
            continue
        average = value(mapping(control, "PowerMetrics"), "AverageConsumedWatts", Quantity.POWER)
        one.meters.append(Meter(f"{path}#/PowerControl/{n}", one.name, name, consumed, average))
        if capacity.number:
            one.capacity = first(one.capacity, capacity)
        watts, taken = consumed, consumed.known
    one.legacy += legacy_psus(path, body, watts)
    for n, each in enumerate(items(body, "Voltages")):
        found = legacy_sensor(f"{path}#/Voltages/{n}", each, one.name)
        if found is not None:
            one.sensors.append(found)
    if not one.redundancy:
        one.redundancy = [_group(f"{path}#/Redundancy/{n}", group, n)
                          for n, group in enumerate(items(body, "Redundancy")) if len(group) > 1]


def _group(path: str, body: Mapping[str, Any], n: int) -> Redundancy:
    state, words = redundancy_state(body)
    return Redundancy(path, text(body, "Name") or f"PSU redundancy {n + 1}", state, words)


def _believed(meter: Meter, one: _Chassis, power_state: str) -> Meter:
    """0 W of a host that runs is no meter; 0 W of one that is off is a zero only where something else was measured."""
    if meter.watts.number != 0:
        return meter
    others = any(each.number for psu in one.psus() for each in (psu.input_volts, psu.input_amps, psu.watts))
    if power_state == "off":
        return meter if others else replace(meter, watts=unknown(HOST_OFF), average_watts=unknown(HOST_OFF))
    return replace(meter, watts=unknown(NOT_METERED), average_watts=unknown(NOT_METERED))


def _whole(meters: list[Meter], psus: list[Psu], sensors: list[Sensor]) -> tuple[Value, str]:
    """The power of the whole thing, and where it was read.

    Chassis contain each other (a tray its modules, those their GPUs): they are never added, the largest is the whole.
    """
    some = [meter for meter in meters if meter.watts.known]
    best = max(some, key=lambda meter: meter.watts.number or 0.0, default=None)
    if best is not None:
        preferred = next(meter for meter in meters if meter.chassis == best.chassis and meter.watts.known)
        return preferred.watts, f"{preferred.chassis} {preferred.name}"
    totals = [each for each in sensors
              if each.quantity is Quantity.POWER and each.value.number and each.side != "output"
              and _TOTAL.search(each.id.rsplit("/", 1)[-1].lower())]
    if totals:
        top = max(totals, key=lambda each: each.value.number or 0.0)
        return top.value, f"{top.entity} {top.name}"
    inputs = [psu.input_watts.number for psu in psus if psu.input_watts.number is not None]
    if sum(inputs) and all(psu.input_watts.known or psu.state.value == "absent" for psu in psus):
        return known(sum(inputs)), f"sum of {len(inputs)} power supplies, input"
    outputs = [psu.output_watts.number for psu in psus if psu.output_watts.number is not None]
    if sum(outputs) and all(psu.output_watts.known or psu.state.value == "absent" for psu in psus):
        return known(sum(outputs)), f"sum of {len(outputs)} power supplies, output (their losses not counted)"
    reasons = [meter.watts.why for meter in meters] + [psu.watts.why for psu in psus]
    for why in (HOST_OFF, NOT_METERED):
        if why in reasons:
            return unknown(why), ""
    return unknown(NO_READING if reasons else NOT_PROVIDED), ""


def _capacity(chassis: Iterable[_Chassis], psus: list[Psu]) -> Value:
    ratings = [psu.capacity_watts.number for psu in psus if psu.capacity_watts.number]
    most = MOST_WATTS_PER_PSU * max(2, len(psus))
    stated = max((one.capacity.number for one in chassis if one.capacity.number), default=None)
    if stated is not None and stated <= most:
        return known(stated)
    if ratings:
        return known(sum(ratings))
    return unknown(OUT_OF_RANGE if stated is not None else NOT_PROVIDED)


def _circuit(path: str, body: Mapping[str, Any]) -> Circuit:
    """A Circuit, Outlet or OutletGroup, in the final schema or the one that rack PDUs had before it (DSP-IS0005)."""
    lines = mapping(body, "PolyPhaseCurrentAmps") or mapping(body, "PolyPhaseCurrents")
    volts = mapping(body, "PolyPhaseVoltage") or mapping(body, "PolyPhaseVoltages")
    parent = path.rsplit("/", 2)[-2]
    status = mapping(body, "Status")
    return Circuit(
        id=path, kind=_CIRCUIT_KINDS.get(parent, text(body, "CircuitType").lower()), name=text(body, "Name", "Id"),
        amps=first(value(body, "CurrentAmps", Quantity.CURRENT), value(body, "Current", Quantity.CURRENT)),
        volts=value(body, "Voltage", Quantity.VOLTAGE),
        watts=first(value(body, "PowerWatts", Quantity.POWER), value(body, "PowerReading", Quantity.POWER)),
        rated_amps=value(body, "RatedCurrentAmps", Quantity.CURRENT),
        line_amps=tuple((clean(name), value(lines, name, Quantity.CURRENT)) for name in lines),
        line_volts=tuple((clean(name), value(volts, name, Quantity.VOLTAGE)) for name in volts),
        breaker=text(body, "BreakerState"),
        state=", ".join(filter(None, (text(status, "State"), text(status, "Health"), text(body, "PowerState")))))


def _pdu_meter(path: str, body: Mapping[str, Any]) -> Meter | None:
    name = next((name for name in ("PowerWatts", "PowerReading") if name in body), None)
    if name is None:
        return None
    owner = path.removesuffix("/Metrics").rsplit("/", 1)[-1]
    return Meter(path, f"PDU {owner}", text(body, "Name") or "PDU", value(body, name, Quantity.POWER))


def _alarms(kinds: Mapping[str, list[tuple[str, Mapping[str, Any]]]]) -> Iterable[Alarm]:
    seen = set()
    inlined = [(f"{path}/Alarms/{text(each, 'Id')}", each) for path, body in kinds.get("RackPDU", ())
               for each in items(body, "TriggeredAlarms")]
    for path, body in (*kinds.get("Alarm", ()), *inlined):
        if text(body, "AlarmState").lower() == "triggered" and path not in seen:
            seen.add(path)
            arguments = body.get("MessageArgs")
            words = [clean(str(each)) for each in arguments[:4]] if isinstance(arguments, list) else []
            said = text(body, "Message") + (f" ({', '.join(words)})" if words else "")
            yield Alarm(path, text(body, "Name", "Id"), text(body, "Severity").lower(), said)
    for path, body in kinds.get("LeakDetector", ()):
        state = text(body, "DetectorState")
        if state.lower() in {"warning", "critical"}:
            yield Alarm(path, text(body, "Name", "Id"), state.lower(), "leak detected")


def _told(kinds: Mapping[str, list[tuple[str, Mapping[str, Any]]]], bodies: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the device tells of alarms, and every one of them was read."""
    lists = [body for kind in ("AlarmCollection", "LeakDetectorCollection") for _, body in kinds.get(kind, ())]
    whole = all(path.rstrip("/") in bodies for body in lists for path, _ in redfish_map.members(body))
    pdus = [body for _, body in kinds.get("RackPDU", ())]
    listed = sum("Alarms" in body for body in pdus)
    listed += sum("LeakDetectors" in body for _, body in kinds.get("LeakDetection", ()))
    return whole and len(lists) >= listed and (bool(lists) or any("TriggeredAlarms" in body for body in pdus))


def _reports(
    kinds: Mapping[str, list[tuple[str, Mapping[str, Any]]]], sensors: Mapping[str, Sensor]
) -> Iterable[Sensor]:
    """Values of telemetry reports that no sensor has brought.

    A value has a unit only by the property that it copies (``…/PowerConsumedWatts``); else the number stands without.
    """
    seen = set()
    for path, report in kinds.get("MetricReport", ()):
        for entry in items(report, "MetricValues"):
            at = entry.get("MetricProperty")
            source = at if isinstance(at, str) else ""
            plain = source.split("#")[0].rstrip("/")
            name = text(entry, "MetricId") or source.rsplit("/", 1)[-1]
            key = source or f"{path}#{name}"
            if key in seen or (plain in sensors and "/Sensors/" in plain):
                continue
            seen.add(key)
            unit = next((unit for word, unit in _METRIC_UNITS.items() if source.endswith(word)), (Quantity.OTHER, 1.0))
            if plain_number(entry.get("MetricValue")) is not None:
                yield Sensor(clean(key), clean(name), unit[0], value(entry, "MetricValue", unit[0], unit[1]), "report")
