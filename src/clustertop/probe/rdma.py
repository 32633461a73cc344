"""Group ``rdma``: the ports of /sys/class/infiniband with every counter that their drivers show."""

from .files import Reading, reason
from .frames import MAX_ROWS, Err, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from .files import Tree
    from .frames import Attr, Cell, Row

RELIST_SECONDS = 30.0
_CLASS = "sys/class/infiniband"
_NET = "sys/class/net"
_TEXTS = ("state", "phys_state", "rate")
_FAMILIES = (("c:", "counters"), ("x:", "counters_ext"), ("h:", "hw_counters"))
_DEVICE_FILES = (("hca", "hca_type"), ("fw", "fw_ver"), ("board", "board_id"), ("guid", "node_guid"))
_SELDOM = (
    "unicast_", "multicast_", "VL15_dropped", "port_rcv_switch_relay_errors", "lifespan", "rx_dct_connect", "req_",
    "resp_", "res_", "duplicate_request", "rx_read_req", "rx_write_req", "rx_atomic_req", "active_", "watermark_",
)  # fmt: skip
"""Counters that begin so are no news by the second: read every tenth second. Every other one is read each time."""
SELDOM_SECONDS = 10.0
_GONE = ("ENOENT", "ENODEV", "ENXIO")


class Port(object):
    """One port as last listed: its row, and the file of each column."""

    __slots__ = ("files", "row")

    def __init__(self, row: "Row", files: "Dict[str, str]") -> None:
        self.row = row
        self.files = files


class Rdma(object):
    """Reads table ``port``."""

    def __init__(self, tree: "Tree") -> None:
        self._tree = tree
        self._names: "List[str]" = []
        self._listed = -RELIST_SECONDS
        self._ports: "Dict[str, List[Port]]" = {}
        self._rows: "List[Row]" = []
        self._columns: "List[str]" = []
        self._files: "List[Optional[str]]" = []
        self._error = ""
        self._last: "List[Cell]" = []
        self._often: "List[int]" = []
        self._whole = -SELDOM_SECONDS

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        tree = self._tree
        error = ""
        try:
            names = tree.names(_CLASS)
        except OSError as failed:
            if reason(failed) == "ENOENT" and not self._rows:
                return Reading({}, "off")
            error = "{}: {}".format(reason(failed), tree.path(_CLASS))
        else:
            # A device whose listing failed is listed again every tick until it answers.
            if names != self._names or self._error or now - self._listed >= RELIST_SECONDS:
                self._names = names
                self._listed = now
                self._relist(names)
        files = self._files
        known = len(self._last) == len(files)
        cells: "List[Cell]" = list(self._last) if known else [None] * len(files)
        whole = not known or now - self._whole >= SELDOM_SECONDS - 0.5
        if whole:
            self._whole = now
        worse = tree.hots(files, range(len(files)) if whole else self._often, cells)
        if known and worse and self._vanished(cells):
            self._listed = -RELIST_SECONDS
        self._last = cells
        return Reading({"port": Table(self._rows, self._columns, cells, error or self._error)})

    def close(self) -> None:
        """Close the files kept open."""
        self._tree.forget()

    def _vanished(self, cells: "List[Cell]") -> bool:
        """True where a file that had a value has gone: the listing is out of date."""
        return any(
            isinstance(cell, Err) and cell.reason in _GONE and not isinstance(before, Err)
            for cell, before in zip(cells, self._last)  # noqa: B905 - not in Python 3.6
        )

    def _relist(self, names: "List[str]") -> None:
        tree = self._tree
        self._error = ""
        listed: "Dict[str, List[Port]]" = {}
        for device in names:
            try:
                listed[device] = self._device(device)
            except OSError as error:
                # A passing error is no disappearance: what was known of the device stays.
                where = error.filename or tree.path(_CLASS + "/" + device)
                self._error = "{}: {}".format(reason(error), where)
                listed[device] = self._ports.get(device, [])
        self._ports = listed
        ports = [port for device in names for port in listed[device]][:MAX_ROWS]
        rows: "List[Row]" = []
        seen = set()
        for port in ports:
            key, attrs = port.row
            if key in seen:
                key = "{}/{}".format(attrs["dev"], attrs["port"])
            seen.add(key)
            rows.append((key, attrs))
        columns = list(_TEXTS) + sorted({name for port in ports for name in port.files} - set(_TEXTS))
        files = [port.files.get(column) for column in columns for port in ports]
        if rows != self._rows:
            self._rows = rows
        if columns != self._columns:
            self._columns = columns
        if files != self._files:
            self._files = files
            self._last = []
            self._often = [
                place
                for place, name in enumerate(files)
                if name is not None and not name.rpartition("/")[2].startswith(_SELDOM)
            ]
            tree.keep_only([name for name in files if name])

    def _device(self, device: str) -> "List[Port]":
        tree = self._tree
        base = _CLASS + "/" + device
        shared: "Dict[str, Attr]" = {"dev": device}
        pci = tree.pci(base + "/device")
        physfn = tree.pci(base + "/device/physfn") if tree.base(base + "/device/physfn") else ""
        for attr, text in (("pci", pci), ("physfn", physfn), ("driver", tree.base(base + "/device/driver"))):
            if text:
                shared[attr] = text
        for attr, name in _DEVICE_FILES:
            text = tree.text(base + "/" + name)
            if text:
                shared[attr] = text
        ports = []
        for number in tree.names(base + "/ports"):
            directory = base + "/ports/" + number
            attrs = dict(shared, port=int(number) if number.isdigit() else number)
            netdev = self._netdev(base, number)
            for attr, text in (("link_layer", tree.text(directory + "/link_layer")), ("netdev", netdev)):
                if text:
                    attrs[attr] = text
            attrs.update(self._bond(netdev))
            files = {name: directory + "/" + name for name in _TEXTS}
            for mark, family in _FAMILIES:
                try:
                    listed = tree.names(directory + "/" + family)
                except OSError as error:
                    if reason(error) not in _GONE:
                        raise
                    continue
                files.update((mark + name, directory + "/" + family + "/" + name) for name in listed)
            ports.append(Port(("{}/{}".format(pci or device, number), attrs), files))
        return ports

    def _bond(self, netdev: str) -> "Dict[str, Attr]":
        """Return the bond that a port's interface is or is part of, and the members that the port stands for.

        A bonded device is one that carries several interfaces; a member with an RDMA device of its own is that one's.
        """
        tree = self._tree
        # A GID names its interface in a text of its own: whatever stands there is a name below sys/class/net, or none.
        if not netdev or "/" in netdev:
            return {}
        bond = netdev if tree.is_dir(_NET + "/" + netdev + "/bonding") else tree.base(_NET + "/" + netdev + "/master")
        if not bond or not tree.is_dir(_NET + "/" + bond + "/bonding"):
            return {}
        members = tree.text(_NET + "/" + bond + "/bonding/slaves").split()
        mine = [
            name for name in members
            if name == netdev or not tree.is_dir(_NET + "/" + name + "/device/infiniband")
        ]  # fmt: skip
        if netdev == bond:
            mine = members
        return {"bond": bond, "netdevs": sorted(mine)}

    def _netdev(self, base: str, number: str) -> str:
        """Return the network interface of a port: the one whose ``dev_port`` it is, else its first GID's."""
        tree = self._tree
        try:
            names = tree.names(base + "/device/net")
        except OSError:
            names = []
        if len(names) > 1 and number.isdigit():
            names = [
                name
                for name in names
                if tree.text("{}/device/net/{}/dev_port".format(base, name)) == str(int(number) - 1)
            ]
        if len(names) == 1:
            return names[0]
        return tree.text("{}/ports/{}/gid_attrs/ndevs/0".format(base, number))
