"""``clustertop pdu-walk HOST[:PORT]``: what a PDU says over SNMP, raw beside scaled."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from clustertop.commands.common import EXIT_OK, EXIT_WARNING, amount, refuse, seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from clustertop.sources.oids import Oid, Value
    from clustertop.sources.pdu import Pdu
    from clustertop.sources.pdu_reading import PartReading, PduReading
    from clustertop.sources.profile import Profile
    from clustertop.sources.snmp import Agent

COMMUNITY_VARIABLE = "CLUSTERTOP_COMMUNITY"
MAX_UNSCALED = 200
_LIMITS = {"rating_amps": "rating", "warn_amps": "warning", "crit_amps": "critical", "warn_watts": "warning",
           "crit_watts": "critical"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("host", metavar="HOST[:PORT]", nargs="?", help="the PDU's SNMP agent (UDP 161)")
    parser.add_argument("--profile", metavar="NAME", default="", help="a profile's name, or its file: FILE.toml")
    parser.add_argument("--profiles", action="store_true", help="list the profiles and exit")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--rows", action="store_true", help="all the device's rows as a snmprec fixture, nothing else")
    parser.add_argument("--snmp", choices=("1", "2c", "3"), help="the protocol's version (2c; 3 with --user)")
    parser.add_argument("--community", metavar="SPEC", help=f"v1, v2c: (env:{COMMUNITY_VARIABLE} if set, else public)")
    parser.add_argument("--user", metavar="NAME", help="v3: the user")
    parser.add_argument("--auth-key", metavar="SPEC", help="v3: the authentication key")
    parser.add_argument("--auth-protocol", metavar="NAME", default="SHA256", help="MD5 SHA SHA224 SHA256 SHA384 SHA512")
    parser.add_argument("--privacy-key", metavar="SPEC", help="v3: the privacy key")
    parser.add_argument("--privacy-protocol", metavar="NAME", default="AES", help="DES 3DES AES AES192 AES256")
    parser.add_argument("--context", metavar="NAME", default="", help="v3: the context")
    parser.add_argument("--timeout", type=seconds, default=2.0, metavar="SECONDS", help="until it is asked again (2)")
    parser.add_argument("--retries", type=_few, default=2, metavar="N", help="repeats of a request (2)")
    parser.epilog = (
        "SPEC says where a secret is, never what it is: env:NAME, file:PATH (mode 600) or command:ARGV.\n"
        "It only reads.\n\n"
        "exit status: 0 readings; 1 none (no data, not metered, no profile); 3 no answer, refused, or a wrong argument")


def _few(text: str) -> int:
    return min(10, int(amount(text)))


def run(args: argparse.Namespace) -> int:
    """Read the device and print it; returns the exit status."""
    import asyncio

    from clustertop.commands.ending import orderly
    from clustertop.sources.profile import ProfileError, load, profiles
    from clustertop.sources.secret import SecretError

    if args.profiles:
        wide = max(len(name) for name in profiles())
        for name, known in profiles().items():
            print(f"{name:{wide}}  {known.title}")
        return EXIT_OK
    if not args.host:
        return refuse("pdu-walk: name a HOST, or ask for --profiles")
    try:
        profile = load(args.profile) if args.profile else None
        agent = _agent(args)
    except (ProfileError, SecretError, ValueError) as error:
        return refuse(f"pdu-walk: {error}")
    try:
        return asyncio.run(orderly(_main(agent, profile, args)))
    except KeyboardInterrupt:
        return 130


def _agent(args: argparse.Namespace) -> Agent:
    """The agent that the arguments name. Raises SecretError, ValueError."""
    import os

    from clustertop.sources.secret import Secret
    from clustertop.sources.snmp import Agent
    from clustertop.sources.snmp_message import Community, Key, User

    def key(spec: str) -> Key:
        return Key(Secret.from_spec(spec).reveal())

    host, port = _host(args.host)
    version = args.snmp or ("3" if args.user else "2c")
    who: Community | User
    if version == "3":
        if not args.user:
            raise ValueError("SNMPv3 needs --user")
        who = User(
            args.user, key(args.auth_key) if args.auth_key else None,
            key(args.privacy_key) if args.privacy_key else None, args.auth_protocol.upper(),
            args.privacy_protocol.upper(), args.context)
    elif args.user:
        raise ValueError("--user is for SNMPv3")
    elif args.community:
        who = Community(key(args.community), 1 if version == "1" else 2)
    else:
        # Everybody's default is no secret.
        given = f"env:{COMMUNITY_VARIABLE}" if os.environ.get(COMMUNITY_VARIABLE) else ""
        who = Community(key(given) if given else Key("public"), 1 if version == "1" else 2)
    return Agent(host, who, port, max(0.1, args.timeout), args.retries)


def _host(text: str) -> tuple[str, int]:
    """``pdu-a1``, ``pdu-a1:1161``, ``fd00::1`` or ``[fd00::1]:1161``. Raises ValueError."""
    host, port = text, "161"
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text} is no HOST[:PORT]")
    return host, int(port)


async def _main(agent: Agent, profile: Profile | None, args: argparse.Namespace) -> int:
    from clustertop.sources.pdu import Pdu
    from clustertop.sources.snmp import SnmpError

    async with Pdu(agent, profile) as pdu:
        try:
            if args.rows:
                return await _print_rows(pdu)
            reading = await pdu.read()
        except SnmpError as error:
            return refuse(error)
        if args.json:
            _print_json(pdu, reading)
        else:
            _print(pdu, reading)
    return EXIT_WARNING if reading.problem else EXIT_OK


async def _print_rows(pdu: Pdu) -> int:
    """Everything that the device has, for whoever writes a profile. Raises SnmpError."""
    from clustertop.sources.profile import SYS_DESCR, SYS_NAME, SYS_OBJECT_ID

    rows = await pdu.client.get([SYS_OBJECT_ID, SYS_DESCR, SYS_NAME])
    walk = await pdu.client.walk((1, 3, 6, 1, 4, 1))
    print("\n".join(_snmprec(rows | walk.rows)))
    print("clustertop: some devices tell communities and passwords among their rows; look them through before you "
          "pass them on", file=sys.stderr)
    if walk.cut:
        print(f"clustertop: {walk.cut}", file=sys.stderr)
    return EXIT_OK if rows or walk.rows else EXIT_WARNING


def _identity(pdu: Pdu) -> dict[str, str]:
    from clustertop.sources.profile import SYS_DESCR, SYS_NAME, SYS_OBJECT_ID
    from clustertop.sources.raw import words

    names = {"sysObjectID": SYS_OBJECT_ID, "sysDescr": SYS_DESCR, "sysName": SYS_NAME}
    return {what: words(pdu.rows.get(name)) for what, name in names.items()}


def _print(pdu: Pdu, reading: PduReading) -> None:
    from clustertop.sources.oids import dotted

    identity = _identity(pdu)
    print(f"agent       {pdu.client.agent.name}, {pdu.client.requests} requests, {len(pdu.rows):,} rows")
    for what, text in identity.items():
        print(f"{what:12}{text or '-'}")
    print(f"profile     {reading.profile or 'none'}{f' ({reading.title})' if reading.title else ''}")
    said = {"model": reading.model, "serial": reading.serial, "firmware": reading.firmware, "name": reading.name}
    print("device      " + (", ".join(f"{what} {text}" for what, text in said.items() if text) or "-"))
    for note in reading.notes:
        print(f"note        {note}")
    if reading.problem:
        print(f"problem     {reading.problem}")
    rows = list(_lines(reading))
    if rows:
        heads = ("part", "quantity", "scaled", "raw", "scale", "OID")
        widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
        print()
        for row in (heads, *rows):
            print("  ".join(f"{text:{wide}}" for text, wide in zip(row, widths, strict=True)).rstrip())
    for part in _doubtful(reading):
        print(f"\ncheck the scales of {_head(part)}: {part.amps:g} A x {part.volts:g} V is not {part.watts:g} W")
    totals = [(unit, reading.total("watts", unit)) for unit in reading.units]
    for unit, watts in totals:
        if watts is not None:
            print(f"\ntotal{f' of {unit}' if unit else ''}: {watts:g} W")
    if not reading.profile and reading.numbers:
        print("\nraw numbers, unscaled:")
        for name, number in list(reading.numbers.items())[:MAX_UNSCALED]:
            print(f"  {dotted(name)} = {number}")
        if len(reading.numbers) > MAX_UNSCALED:
            print(f"  and {len(reading.numbers) - MAX_UNSCALED:,} more: see --rows")


def _lines(reading: PduReading) -> Iterator[tuple[str, ...]]:
    from clustertop.sources.oids import dotted
    from clustertop.sources.pdu_reading import NOT_MEASURED, UNITS, where
    from clustertop.sources.profile import LIMITS, QUANTITIES
    from clustertop.sources.raw import shown

    for part in reading.parts:
        head = _head(part)
        for quantity in QUANTITIES:
            source = part.raw.get(quantity)
            if source is not None:
                value = f"{getattr(part, quantity):g} {UNITS[quantity]}".strip()
                yield head, quantity, value, shown(source.value), f"{source.scale:g}", where(source)
            elif part.unknown.get(quantity, NOT_MEASURED) != NOT_MEASURED:
                yield head, quantity, f"unknown: {part.unknown[quantity]}", "", "", ""
            else:
                continue
            head = ""
        for limit in LIMITS:
            source = part.raw.get(limit)
            if source is not None:
                value = f"{getattr(part, limit):g} {'W' if limit.endswith('watts') else 'A'}"
                yield head, _LIMITS[limit], value, shown(source.value), f"{source.scale:g}", where(source)
                head = ""
        if part.state_oid:
            yield head, "state", f"{part.state} ({part.level})", "", "", dotted(part.state_oid)
            head = ""
        if head:
            yield head, "-", "nothing measured", "", "", ""


def _doubtful(reading: PduReading) -> list[PartReading]:
    """Parts whose amps, volts and watts cannot all be right."""
    import math

    from clustertop.signals.power import scales_disagree

    parts = reading.of("phase", "delta", "bank", "branch", "outlet")
    columns = [[math.nan if value is None else value for value in (getattr(part, name) for part in parts)]
               for name in ("amps", "volts", "watts")]
    return [part for part, doubt in zip(parts, scales_disagree(*columns).tolist(), strict=True) if doubt]


def _head(part: PartReading) -> str:
    kind = "" if part.name.startswith(part.kind) else f"{part.kind} "
    unit = f"{part.unit}: " if part.unit else ""
    return f"{unit}{kind}{part.name}" + (f" ({part.label})" if part.label and part.label != part.name else "")


def _print_json(pdu: Pdu, reading: PduReading) -> None:
    import json

    from clustertop.sources.oids import dotted
    from clustertop.sources.pdu_reading import UNITS, where
    from clustertop.sources.profile import LIMITS, QUANTITIES
    from clustertop.sources.raw import shown

    def quantity(part: PartReading, name: str, unit: str) -> dict[str, object]:
        source = part.raw.get(name)
        if source is None:
            return {"value": None, "unit": unit, "unknown": part.unknown.get(name, "not provided")}
        return {"value": getattr(part, name), "unit": unit, "raw": shown(source.value), "scale": source.scale,
                "oid": where(source)}

    print(json.dumps({
        "agent": pdu.client.agent.name,
        "recognised_by": _identity(pdu),
        "profile": reading.profile or None,
        "title": reading.title,
        "device": {"model": reading.model, "serial": reading.serial, "firmware": reading.firmware,
                   "name": reading.name},
        "problem": reading.problem or None,
        "notes": list(reading.notes),
        "check_scales": [_head(part) for part in _doubtful(reading)],
        "parts": [{
            "kind": part.kind, "name": part.name, "unit": part.unit or None, "label": part.label or None,
            "state": part.state or None, "level": part.level,
            "readings": {name: quantity(part, name, UNITS[name]) for name in QUANTITIES},
            "limits": {name: quantity(part, name, "W" if name.endswith("watts") else "A")
                       for name in LIMITS if name in part.raw},
        } for part in reading.parts],
        "unscaled": {dotted(name): number for name, number in reading.numbers.items()},
    }, indent=1))


def _snmprec(rows: Mapping[Oid, Value]) -> Iterator[str]:
    """*rows* in the format that snmpsim serves. Widths of integers are not known any more."""
    from clustertop.sources.oids import dotted

    for name in sorted(rows):
        value = rows[name]
        if isinstance(value, bool | float):
            tag, text = "4", str(value)
        elif isinstance(value, int):
            tag, text = ("2" if value < 2**31 else "66" if value < 2**32 else "70"), str(value)
        elif isinstance(value, str):
            tag, text = "6", value
        elif value.isascii() and value.decode("ascii").isprintable() and value == value.strip():
            tag, text = "4", value.decode("ascii")
        else:
            tag, text = "4x", value.hex()
        yield f"{dotted(name)}|{tag}|{text}"

