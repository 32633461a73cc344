"""What a demo node's BMC says over Redfish (DSP0268): a chassis with two supplies, its power, temperatures and fans.

The power stands in one Power resource, as most controllers in the field have it, and once more in EnvironmentMetrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clustertop.demo.feeds import SUPPLIES, SUPPLY_NAMES, SUPPLY_WATTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.demo.power import Power
    from clustertop.demo.simulator import Simulator

BASE = "/redfish/v1"
SERVICE = f"{BASE}/SessionService"
SESSIONS = f"{SERVICE}/Sessions"
CHASSIS = f"{BASE}/Chassis/1"
SYSTEM = f"{BASE}/Systems/1"
SESSION_SECONDS = 300
"""Without use, after which a session ends."""
_FANS = 4
_FAN_RPM = 12_400.0


def body(path: str, node: int, name: str, power: Power, simulator: Simulator) -> dict[str, Any] | None:
    """The resource at *path* (without a slash at its end) of *node*, called *name*; None: there is none."""
    if path == f"{CHASSIS}/Power":
        return _power(node, power)
    if path == f"{CHASSIS}/EnvironmentMetrics":
        return {"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "@odata.id": path,
                "Id": "EnvironmentMetrics", "Name": "Chassis environment",
                "PowerWatts": {"Reading": _watts(node, power)}}  # fmt: skip
    if path == SYSTEM:
        return {"@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem", "@odata.id": path, "Id": "1",
                "Name": "System", "HostName": name, "PowerState": "On" if power.on(node) else "Off"}  # fmt: skip
    if path == f"{CHASSIS}/Sensors":
        found = _sensors(node, power, simulator)
        return _collection(path, "Sensor", *found) | {"Members": list(found.values())}
    if path.startswith(f"{CHASSIS}/Sensors/"):
        return _sensors(node, power, simulator).get(path)
    return _fixed(path, name)


def _fixed(path: str, name: str) -> dict[str, Any] | None:
    tree: dict[str, dict[str, Any]] = {
        BASE: {"@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "Id": "RootService", "Name": "Root", "Vendor": "Demo",
               "Chassis": _link(f"{BASE}/Chassis"), "Systems": _link(f"{BASE}/Systems"),
               "SessionService": _link(SERVICE), "Links": {"Sessions": _link(SESSIONS)},
               "ProtocolFeaturesSupported": {"ExpandQuery": {"Levels": True, "NoLinks": True, "MaxLevels": 1}}},
        SERVICE: {"@odata.type": "#SessionService.v1_1_8.SessionService", "Id": "SessionService",
                  "Name": "Session service", "ServiceEnabled": True, "SessionTimeout": SESSION_SECONDS,
                  "Sessions": _link(SESSIONS)},
        f"{BASE}/Chassis": _collection(f"{BASE}/Chassis", "Chassis", CHASSIS),
        f"{BASE}/Systems": _collection(f"{BASE}/Systems", "ComputerSystem", SYSTEM),
        CHASSIS: {"@odata.type": "#Chassis.v1_25_0.Chassis", "Id": "1", "Name": "Chassis", "ChassisType": "RackMount",
                  "Manufacturer": "Demo", "Model": "G8-H100 (simulated)", "AssetTag": name,
                  "Power": _link(f"{CHASSIS}/Power"), "Sensors": _link(f"{CHASSIS}/Sensors"),
                  "EnvironmentMetrics": _link(f"{CHASSIS}/EnvironmentMetrics")},
    }  # fmt: skip
    found = tree.get(path)
    return None if found is None else {"@odata.id": path, **found}


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _collection(path: str, kind: str, *members: str) -> dict[str, Any]:
    return {"@odata.id": path, "@odata.type": f"#{kind}Collection.{kind}Collection", "Name": f"{kind} collection",
            "Members": [_link(one) for one in members], "Members@odata.count": len(members)}  # fmt: skip


def _watts(node: int, power: Power) -> float:
    return round(float(power.input[node].sum()))


def _power(node: int, power: Power) -> dict[str, Any]:
    path = f"{CHASSIS}/Power"
    supplies = [_supply(path, node, supply, power) for supply in range(SUPPLIES)]
    well = all(one["Status"]["Health"] == "OK" for one in supplies)
    return {
        "@odata.type": "#Power.v1_7_0.Power", "@odata.id": path, "Id": "Power", "Name": "Power",
        "PowerControl": [{
            "@odata.id": f"{path}#/PowerControl/0", "MemberId": "0", "Name": "System Power Control",
            "PowerConsumedWatts": _watts(node, power), "PowerCapacityWatts": SUPPLIES * SUPPLY_WATTS,
        }],
        "PowerSupplies": supplies,
        "Redundancy": [{
            "@odata.id": f"{path}#/Redundancy/0", "MemberId": "0", "Name": "PSU redundancy", "Mode": "N+m",
            "MinNumNeeded": 1, "MaxNumSupported": SUPPLIES,
            "RedundancySet": [_link(one["@odata.id"]) for one in supplies],
            "Status": {"State": "Enabled", "Health": "OK" if well else "Critical"},
        }],
    }  # fmt: skip


def _supply(path: str, node: int, supply: int, power: Power) -> dict[str, Any]:
    failed, live = power.failed(node, supply), bool(power.live[node, supply])
    return {
        "@odata.id": f"{path}#/PowerSupplies/{supply}", "MemberId": str(supply), "Name": SUPPLY_NAMES[supply],
        "Status": {"State": "Enabled", "Health": "OK" if live else "Critical"},
        "PowerSupplyType": "AC", "LineInputVoltage": round(power.input_volts(node, supply), 1),
        "PowerCapacityWatts": SUPPLY_WATTS, "PowerInputWatts": round(float(power.input[node, supply])),
        "PowerOutputWatts": round(float(power.output[node, supply])), "Model": "9 kW, three-phase (simulated)",
        **({"Oem": {"Demo": {"Fault": "supply failed"}}} if failed else {}),
    }  # fmt: skip


def _sensors(node: int, power: Power, simulator: Simulator) -> Mapping[str, dict[str, Any]]:
    heat = float(simulator.temperature[node].mean())
    on = power.on(node)
    speed = _FAN_RPM * min(1.0, 0.35 + max(heat - 30.0, 0.0) / 60.0) if on else 0.0
    out: dict[str, dict[str, Any]] = {}

    def add(name: str, title: str, kind: str, unit: str, reading: float, limits: dict[str, float]) -> None:
        path = f"{CHASSIS}/Sensors/{name}"
        out[path] = {
            "@odata.id": path, "@odata.type": "#Sensor.v1_6_0.Sensor", "Id": name, "Name": title, "ReadingType": kind,
            "ReadingUnits": unit, "Reading": round(reading, 1), "Status": {"State": "Enabled", "Health": "OK"},
            "Thresholds": {limit: {"Reading": value} for limit, value in limits.items()},
        }  # fmt: skip

    add("Inlet", "Inlet temperature", "Temperature", "Cel", simulator.inlet(node),
        {"UpperCaution": 38.0, "UpperCritical": 42.0})  # fmt: skip
    add("Exhaust", "Exhaust temperature", "Temperature", "Cel", simulator.inlet(node) + 0.0024 * _watts(node, power),
        {"UpperCaution": 65.0, "UpperCritical": 70.0})  # fmt: skip
    for fan in range(_FANS):
        add(f"Fan{fan + 1}", f"Fan {fan + 1}", "Rotational", "RPM", speed * (1.0 + 0.004 * fan),
            {"LowerCritical": 1_500.0} if on else {})  # fmt: skip
    return out
