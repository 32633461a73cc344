"""The topology that the configuration names: its files read, merged with the inventory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from clustertop.sources.facts import SourceError
from clustertop.topology import merge, placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clustertop.config import Loaded
    from clustertop.inventory import Inventory
    from clustertop.sources.facts import Reading
    from clustertop.topology import Topology

MAX_BYTES = 64 << 20
"""Largest file read."""
MAX_FILES = 10_000
"""Most files of one folder."""


def find(inventory: Inventory, loaded: Loaded) -> Topology:
    """Return the map of the inventory's nodes; of all nodes that the files name where it is this machine only.

    Raises:
        ConfigError: a file cannot be read, or is not what its key says.
    """
    config = loaded.config.topology
    return merge(
        () if inventory.local else inventory.nodes,
        read(loaded),
        guess_racks=config.guess_racks,
        ignored_ports=config.ignored_ports,
    )


def fill(inventory: Inventory, loaded: Loaded) -> Inventory:
    """Return *inventory* with the racks and leaves that the files say, and notes of what they do not settle.

    Raises:
        ConfigError: as :func:`find`.
    """
    if inventory.local or not _named(loaded):
        return inventory
    topology = find(inventory, loaded)
    notes = list(inventory.notes)
    if count := len(topology.contradictions):
        notes.append(f"topology: sources differ about {count:,} places; `clustertop topology` lists them")
    if count := topology.refused:
        notes.append(f"topology: {count:,} entries could not be used; `clustertop topology` lists them")
    if count := len(topology.without("rack")):
        notes.append(f"topology: {count:,} nodes have no rack; `clustertop topology` lists them")
    return dataclasses.replace(inventory, nodes=placed(inventory.nodes, topology), notes=tuple(notes))


def read(loaded: Loaded) -> list[Reading]:
    """Return what every named file says.

    Raises:
        ConfigError: as :func:`find`.
    """
    config = loaded.config.topology
    guids: dict[int, str] = {}
    if config.ib_guids:
        from clustertop.sources.topology_ib import read_guids

        for _, text in _texts(loaded, "ib_guids", config.ib_guids):
            guids.update(read_guids(text))
    readings: list[Reading] = []
    for key, reader in _readers(config.slurm_topology, guids).items():
        for path, text in _texts(loaded, key, getattr(config, key)):
            try:
                readings.append(reader(text, str(path)))
            except SourceError as error:
                raise loaded.error(f"topology.{key}", f"names {path}, which {error}") from None
    return readings


def _named(loaded: Loaded) -> bool:
    config = loaded.config.topology
    return bool(config.slurm or config.csv or config.groups or config.lldp or config.ibnetdiscover)


def _readers(slurm_topology: str, guids: dict[int, str]) -> dict[str, Callable[[str, str], Reading]]:
    return {
        "csv": _csv,
        "groups": _groups,
        "slurm": lambda text, where: _slurm(text, where, slurm_topology),
        "lldp": _lldp,
        "ibnetdiscover": lambda text, where: _ib(text, where, guids),
    }


def _csv(text: str, where: str) -> Reading:
    from clustertop.sources import topology_csv

    return topology_csv.read_netbox(text, where) if _json(text) else topology_csv.read_csv(text, where)


def _groups(text: str, where: str) -> Reading:
    from clustertop.sources import topology_groups

    yaml = where.endswith((".yaml", ".yml"))
    return topology_groups.read_yaml(text, where) if yaml else topology_groups.read_lines(text, where)


def _slurm(text: str, where: str, topology: str) -> Reading:
    from clustertop.sources import topology_slurm

    if where.endswith((".yaml", ".yml")) or text.lstrip().startswith(("---", "- ")):
        return topology_slurm.read_yaml(text, where, topology)
    return topology_slurm.read_text(text, where)


def _lldp(text: str, where: str) -> Reading:
    from clustertop.sources import topology_lldp_json, topology_lldp_snmp, topology_lldp_text

    if _json(text):
        return topology_lldp_json.read(text, where)
    start = text.lstrip().partition("\n")[0]
    if start.startswith((".1.", "1.", "iso.")) and (" = " in start or "|" in start):
        return topology_lldp_snmp.read(text, where)
    return topology_lldp_text.read(text, where)


def _ib(text: str, where: str, guids: dict[int, str]) -> Reading:
    from clustertop.sources import topology_ib

    return topology_ib.read(text, where, guids)


def _json(text: str) -> bool:
    return text.lstrip("\ufeff \t\r\n").startswith(("{", "["))


def _texts(loaded: Loaded, key: str, named: str) -> Iterator[tuple[Path, str]]:
    """The files behind a setting, in the order of their names, with their text."""
    if not named:
        return
    path = loaded.beside(named)
    try:
        files = [path]
        if path.is_dir():
            files = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
        if len(files) > MAX_FILES:
            raise loaded.error(f"topology.{key}", f"names {path}, which has more than {MAX_FILES:,} files")
        for file in files:
            with file.open("rb") as stream:
                raw = stream.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise loaded.error(f"topology.{key}", f"names {file}, which is larger than {MAX_BYTES >> 20} MB")
            yield file, raw.decode("utf-8-sig", errors="replace")
    except OSError as error:
        message = f"names {error.filename or path}, which cannot be read: {error.strerror}"
        raise loaded.error(f"topology.{key}", message) from None
