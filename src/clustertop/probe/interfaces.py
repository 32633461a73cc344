"""Which network interfaces are read: those with a PCI function behind them, and not too many of the others."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from .files import Tree
    from .frames import Attr, Row

CLASS = "sys/class/net"
MAX_VIRTUAL = 64
"""Most interfaces without a PCI function that are read: a node full of containers has hundreds."""
_CONTAINER = ("veth", "cali", "lxc")


def names(tree: "Tree") -> "List[str]":
    """Return the names of the interfaces there are, but for the host's ends of containers.

    Raises:
        OSError: they cannot be listed.
    """
    return [name for name in tree.names(CLASS) if not name.startswith("veth")]


def listed(tree: "Tree", found: "List[str]") -> "List[Tuple[str, Row]]":
    """Return name and row of each of *found* that is to be read."""
    rows: "List[Tuple[str, Row]]" = []
    virtual = 0
    for name in found:
        base = CLASS + "/" + name
        if not tree.is_dir(base):
            continue
        pci = tree.behind(base + "/device")
        if not pci:
            virtual += 1
            if name.startswith(_CONTAINER) or virtual > MAX_VIRTUAL:
                continue
        attrs: "Dict[str, Attr]" = {"name": name, "phys": bool(pci)}
        driver = tree.base(base + "/device/driver")
        if pci:
            attrs["pci"] = pci
            parent = tree.base(base + "/device/physfn")
            if parent:
                attrs["physfn"] = parent.lower()
        if driver:
            attrs["driver"] = driver
        rows.append((name, (pci + "/" + name if pci else name, attrs)))
    return rows
