"""One BMC over IPMI, by the ``ipmitool`` program: RMCP+ (lanplus) from the console, never two runs at once.

ipmitool and not a library of ours: what makes IPMI hard are the vendors' deviations, and it has met them.

The password goes to the child through a pipe (``-f /dev/fd/N``). Of what ipmitool offers, ``-P`` is seen by every user
of the machine in the process list, ``-E`` is in the environment as long as the child lives and is inherited by what it
starts, and ``-f FILE`` leaves the password on a disk where we die before we delete it. A pipe can be read once.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustertop.clock import SystemClock
from clustertop.sources import ipmi_read, ipmi_text
from clustertop.sources.bmc_reading import BmcReading, BmcState, Event, Limits
from clustertop.sources.care import BmcFailure
from clustertop.sources.secret import Lent, Secret, SecretError
from clustertop.sources.tool import GRACE_SECONDS, Ran, ToolMissingError, run
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.clock import Clock

_HOST = re.compile(r"^[0-9A-Za-z_][0-9A-Za-z_.:%-]{0,252}$|^[0-9A-Fa-f:]*::[0-9A-Fa-f:.%]*$")


@dataclass(frozen=True, slots=True)
class IpmiTarget:
    """Where a BMC is and how we log in."""

    host: str
    user: str
    password: Secret
    port: int = 623
    privilege: str = "USER"
    """Asked for at login. USER is enough to read, and can change nothing."""
    cipher: str = ""
    """Cipher suite number; empty: the best that both know."""


@dataclass(frozen=True, slots=True)
class IpmiSettings:
    """How the tool is run."""

    program: str = "ipmitool"
    deadline_seconds: float = 45.0
    """After this a run is ended, with everything it started."""
    grace_seconds: float = GRACE_SECONDS
    """Between TERM and KILL."""
    packet_seconds: int = 3
    packet_tries: int = 3
    """The tool's own patience, shorter than ours so that it can say why."""
    power_state_seconds: float = 60.0
    events_seconds: float = 300.0
    limits_seconds: float = 3600.0
    cache_seconds: float = 86_400.0
    """How long a copy of the BMC's sensor records is used."""
    most_events: int = 512
    first_events: int = 32


class Ipmi:
    """A :class:`~clustertop.sources.care.Source` over IPMI."""

    def __init__(self, target: IpmiTarget, settings: IpmiSettings | None = None, clock: Clock | None = None) -> None:
        if not _HOST.match(target.host):
            raise ValueError(f"not a host name or address: {clean(target.host, 80)!r}")
        if not re.fullmatch(r"[A-Z]{4,13}", target.privilege) or not re.fullmatch(r"\d{0,2}", target.cipher):
            raise ValueError("a privilege is one word such as USER, a cipher suite one number")
        self._target = target
        self._password = Lent(target.password)
        self._settings = settings or IpmiSettings()
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()
        self._folder: Path | None = None
        self._cached_at: float | None = None
        self._cipher = target.cipher
        self._up = False
        self._host_power = ""
        self._due: dict[str, float] = {}
        self._limits: dict[tuple[str, str], Limits] = {}
        self._events: tuple[Event, ...] = ()
        self._events_at: float | None = None
        self._events_step = self._settings.first_events
        self._notes: dict[str, str] = {}
        self.runs = 0
        """How often the tool was started."""

    async def read(self, *, detail: bool) -> BmcReading:
        """Read sensors and DCMI's meter. Raises BmcFailure."""
        taken_at = self._clock.monotonic()
        try:
            if not self._up:
                await self._knock()
            await self._copy_records()
            ran = await self._run("sdr", "elist", "all")
            sensors = ipmi_text.sensors(ran.out)
            if not sensors:
                raise _refused(ran)
            dcmi = await self._dcmi()
        except BmcFailure:
            self._up = False
            self._password.forget()
            raise
        reading = ipmi_read.read(ipmi_text.merged(sensors, self._limits), dcmi, host_power=self._host_power,
                                 taken_at=taken_at, events=self._events, events_at=self._events_at)
        notes = [f"the tool ended with status {ran.status}: {clean(ran.err.strip(), 120)}"] if ran.status else []
        return replace(reading, notes=(*notes, *self._notes.values()))

    async def slow(self, seconds: float) -> Mapping[str, Any]:
        """Do the most overdue of: host power, event log, limits; each within *seconds*, else it is ended and noted."""
        now = self._clock.monotonic()
        settings = self._settings
        for name, every, work in (("power", settings.power_state_seconds, self._power_state),
                                  ("events", settings.events_seconds, self._read_events),
                                  ("limits", settings.limits_seconds, self._read_limits)):
            if now >= self._due.get(name, 0.0):
                self._due[name] = now + every
                return await work(seconds)
        return {}

    async def aclose(self) -> None:
        """Remove the copy of the sensor records. A run under way has been ended by whoever cancelled it."""
        self._password.forget()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def _knock(self) -> None:
        """The cheapest question, with ``-v``: without it a wrong password and a dead host look the same."""
        ran = await self._run("-v", "chassis", "power", "status")
        state = ipmi_text.host_power(ran.out)
        if not state and ran.status != 0:
            raise _refused(ran)
        self._host_power = state or self._host_power
        if "Unable to Get Channel Cipher Suites" in ran.err:
            # Each run waits for that answer anew, and then takes this suite, the one that IPMI 2.0 makes obligatory.
            self._cipher = self._cipher or "3"
        self._up = True

    async def _copy_records(self) -> None:
        """Fetch the sensor records into a private file: with it a poll needs a small part of the requests."""
        now = self._clock.monotonic()
        if now < self._due.get("records", 0.0):
            return
        self._due["records"] = now + self._settings.cache_seconds
        self._cached_at = None
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="clustertop-sdr-"))  # 0700
        path = self._folder / "records"
        path.unlink(missing_ok=True)
        ran = await self._run("sdr", "dump", str(path), seconds=self._settings.deadline_seconds * 2, fatal=False)
        if ran.status == 0 and path.exists() and path.stat().st_size:
            self._cached_at = now

    async def _dcmi(self) -> ipmi_text.Dcmi | None:
        """DCMI's power meter, asked again only seldom where the BMC does not have it."""
        now = self._clock.monotonic()
        if now < self._due.get("dcmi", 0.0):
            return None
        ran = await self._run("dcmi", "power", "reading", fatal=False)
        found = ipmi_text.dcmi(ran.out)
        if found is None:
            self._due["dcmi"] = now + self._settings.limits_seconds
        return found

    async def _power_state(self, seconds: float) -> Mapping[str, Any]:
        ran = await self._run("chassis", "power", "status", seconds=seconds, fatal=False)
        state = ipmi_text.host_power(ran.out)
        if not state:
            return {}
        self._host_power = state
        return {"host_power": state}

    async def _read_events(self, seconds: float) -> Mapping[str, Any]:
        """The newest lines of the event log, as many as fit between two polls: the number is found by trying."""
        at = self._clock.monotonic()
        step = self._events_step
        self._events_step = max(1, step // 2)  # what stands if we are cancelled, because a poll came
        ran = await self._run("sel", "elist", "last", str(step), seconds=seconds, fatal=False)
        took = self._clock.monotonic() - at
        if ran.overdue:
            self._notes["events"] = f"event log: {step} lines took longer than {seconds:.1f} s"
            self._due["events"] = 0.0
            return {}
        self._events_step = min(self._settings.most_events, step * 2) if took < seconds / 4 else step
        if ran.status != 0:
            self._notes["events"] = f"event log: {ipmi_read.complaint(ran.err)[1]}"
            return {}
        self._notes.pop("events", None)
        self._events, self._events_at = tuple(ipmi_text.events(ran.out)), at
        return {"events": self._events, "events_at": at}

    async def _read_limits(self, seconds: float) -> Mapping[str, Any]:
        ran = await self._run("-v", "sdr", "list", "full", seconds=seconds, fatal=False)
        if ran.overdue:
            self._notes["limits"] = "the sensors' own limits take too long to read"
            return {}
        self._notes.pop("limits", None)
        self._limits = {(each.id, each.entity): each.limits for each in ipmi_text.sensors(ran.out)}
        return {}

    async def _run(self, *command: str, seconds: float | None = None, fatal: bool = True) -> Ran:
        """Run the tool once. A hung one is ended with its group; it is a failure of the poll unless not *fatal*."""
        target, settings = self._target, self._settings
        try:
            password = await self._password.reveal()
        except SecretError as error:
            raise BmcFailure(BmcState.AUTH_FAILED, str(error)) from None
        verbose = [part for part in command if part == "-v"]
        argv = [settings.program, *verbose, "-I", "lanplus", "-H", target.host, "-p", str(target.port),
                "-U", target.user, "-f", "{secret}", "-L", target.privilege,
                "-N", str(settings.packet_seconds), "-R", str(settings.packet_tries)]
        if self._cipher:
            argv += ["-C", self._cipher]
        if self._cached_at is not None and self._folder is not None and command[:1] == ("sdr",):
            argv += ["-S", str(self._folder / "records")]
        argv += [part for part in command if part != "-v"]
        limit = seconds or settings.deadline_seconds
        async with self._lock:
            self.runs += 1
            try:
                ran = await run(argv, deadline_seconds=limit, env=_environment(), secret=password,
                                grace_seconds=settings.grace_seconds)
            except ToolMissingError as error:
                raise BmcFailure(BmcState.NO_TOOL, clean(str(error))) from None
        if ran.overdue and fatal:
            raise BmcFailure(BmcState.NOT_ANSWERING, f"the tool did not end within {limit:g} s and was ended")
        return ran


def _environment() -> dict[str, str]:
    """Nothing but where programs are: IPMI_PASSWORD and the like of our own environment are none of the child's."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _refused(ran: Ran) -> BmcFailure:
    state, words = ipmi_read.complaint(ran.err)
    return BmcFailure(state, words, wait_seconds=1800.0 if state is BmcState.MAX_SESSIONS else 0.0)
