"""OpenIPMI's ipmi_sim as a BMC on loopback, with sensors that follow files."""

from __future__ import annotations

import contextlib
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ports import free_udp_port
from tools import need

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "reader"
PASSWORD = "Specht-58"
_UNITS = {"V": (2, 4), "A": (3, 5), "W": (0x0B, 6)}
"""Sensor type and unit code (IPMI 2.0 tables 42-3 and 43-15)."""


@dataclass(frozen=True)
class Analog:
    """A full sensor record: raw byte x *factor* x 10^*exponent* in *unit*."""

    number: int
    entity: int
    instance: int
    name: str
    unit: str
    factor: int = 1
    exponent: int = 0


@dataclass(frozen=True)
class Discrete:
    """A compact sensor record; its file holds the mask of asserted states."""

    number: int
    entity: int
    instance: int
    name: str
    type: int
    event: int = 0x6F


SENSORS: tuple[Analog | Discrete, ...] = (
    Analog(0x30, 7, 1, "Sys Power", "W", factor=4),
    Analog(0x31, 10, 1, "Current", "A", exponent=-2),
    Analog(0x32, 10, 2, "Current", "A", exponent=-2),
    Analog(0x33, 10, 1, "Voltage", "V"),
    Analog(0x34, 10, 2, "Voltage", "V"),
    Discrete(0x40, 10, 1, "Status", 0x08),
    Discrete(0x41, 10, 2, "Status", 0x08),
    Discrete(0x42, 7, 1, "PSU Redundancy", 0x09, event=0x0B),
)
_START = {0x30: 150, 0x31: 240, 0x32: 0, 0x33: 231, 0x34: 229, 0x40: 1, 0x41: 1, 0x42: 1}


def record(number: int, sensor: Analog | Discrete) -> list[int]:
    """The sensor data record (IPMI 2.0, 43.1 and 43.2)."""
    name = [0xC0 | len(sensor.name), *sensor.name.encode()]
    if isinstance(sensor, Analog):
        kind, unit = _UNITS[sensor.unit]
        body = [0x20, 0, sensor.number, sensor.entity, sensor.instance, 0x7F, 0x68, kind, 1, *[0] * 6, 0, unit, 0, 0,
                sensor.factor, 0, 0, 0, 0, (sensor.exponent & 15) << 4, *[0] * 4, 0xFF, 0, *[0] * 6, 1, 1, *[0] * 3, *name]
        return [number, 0, 0x51, 1, len(body), *body]
    body = [0x20, 0, sensor.number, sensor.entity, sensor.instance, 0x67, 0x40, sensor.type, sensor.event,
            *[0xFF, 0x7F] * 3, 0xC0, 0, 0, 1, *[0] * 7, *name]
    return [number, 0, 0x51, 2, len(body), *body]


@dataclass
class Simulator:
    """One ipmi_sim."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def set(self, number: int, raw: int) -> None:
        """Move a sensor; the simulator looks ten times a second."""
        path = self.folder / f"sensor-{number:02x}"
        part = path.with_suffix(".part")
        part.write_text(f"{raw}\n")
        part.rename(path)

    def start(self) -> None:
        program = need("ipmi_sim", "openipmi")
        self.port = free_udp_port()
        lines = ["mc_setbmc 0x20", "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02", "sel_enable 0x20 1000 0x0a"]
        for number, raw in _START.items():
            self.set(number, raw)
        for index, sensor in enumerate(SENSORS, 1):
            kind, event = (_UNITS[sensor.unit][0], 1) if isinstance(sensor, Analog) else (sensor.type, sensor.event)
            file = self.folder / f"sensor-{sensor.number:02x}"
            lines += [
                f'sensor_add 0x20 0 {sensor.number:#x} {kind:#x} {event:#x} poll 100 file "{file}"',
                f"sensor_set_event_support 0x20 0 {sensor.number:#x} enable scanning per-state " + " ".join(["0" * 15] * 4),
                "main_sdr_add 0x20 " + " ".join(f"{byte:#04x}" for byte in record(index, sensor))]
        for hour in range(40):
            lines.append(f"sel_add 0x20 2 0 0 0 {hour:#x} 0x20 0 4 8 0x41 0x6f 3 0xff 0xff")
        lines.append("mc_enable 0x20")
        (self.folder / "commands").write_text("\n".join(lines) + "\n")
        allowed = "".join(f"    allowed_auths_{who} none md2 md5 straight\n" for who in ("callback", "user", "operator", "admin"))
        (self.folder / "lan.conf").write_text(
            f'name "test"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {self.port}\n    priv_limit admin\n{allowed}'
            f'    guid 0123456789abcdef0123456789abcdef\n  endlan\n'
            f'  user 2 true "{USER}" "{PASSWORD}" admin 10 none md2 md5 straight\n')
        (self.folder / "state").mkdir()
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [program, "-n", "-c", self.folder / "lan.conf", "-f", self.folder / "commands", "-s", self.folder / "state"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while f":{self.port:04X} " not in Path("/proc/net/udp").read_text():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)


@contextlib.contextmanager
def simulated(folder: Path) -> Iterator[Simulator]:
    """A simulated BMC for the length of a with block."""
    need("ipmitool")
    simulator = Simulator(folder)
    simulator.start()
    try:
        yield simulator
    finally:
        simulator.stop()
