"""What each PDU, BMC, switch or fabric would keep from us: asked once, as the console asks it, and only read."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from clustertop.clock import SystemClock
from clustertop.doctor import Finding, count
from clustertop.model import LinkState
from clustertop.places import DEVICE_WORD
from clustertop.poll.devices import Devices
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.model import Attr, LinkEvent
    from clustertop.places import Device
    from clustertop.wire.frame import Frame

READING_SECONDS = 25.0
"""Longest wait for a device's first reading: a BMC may take twenty for a login."""
AT_ONCE = 64
"""So many devices are asked together."""
MOST_DEVICES = 256
"""No more are asked: a doctor is no poller."""
DEVICE_CHECKS = ("device.reach", "device.reading")
"""Ids of the checks of a device, in order."""
_DOWN = frozenset({
    LinkState.UNREACHABLE, LinkState.AUTH_FAILED, LinkState.PROBE_FAILED, LinkState.BUSY, LinkState.HOST_KEY_UNKNOWN,
    LinkState.HOST_KEY_CHANGED, LinkState.NO_PYTHON,
})
_CURES: Mapping[tuple[LinkState, str], str] = {
    (LinkState.UNREACHABLE, "snmp"): "check address and route of the management network, that SNMP is on for this "
                                     "machine, and the community: an agent is silent to a wrong one",
    (LinkState.UNREACHABLE, "http"): "check address and route of the management network, and that Redfish is on",
    (LinkState.UNREACHABLE, "ipmi"): "check address and route of the management network, and that IPMI over LAN is on",
    (LinkState.BUSY, "login"): "its sessions are all taken: end forgotten ones on the BMC, or wait for its timer",
    (LinkState.BUSY, "answer"): "ask again later, and at longer intervals",
    (LinkState.AUTH_FAILED, "login"): "check user and secret in the configuration, and that the secret can be had",
    (LinkState.AUTH_FAILED, "tls"): "check ca_file or fingerprint in the configuration against the device",
    (LinkState.AUTH_FAILED, "answer"): "give the user the right to read power and sensors; it needs no other",
    (LinkState.PROBE_FAILED, "console"): "install ipmitool on this machine",
    (LinkState.PROBE_FAILED, "config"): "correct its section of the configuration",
    (LinkState.PROBE_FAILED, "answer"): "see docs/bmc.md and docs/pdu.md; `clustertop pdu-walk HOST` shows a PDU",
}


async def examine(devices: Sequence[Device]) -> list[Finding]:
    """Return the findings of the first ``MOST_DEVICES`` of *devices*, in their order; nothing is left running."""
    findings: list[Finding] = []
    asked = devices[:MOST_DEVICES]
    for start in range(0, len(asked), AT_ONCE):
        some = asked[start : start + AT_ONCE]
        heard = Listener(len(some))
        try:
            async with Devices(some, 0, heard, SystemClock(), random.Random()):  # noqa: S311 - jitter, not a secret
                with suppress(TimeoutError):
                    async with asyncio.timeout(READING_SECONDS):
                        await heard.complete.wait()
                told = list(heard.events)
        except Exception as error:  # noqa: BLE001 - an error of ours costs the others nothing: it is said
            told = list(heard.events)
            heard.bug = clean(f"{type(error).__name__}", 60)
        for number, device in enumerate(some):
            findings += report(device, told[number], heard.facts[number], heard.errors[number], heard.bug)
    if len(devices) > len(asked):
        findings.append(Finding("device.reach", "unknown",
                                f"{count(len(devices) - len(asked), 'more device')} not asked; name fewer HOSTS"))
    return findings


class Listener:
    """Keeps how far each device got, until every one has been read or has failed."""

    def __init__(self, devices: int) -> None:
        self.events: list[LinkEvent | None] = [None] * devices
        self.facts: list[Mapping[str, Attr]] = [{}] * devices
        self.errors = [""] * devices
        """What a group of a device that answers could not read."""
        self.complete = asyncio.Event()
        self.bug = ""
        self._open = set(range(devices))

    def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
        """Take a reading."""
        self.facts[node] = frame.h or {}
        self.errors[node] = next((part.e for part in frame.g.values() if part.e), "")
        if any(part.st == "ok" for part in frame.g.values()):
            self._done(node)

    def on_link(self, event: LinkEvent) -> None:
        """Take a change of a link."""
        if event.state is LinkState.CLOSED:
            return
        self.events[event.node] = event
        if event.state in _DOWN:
            self._done(event.node)

    def _done(self, number: int) -> None:
        self._open.discard(number)
        if not self._open:
            self.complete.set()


def report(
    device: Device, event: LinkEvent | None, facts: Mapping[str, Attr], error: str, bug: str = ""
) -> list[Finding]:
    """Return the findings of a device.

    Args:
        device: it.
        event: the last that was told of its link; None: nothing.
        facts: what it said of itself.
        error: what of its reading failed.
        bug: an error of our own that ended the asking.
    """
    word, where = DEVICE_WORD[device.kind], f" at {clean(device.where, 80)}" if device.where else ""
    if event is not None and event.state in _DOWN:
        text = f"{word}{where}: {event.state.words}: {clean(event.reason, 400)}"
        cure = _CURES.get((event.state, event.stage)) or _CURES.get((event.state, _way(device)), "")
        return [Finding("device.reach", "fail", text, cure, device.name)]
    if event is None or event.state is not LinkState.UP:
        why = f"could not be asked ({bug})" if bug else f"gave no whole reading within {READING_SECONDS:g} s"
        return [Finding("device.reach", "unknown", f"{word}{where} {why}", "ask again later", device.name)]
    found = [Finding("device.reach", "ok", f"{word}{where} answers", "", device.name)]
    said = [clean(str(facts[name]), 200) for name in ("problem", "notes") if facts.get(name)]
    if error:
        said.insert(0, clean(error, 200))
    who = " ".join(clean(str(facts[name]), 60) for name in ("vendor", "model", "title") if facts.get(name))
    if said:
        found.append(Finding("device.reading", "warn", "; ".join(said), "", device.name))
    elif device.kind == "pdu" and _way(device) == "snmp" and not facts.get("profile"):
        found.append(Finding("device.reading", "warn", "no profile knows it: its figures are unscaled and never judged",
                             "see docs/pdu.md for a profile of your own", device.name))
    else:
        found.append(Finding("device.reading", "ok", f"it is read{f': {who}' if who else ''}", "", device.name))
    return found


def _way(device: Device) -> str:
    over = str(device.options.get("over") or "snmp")
    return "http" if over == "redfish" else over
