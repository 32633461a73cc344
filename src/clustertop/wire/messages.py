"""The second bundle: pyroute2's netlink messages, for nodes whose Python can read them.

The whole of pyroute2 costs a node 26 MB and 0.3 s of CPU (docs/adr/0008); its messages for links and addresses cost a
fraction of that. What they import of the rest is replaced by a few lines of our own.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import re
import zlib
from pathlib import Path

from clustertop.wire.bundle import cut, lean

LEAST_PYTHON = (3, 9)
"""What pyroute2 says that it needs."""

_CONFIG = """AF_BRIDGE = 7
data_plugins_pkgs = ()
data_plugins_path = ()
nla_via_getattr = False
"""
"""In place of ``pyroute2.config``, which loads multiprocessing and asks the platform for what nobody needs here."""
_PLACES = (
    "common", "netlink", "netlink.exceptions", "netlink.rtnl", "netlink.rtnl.ifaddrmsg", "netlink.rtnl.ifinfmsg",
    "netlink.rtnl.iw_event",
)
_PLUGINS = "netlink.rtnl.ifinfmsg.plugins"


def fits(python: str) -> bool:
    """Whether the Python that calls itself ``3.11.7`` can read the messages."""
    found = re.match(r"(\d+)\.(\d+)", python)
    return found is not None and (int(found.group(1)), int(found.group(2))) >= LEAST_PYTHON


@functools.cache
def request() -> dict[str, object] | None:
    """Return the request that carries the messages, built once a process; None where pyroute2 is not installed."""
    spec = importlib.util.find_spec("pyroute2")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    modules = [("pyroute2", ""), ("pyroute2.config", _CONFIG)]
    modules += [(f"pyroute2.{place}", _source(folder, place)) for place in _PLACES]
    plugins = folder.joinpath(*_PLUGINS.split("."))
    modules += [(f"pyroute2.{_PLUGINS}" + ("" if path.stem == "__init__" else f".{path.stem}"), path.read_text("utf-8"))
                for path in sorted(plugins.glob("*.py"))]
    used = re.findall(r"\w+", "\n".join(text for name, text in modules if name != "pyroute2.common"))
    modules = [(name, cut(text, used) if name == "pyroute2.common" else text) for name, text in modules]
    packed = zlib.compress(json.dumps([[name, lean(text)] for name, text in modules]).encode(), 9)
    return {"do": "messages", "data": base64.b64encode(packed).decode("ascii")}


def _source(folder: Path, place: str) -> str:
    path = folder.joinpath(*place.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")
