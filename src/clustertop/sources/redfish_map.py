"""Which resources of a Redfish service hold power, what leads to them, and how often each is worth a request.

DMTF DSP0268 (schema guide) and DSP2046 (resource guide). Everything here is pure: a body in, links out.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = "/redfish/v1/"
SESSIONS = "/redfish/v1/SessionService/Sessions"
MAX_PATH = 512
MAX_MEMBERS = 96
"""Members of one collection that are looked at."""

_TYPE = re.compile(r"^#?([A-Za-z0-9]+)\.")
_PATH = re.compile(r"^/redfish/[!-~]*$")
_ELECTRIC = re.compile(r"pow|pwr|watt|curr|amp|volt|psu|ps\d|hsc|energy|input|output", re.IGNORECASE)
_COLLECTIONS = {
    "PowerSupplies", "Sensors", "Mains", "Branches", "Outlets", "OutletGroups", "Alarms", "LeakDetectors",
    "RackPDUs", "PowerShelves", "MetricReports", "Chassis", "Systems", "RackPDU",
}


class Tier(enum.IntEnum):
    """How often a resource is read."""

    LIVE = 0
    """At every poll: what the power is now."""
    DETAIL = 1
    """While it is on screen, else seldom: sensors, outlets, temperatures."""
    STATIC = 2
    """Seldom: what there is, and its ratings."""


def local_path(link: object) -> str:
    """Return the path of a link such as ``{"@odata.id": …}`` or a string; empty if it leads anywhere but this service.

    A BMC may hold links to other devices (a PDU's outlet); our session token must not be sent there.
    """
    if isinstance(link, dict):
        link = link.get("@odata.id")
    if not isinstance(link, str) or len(link) > MAX_PATH:
        return ""
    path = link.partition("#")[0]
    if not _PATH.match(path) or "//" in path or "?" in path or "/../" in path + "/" or "\\" in path:
        return ""
    return path


@lru_cache(maxsize=1024)
def _type_of(named: str) -> str:
    match = _TYPE.match(named)
    return match.group(1) if match else ""


def kind(path: str, body: Mapping[str, Any]) -> str:
    """The resource's type without its version (``Power``, ``Sensor``), from ``@odata.type`` or what it looks like."""
    named = body.get("@odata.type")
    found = _type_of(named) if isinstance(named, str) else ""
    if found:
        return found
    if "PowerControl" in body or isinstance(body.get("PowerSupplies"), list):
        return "Power"
    parts = path.rstrip("/").split("/")
    if "Members" in body:
        return f"{parts[-1]}Collection"
    if len(parts) > 1 and parts[-2] in {"Chassis", "Systems"}:
        return {"Chassis": "Chassis", "Systems": "ComputerSystem"}[parts[-2]]
    if len(parts) > 1 and parts[-2] in {"Sensors", "PowerSupplies"}:
        return parts[-2].removesuffix("s").replace("Supplie", "Supply")
    return parts[-1]


def members(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Members of a collection: path, and the body where it came inlined (else empty).

    ``Members@odata.count`` is not believed: only what stands there is there.
    """
    listed = body.get("Members")
    if not isinstance(listed, list):
        return
    for member in listed[:MAX_MEMBERS * 8]:
        path = local_path(member)
        if path:
            yield path, member if len(member) > 2 else {}


def expandable(root: Mapping[str, Any]) -> bool:
    """Whether the service says that ``$expand=.($levels=1)`` works, so that a collection costs one request."""
    features = root.get("ProtocolFeaturesSupported")
    query = features.get("ExpandQuery") if isinstance(features, dict) else None
    return isinstance(query, dict) and bool(query.get("Levels")) and bool(query.get("NoLinks"))


def follow(path: str, body: Mapping[str, Any]) -> Iterator[tuple[str, Tier]]:
    """Yield the resources below *body* that are worth reading, in the order of their worth."""
    inner = kind(path, body) == "Chassis" and is_inner(body)
    for name, tier in _LINKS.get(kind(path, body), ()):
        target = body
        for step in name.split("/"):
            found = target.get(step)
            if not isinstance(found, dict):
                break
            target = found
        else:
            link = local_path(target)
            if link:
                if name == "Sensors" and "Power" not in body and "EnvironmentMetrics" not in body:
                    tier = Tier.LIVE  # power shelves and some trays have their figures nowhere else
                elif name == "PowerSubsystem" and "Power" in body:
                    tier = Tier.DETAIL  # the same supplies once more, at two requests each
                yield link, max(tier, Tier.DETAIL) if inner else tier
    yield from _below(path, body)


def _below(path: str, body: Mapping[str, Any]) -> Iterator[tuple[str, Tier]]:
    what = kind(path, body)
    if "Members" not in body:
        return
    listed = [(link, inlined) for link, inlined in members(body) if not inlined or what not in _ENOUGH_INLINED]
    if what == "SensorCollection":
        listed.sort(key=lambda pair: _ELECTRIC.search(pair[0].rsplit("/", 1)[-1]) is None)
    for link, _ in listed[:MAX_MEMBERS]:
        yield link, _MEMBER_TIER.get(what, Tier.STATIC)


def is_inner(chassis: Mapping[str, Any]) -> bool:
    """Whether a chassis is a part of another one: a module, a board, a GPU. Its power is in the other's."""
    links = chassis.get("Links")
    contained = isinstance(links, dict) and bool(local_path(links.get("ContainedBy")))
    return contained or chassis.get("ChassisType") in {"Module", "Component", "Card", "Zone"}


def is_collection(path: str) -> bool:
    """Whether a path names a collection that may be expanded."""
    return path.rstrip("/").rsplit("/", 1)[-1] in _COLLECTIONS


_ENOUGH_INLINED = {"SensorCollection", "AlarmCollection", "LeakDetectorCollection", "CircuitCollection",
                   "OutletCollection", "OutletGroupCollection", "MetricReportCollection"}

_LINKS: dict[str, tuple[tuple[str, Tier], ...]] = {
    "ServiceRoot": (
        ("Chassis", Tier.STATIC), ("Systems", Tier.STATIC), ("PowerEquipment", Tier.STATIC), ("DCIMPower", Tier.STATIC),
        ("SessionService", Tier.STATIC), ("TelemetryService", Tier.STATIC),
    ),
    "Chassis": (
        ("EnvironmentMetrics", Tier.LIVE), ("Power", Tier.LIVE), ("PowerSubsystem", Tier.STATIC),
        ("Sensors", Tier.DETAIL), ("Thermal", Tier.DETAIL), ("ThermalSubsystem", Tier.STATIC),
    ),
    "PowerSubsystem": (("PowerSupplies", Tier.STATIC),),
    "PowerSupply": (("Metrics", Tier.LIVE),),
    "ThermalSubsystem": (("LeakDetection", Tier.STATIC),),
    "LeakDetection": (("LeakDetectors", Tier.DETAIL),),
    "PowerEquipment": (("RackPDUs", Tier.STATIC), ("PowerShelves", Tier.STATIC)),
    "PowerDistribution": (
        ("Metrics", Tier.LIVE), ("Mains", Tier.LIVE), ("Branches", Tier.LIVE), ("PowerSupplies", Tier.STATIC),
        ("Outlets", Tier.DETAIL), ("OutletGroups", Tier.DETAIL), ("Sensors", Tier.DETAIL),
    ),
    "RackPDU": (
        ("Mains", Tier.LIVE), ("Branches", Tier.LIVE), ("Alarms", Tier.LIVE),
        ("Outlets", Tier.DETAIL), ("OutletGroups", Tier.DETAIL), ("Sensors", Tier.DETAIL),
    ),
    "TelemetryService": (("MetricReports", Tier.DETAIL),),
}

_MEMBER_TIER = {
    "ComputerSystemCollection": Tier.DETAIL,
    "ChassisCollection": Tier.STATIC,
    "PowerSupplyCollection": Tier.LIVE,
    "SensorCollection": Tier.DETAIL,
    "CircuitCollection": Tier.LIVE,
    "OutletCollection": Tier.DETAIL,
    "OutletGroupCollection": Tier.DETAIL,
    "AlarmCollection": Tier.LIVE,
    "LeakDetectorCollection": Tier.DETAIL,
    "RackPDUCollection": Tier.LIVE,
    "MetricReportCollection": Tier.DETAIL,
}
