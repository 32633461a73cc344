"""Racks from a table: CSV with a header row, or NetBox's devices as JSON (API or dump). Text to facts, pure.

NetBox's devices need not be racked, and a rack's name is unique within its site only: where two sites share one, the
site is written before it.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from clustertop.sources.facts import Fact, Kind, Reading, SourceError, name

_COLUMNS: dict[str, tuple[str, ...]] = {
    "node": ("node", "name", "host", "hostname", "device", "server", "device name", "node name"),
    "rack": ("rack", "rack name", "cabinet"),
    "leaf": ("leaf", "switch", "leaf switch", "tor", "leaves"),
    "rail": ("rail",),
    "pod": ("pod", "row", "su", "scalable unit", "location"),
    "site": ("site", "site name"),
    "port": ("port", "interface", "nic"),
}
_EMPTY = frozenset({"", "-", "—", "–", "none", "null", "n/a"})
_KINDS: tuple[Kind, ...] = ("rack", "leaf", "rail", "pod")


def read_csv(text: str, where: str = "") -> Reading:
    """Return what a CSV says; commas, semicolons and tabs separate, the header names the columns.

    A node in several rows (one a port, say) is one node. A cell of nodes may be a list: ``gpu[001-016]``.

    Raises:
        SourceError: it has no header that names nodes and one thing about them.
    """
    reading = Reading("csv", where=where)
    text = text.removeprefix("\ufeff")
    if not text.strip():
        return reading
    head = next(line for line in text.splitlines() if line.strip())
    delimiter = max(",;\t", key=head.count)
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True))
    except csv.Error as error:
        raise SourceError(f"is not CSV: {error}") from None
    first = next((number for number, row in enumerate(rows) if any(cell.strip() for cell in row)), None)
    header = [] if first is None else [cell.strip().lower().replace("_", " ") for cell in rows[first]]
    columns = {
        kind: next((header.index(word) for word in words if word in header), None) for kind, words in _COLUMNS.items()
    }
    if first is None or columns["node"] is None or all(columns[kind] is None for kind in _KINDS):
        raise SourceError("has no header row with the columns node and rack (or leaf, rail, pod)")
    entries: list[tuple[int, dict[str, str]]] = []
    for number, row in enumerate(rows[first + 1 :], first + 2):
        cells = {
            kind: name(row[at]) if at is not None and at < len(row) else "" for kind, at in columns.items()
        }
        if cells["node"] and not cells["node"].startswith("#"):
            entries.append((number, {kind: "" if cell.lower() in _EMPTY else cell for kind, cell in cells.items()}))
    _facts(reading, entries)
    return reading


def read_netbox(text: str, where: str = "") -> Reading:
    """Return what NetBox's JSON says: a page of its API, a list of devices, or a dump of its tables.

    Raises:
        SourceError: it is not JSON, or holds no devices.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise SourceError("is not JSON") from None
    if isinstance(data, dict):
        data = data.get("results", data.get("devices"))
    if not isinstance(data, list):
        raise SourceError("holds no list of devices; export /api/dcim/devices/")
    rows = [row for row in data if isinstance(row, dict)]
    if any("model" in row and isinstance(row.get("fields"), dict) for row in rows):
        rows = _dump(rows)
    reading = Reading("netbox", where=where)
    entries = []
    for row in rows:
        entry = {kind: _named(row.get(kind)) for kind in ("rack", "site")}
        node = _named(row.get("name")) or _named(row.get("display"))
        if node:
            entries.append((0, {**dict.fromkeys(("leaf", "rail", "pod", "port"), ""), **entry, "node": node}))
    if rows and not entries:
        raise SourceError("holds no device with a name")
    _facts(reading, entries, listed=False)
    return reading


def _named(value: object) -> str:
    """A name, or that of the object that stands for it: the API nests, a list of ours may not."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("name", "display", "slug") if isinstance(value.get(key), str)), "")
    return name(value)


def _dump(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The devices of a dump, with racks and sites by name instead of number."""
    tables: dict[str, dict[Any, str]] = {}
    for row in rows:
        fields = row.get("fields")
        if isinstance(fields, dict) and isinstance(row.get("pk"), int | str):
            tables.setdefault(str(row.get("model")).lower(), {})[row["pk"]] = name(fields.get("name"))
    racks, sites = tables.get("dcim.rack", {}), tables.get("dcim.site", {})
    found = []
    for row in rows:
        if str(row.get("model")).lower() == "dcim.device" and isinstance(fields := row.get("fields"), dict):
            rack, site = fields.get("rack"), fields.get("site")
            found.append({
                "name": fields.get("name"),
                "rack": racks.get(rack, f"rack {rack}") if isinstance(rack, int | str) else None,
                "site": sites.get(site, f"site {site}") if isinstance(site, int | str) else None,
            })
    return found


def _facts(reading: Reading, entries: list[tuple[int, dict[str, str]]], *, listed: bool = True) -> None:
    sites: dict[str, set[str]] = {}
    for _, cells in entries:
        if cells["rack"]:
            sites.setdefault(cells["rack"], set()).add(cells["site"])
    for line, cells in entries:
        shared = len(sites.get(cells["rack"], ())) > 1 and cells["site"]
        values = {**cells, "rack": f"{cells['site']}/{cells['rack']}" if shared else cells["rack"]}
        for node in reading.nodes(cells["node"], line) if listed else [cells["node"]]:
            for kind in _KINDS:
                many = values[kind].replace(";", " ").replace(",", " ").split() if kind == "leaf" else [values[kind]]
                for place, value in enumerate(many, 1):
                    port = cells["port"] if kind in ("leaf", "rail") else ""
                    if value:  # leaves in one cell are a port each, in their order
                        reading.add(Fact(node, kind, value, line, port or (f"leaf {place}" if len(many) > 1 else "")))
