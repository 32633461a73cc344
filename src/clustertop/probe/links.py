"""What interfaces belong to and their addresses: by netlink with pyroute2's messages, else from /sys and /proc.

The messages come as a second bundle, once the first frame is out, to nodes whose Python can read them. The socket is
our own: it asks for dumps (RTM_GETLINK, RTM_GETADDR) and listens for changes, nothing else.

Sources: rtnetlink(7); netlink(7); Documentation/ABI/testing/sysfs-class-net; netdevice(7) for SIOCGIFCONF.
"""

import array
import base64
import errno
import fcntl
import json
import linecache
import os
import socket
import struct
import sys
import zlib

from . import interfaces
from .files import reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple

    from .files import Call, Tree
    from .frames import Attr

    Found = Dict[str, Dict[str, Attr]]

NETLINK = "netlink (pyroute2)"
NOT_SENT = "pyroute2 was not sent"
MAX_ADDRESSES = 64
"""Most addresses told of one interface; the number of the others is told."""
_TIMEOUT_SECONDS = 3.0
_RTM_GETLINK, _RTM_GETADDR = 18, 22
_GROUPS = 0x1 | 0x10 | 0x100
"""RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR."""
_DUMP = 0x301
"""NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH."""
_DUMP_INTERRUPTED = 0x10
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=LHHLL")
_LINKS = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + struct.pack("=HHI", 8, 29, 1 << 3)
"""struct ifinfomsg, and IFLA_EXT_MASK with RTEXT_FILTER_SKIP_STATS: counters are read elsewhere."""
_ADDRESSES = struct.pack("=BBBBI", 0, 0, 0, 0, 0)
_SCOPE_HOST = 254
_SIOCGIFCONF, _SIOCGIFNETMASK = 0x8912, 0x891B
_IFREQ = 40 if struct.calcsize("P") == 8 else 32


class Links(object):
    """Finds out about interfaces; ``source`` says how."""

    def __init__(self, tree: "Tree", call: "Call") -> None:
        self._tree = tree
        self._call = call
        self._here = tree.root == ""
        """False where another root is read: what the kernel would say is about this machine, not about that one."""
        self._messages: "Any" = None
        self._heard: "Optional[socket.socket]" = None
        self.why = NOT_SENT

    @property
    def source(self) -> str:
        """``netlink (pyroute2)``, or ``sysfs`` and why."""
        return NETLINK if self._messages is not None else "sysfs ({})".format(self.why)

    def load(self, data: str) -> None:
        """Take the second bundle: base64 of compressed JSON, ``[[module, source], ...]``."""
        if not self._here:
            self.why = "another root is read"
            return
        self._call.what = "import of pyroute2"
        try:
            sources = json.loads(zlib.decompress(base64.b64decode(data)).decode("utf-8"))
            self._messages = _Messages({str(name): str(text) for name, text in sources})
        except Exception as error:  # whatever it is, the files of /sys are still there
            self.why = "pyroute2: {}: {}".format(type(error).__name__, error)[:200]

    def close(self) -> None:
        """Close the socket that listens."""
        if self._heard is not None:
            self._heard.close()
            self._heard = None

    def changed(self) -> bool:
        """True where the kernel has told of a change since the last call; always False without netlink."""
        heard = self._heard
        if heard is None:
            return False
        some = False
        for _ in range(1000):
            try:
                if not heard.recv(64):
                    break
                some = True
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # more than it had room for
                    return True
                break
        return some

    def read(self, names: "List[str]") -> "Found":
        """Return the attributes of each of *names* that are known.

        Raises:
            OSError: they cannot be listed.
        """
        if self._messages is not None:
            try:
                self._listen()
                found = self._by_netlink()
                return {name: found[name] for name in names if name in found}
            except Exception as error:  # a kernel that says something new must not cost what /sys says
                words = reason(error) if isinstance(error, OSError) else "{}: {}".format(type(error).__name__, error)
                self._messages = None
                self.why = "netlink: {}".format(words)[:200]
                self.close()
        return self._by_files(names)

    # -- netlink -------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._heard is None:
            self._heard = _netlink()
            self._heard.bind((0, _GROUPS))
            self._heard.setblocking(False)

    def _by_netlink(self) -> "Found":
        links = self._messages.links(self._dump(_RTM_GETLINK, _LINKS))
        addresses = self._messages.addresses(self._dump(_RTM_GETADDR, _ADDRESSES))
        return told(links, addresses)

    def _dump(self, kind: int, body: bytes) -> "List[bytes]":
        """Return the messages of a dump; one that a change interrupted is asked for again."""
        with _netlink() as ours:
            ours.bind((0, 0))
            ours.settimeout(_TIMEOUT_SECONDS)
            self._call.what = "netlink dump {}".format(kind)
            for number in range(1, 4):
                ours.send(_HEADER.pack(_HEADER.size + len(body), kind, _DUMP, number, 0) + body)
                messages, whole = _answer(ours, number)
                if whole:
                    break
        return messages

    # -- files ---------------------------------------------------------------------------------------------------

    def _by_files(self, names: "Iterable[str]") -> "Found":
        tree = self._tree
        links: "Found" = {}
        for name in names:
            base = interfaces.CLASS + "/" + name
            link: "Dict[str, Attr]" = {"kind": self._kind(base), "master": tree.base(base + "/master")}
            if link["kind"] in ("vlan", "macvlan"):
                link["under"] = self._lower(base)
            links[name] = {key: value for key, value in link.items() if value}
        addresses: "Dict[str, List[str]]" = {name: [] for name in links}
        for name, address in self._ipv4() + self._ipv6():
            if name in addresses:
                addresses[name].append(address)
        return told(links, addresses)

    def _kind(self, base: str) -> str:
        for line in self._tree.text(base + "/uevent").split("\n"):
            if line.startswith("DEVTYPE="):
                return line[8:].strip()
        for directory, kind in (("bonding", "bond"), ("bridge", "bridge")):
            if self._tree.is_dir(base + "/" + directory):
                return kind
        return ""

    def _lower(self, base: str) -> str:
        try:
            return next((name[6:] for name in self._tree.names(base) if name.startswith("lower_")), "")
        except OSError:
            return ""

    def _ipv6(self) -> "List[Any]":
        found = []
        for line in self._tree.text("proc/net/if_inet6").split("\n"):
            words = line.split()
            # address, index, length of the prefix, scope (10: this machine), flags, name
            if len(words) == 6 and len(words[0]) == 32 and words[3] != "10":
                try:
                    text = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))
                    found.append((words[5], "{}/{}".format(text, int(words[2], 16))))
                except (ValueError, OSError):
                    continue
        return found

    def _ipv4(self) -> "List[Any]":
        if not self._here:
            return []
        room = array.array("B", bytes(1024 * _IFREQ))
        found = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
            self._call.what = "SIOCGIFCONF"
            asked = struct.pack("iP", len(room), room.buffer_info()[0])
            used = struct.unpack_from("i", fcntl.ioctl(ours.fileno(), _SIOCGIFCONF, asked))[0]
            for at in range(0, min(used, len(room)), _IFREQ):
                entry = room[at : at + _IFREQ].tobytes()
                address = socket.inet_ntoa(entry[20:24])
                if address.startswith("127."):
                    continue
                try:
                    mask = fcntl.ioctl(ours.fileno(), _SIOCGIFNETMASK, entry)[20:24]
                    bits = bin(struct.unpack(">I", mask)[0]).count("1")
                except OSError:
                    continue
                label = entry[:16].partition(b"\0")[0].decode("utf-8", "surrogateescape")
                found.append((label.partition(":")[0], "{}/{}".format(address, bits)))
        return found


class _Messages(object):
    """pyroute2's message classes, from sources in memory."""

    def __init__(self, sources: "Dict[str, str]") -> None:
        finder = next((one for one in sys.meta_path if type(one).__name__ == "Memory"), None)
        if finder is None:
            raise ImportError("not started by the loader")
        kept = finder.modules  # type: ignore[attr-defined]
        kept.update(sources)
        try:
            from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
            from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
        finally:
            # Their text is not needed any more.
            for name in sources:
                kept.pop(name, None)
                linecache.cache.pop("<bundle>/" + name + ".py", None)
        self._link, self._address = ifinfmsg, ifaddrmsg

    def links(self, messages: "List[bytes]") -> "Found":
        """Return kind, master and lower interface by name."""
        names: "Dict[Any, str]" = {}
        raw: "List[Tuple[int, Any, Any, Any, Any]]" = []
        for data in messages:
            message = self._link(data)
            message.decode()
            name = message.get_attr("IFLA_IFNAME")
            names[message["index"]] = name
            info = message.get_attr("IFLA_LINKINFO")
            kind = info.get_attr("IFLA_INFO_KIND") if info is not None else None
            within = message.get_attr("IFLA_LINK") if kind != "veth" else None
            vlan = info.get_attr("IFLA_INFO_DATA").get_attr("IFLA_VLAN_ID") if kind == "vlan" else None
            if message.get_attr("IFLA_LINK_NETNSID") is not None or within == message["index"]:
                within = None
            raw.append((message["index"], kind, message.get_attr("IFLA_MASTER"), within, vlan))
        self._names = names
        found: "Found" = {}
        for index, kind, master, within, vlan in raw:
            link = {"kind": kind, "master": names.get(master), "under": names.get(within), "vlan": vlan}
            found[names[index]] = {key: value for key, value in link.items() if value}
        return found

    def addresses(self, messages: "List[bytes]") -> "Dict[str, List[str]]":
        """Return the addresses by the names of :meth:`links`, without those that mean this machine only."""
        found: "Dict[str, List[str]]" = {}
        for data in messages:
            message = self._address(data)
            message.decode()
            if message["scope"] == _SCOPE_HOST:
                continue
            # Of a point-to-point interface IFA_ADDRESS is the other end.
            address = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            name = self._names.get(message["index"])
            if address and name:
                found.setdefault(name, []).append("{}/{}".format(address, message["prefixlen"]))
        return found


def told(links: "Found", addresses: "Dict[str, List[str]]") -> "Found":
    """Give *links* their members and addresses."""
    for name in sorted(links):
        master = links[name].get("master")
        if isinstance(master, str) and master in links:
            members = links[master].setdefault("members", [])
            if isinstance(members, list):
                members.append(name)
    for name, listed in addresses.items():
        if listed and name in links:
            links[name]["addresses"] = listed[:MAX_ADDRESSES]
            if len(listed) > MAX_ADDRESSES:
                links[name]["more_addresses"] = len(listed) - MAX_ADDRESSES
    return links


def _netlink() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)


def _answer(ours: socket.socket, number: int) -> "Tuple[List[bytes], bool]":
    """Return the messages that answer request *number*, and whether nothing changed meanwhile."""
    messages: "List[bytes]" = []
    whole = True
    while True:
        data, sender = ours.recvfrom(1 << 17)
        if sender[0] != 0 or not data:
            continue  # not from the kernel
        at = 0
        while at + _HEADER.size <= len(data):
            size, kind, flags, answers, _ = _HEADER.unpack_from(data, at)
            if size < _HEADER.size or at + size > len(data):
                raise ValueError("a message of {} bytes in {}".format(size, len(data) - at))
            if answers == number:
                whole = whole and not flags & _DUMP_INTERRUPTED
                if kind == _ERROR:
                    code = -struct.unpack_from("=i", data, at + _HEADER.size)[0]
                    raise OSError(code, os.strerror(code))
                if kind == _DONE:
                    return messages, whole
                messages.append(data[at : at + size])
            at += (size + 3) & ~3
