"""What is sent to a node to start the probe there: launcher, loader and bundle, as ``docs/wire.md`` says.

Nothing of it touches the node's disk. Between launcher and bundle the console waits for the ready line,
because a shell may read ahead on its stdin and would swallow what belongs to the loader.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import re
import secrets
import zlib
from importlib import resources
from typing import TYPE_CHECKING

from clustertop.signals.ethtool_catalogue import patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.resources.abc import Traversable

    from clustertop.wire.transport import PollSettings

COMMAND = "exec /bin/sh"
"""What the login shell has to understand: bash, dash, zsh, ksh, tcsh and fish agree on these two words."""
PACKAGE = "clustertop_probe"
"""The probe's name on the node."""

# It imports from memory with a real finder, so that packages, relative imports and tracebacks with source
# lines work as ever; the import system puts a module into sys.modules before it runs it, which pynvml relies
# on. No single quote may stand in it: it travels inside '...'.
_LOADER = r"""
import json, linecache, os, sys, zlib
from importlib.machinery import ModuleSpec
N = sys.argv[1]
def say(text):
    os.write(1, ("\n@@CT1 %s %s@@\n" % (N, text)).encode("ascii", "backslashreplace"))
def need(count):
    data = b""
    while len(data) < count:
        part = os.read(0, min(count - len(data), 1 << 16))
        if not part:
            sys.exit(0)
        data += part
    return data
class Memory(object):
    def __init__(self, modules):
        self.modules = dict((name, text) for name, text in modules)
    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        package = any(other.startswith(name + ".") for other in self.modules)
        spec = ModuleSpec(name, self, origin="<bundle>/" + name + ".py", is_package=package)
        return spec
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__spec__.name
        where = module.__spec__.origin
        text = self.modules[name]
        linecache.cache[where] = (len(text), None, text.splitlines(True), where)
        module.__file__ = where
        exec(compile(text, where, "exec", dont_inherit=True), module.__dict__)
say("ready " + sys.version.split()[0])
try:
    head = b""
    while not head.endswith(b"\n"):
        head += need(1)
    head = json.loads(head.decode("utf-8"))
    body = json.loads(zlib.decompress(need(head["z"])).decode("utf-8"))
    sys.meta_path.insert(0, Memory(body["modules"]))
    from clustertop_probe.loop import main
    main(head["args"])
except Exception as error:
    import traceback
    traceback.print_exc()
    text = "%s: %s" % (type(error).__name__, error)
    say("failed " + " ".join(text.replace("@@", "@").split())[:300])
    sys.exit(1)
"""

# -I: no PYTHON* variables and nothing from the working directory; -S: no site-packages, no .pth files;
# -B: no .pyc files are written. The marks are put together at run time so that a shell that echoes its input
# does not look like an answer.
_LAUNCHER = """{
n=%s
for p in %s; do
case $p in /*) [ -x "$p" ] || continue;; esac
if "$p" -ISB -c 'import sys; sys.exit(sys.version_info < (3, 6))' </dev/null >/dev/null 2>&1; then
exec "$p" -ISB -c '%s' "$n"
fi
done
printf '\\n@@CT1 %%s %%s@@\\n' "$n" nopython
}
"""

SELDOM_SECONDS = 10.0
"""Least time between two readings of the groups net and disk."""
CANDIDATES = (
    "python3",
    *(f"python3.{minor}" for minor in range(13, 5, -1)),
    "/usr/libexec/platform-python",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/*/bin/python3",
    "python",
)
"""Where a Python is looked for on a node, in this order. Shell words: a pattern is expanded there."""


def new_nonce() -> str:
    """Return 16 random hex digits, the mark of one connection."""
    return secrets.token_hex(8)


def launcher(nonce: str, candidates: Iterable[str] = CANDIDATES) -> bytes:
    """Return the POSIX shell script that finds a Python and becomes the loader.

    It is one compound command: the shell has read all of it before it runs any of it.
    """
    return (_LAUNCHER % (nonce, " ".join(candidates), _LOADER)).encode()


def probe_args(settings: PollSettings, nonce: str) -> dict[str, object]:
    """Return what the probe's ``loop.main`` is given: nonce, seconds per group, names to look for, other roots."""
    every = {
        "gpu": settings.interval_seconds,
        "rdma": settings.interval_seconds,
        "host": settings.interval_seconds,
        "pcie": settings.pcie_interval_seconds,
        "net": max(SELDOM_SECONDS, settings.interval_seconds),
        "disk": max(SELDOM_SECONDS, settings.interval_seconds),
    }
    args: dict[str, object] = {"nonce": nonce, "every": every, "statistics": patterns()}
    if settings.sockets_interval_seconds is None:
        args["without"] = ["sockets"]
    else:
        every["sockets"] = max(settings.sockets_interval_seconds, settings.interval_seconds)
    if settings.nccl_logs:
        args["nccl"] = {"logs": list(settings.nccl_logs)}
    if settings.bmc_tool:
        args["bmc"] = {"tool": settings.bmc_tool}
        every["bmc"] = max(settings.bmc_interval_seconds, settings.interval_seconds)
    if settings.nvml:
        args["nvml"] = settings.nvml
    if settings.root:
        args["root"] = settings.root
    return args


@functools.cache
def probe_body() -> bytes:
    """Return the compressed probe and pynvml, built once a process."""
    whole = list(_sources(resources.files("clustertop.probe"), PACKAGE))
    modules = [(name, lean(source)) for name, source in whole]
    pynvml = _pynvml_source()
    if pynvml is not None:
        used = re.findall(r"\bnvml\w+|\bNVML\w+", "\n".join(source for _, source in modules))
        modules.append(("pynvml", cut(pynvml, used)))
    return pack(modules)


def cut(source: str, used: Iterable[str]) -> str:
    """Return *source*, a module, without the functions and classes that neither *used* nor what is kept names.

    Reading and compiling the whole of pynvml is most of what a starting probe costs its node.
    """
    body = ast.parse(source).body
    defined = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    todo = [name for name in used if name in defined]
    todo += [name for node in body if node not in defined.values() for name in _names(node)]
    kept: set[str] = set()
    while todo:
        name = todo.pop()
        if name in defined and name not in kept:
            kept.add(name)
            todo += _names(defined[name])
    lines = source.splitlines(keepends=True)
    for name, node in defined.items():
        if name not in kept:
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            lines[first - 1 : node.end_lineno] = [""] * ((node.end_lineno or first) - first + 1)
    return "".join(lines)


def lean(source: str) -> str:
    """Return *source* without its docstrings and the lines that are comments; the others keep their numbers."""
    lines = source.splitlines(keepends=True)
    inside: set[int] = set()
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        # What stands on one line has nothing in it that takes several: most of a module need not be looked at.
        todo.extend(one for one in ast.iter_child_nodes(node)
                    if getattr(one, "lineno", 0) != getattr(one, "end_lineno", 1))
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            inside.update(range(node.lineno, node.end_lineno or node.lineno))
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for one in node.body:
            # Strings that are statements of their own: docstrings, and those below constants and attributes.
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                first, last = one.lineno, one.end_lineno or one.lineno
                indent, after = lines[first - 1][: one.col_offset], lines[last - 1][one.end_col_offset :]
                if not indent.strip() and not after.strip():
                    lines[first - 1 : last] = [f"{indent}0\n", *["\n"] * (last - first)]
    return "".join("\n" if line.lstrip().startswith("#") and number not in inside else line
                   for number, line in enumerate(lines))


def _names(node: ast.AST) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]


def pack(modules: Iterable[tuple[str, str]]) -> bytes:
    """Return *modules*, pairs of name and source, as they travel."""
    text = json.dumps({"modules": [[name, source] for name, source in modules]})
    return zlib.compress(text.encode(), 9)


def bundle(args: Mapping[str, object], body: bytes | None = None) -> bytes:
    """Return the header line with *args*, and the body (the probe's own if None)."""
    if body is None:
        body = probe_body()
    return json.dumps({"z": len(body), "args": args}).encode() + b"\n" + body


def request_line(request: Mapping[str, object]) -> bytes:
    """Return *request* as it travels."""
    return json.dumps(request).encode() + b"\n"


def _sources(folder: Traversable, name: str) -> Iterable[tuple[str, str]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            if item.joinpath("__init__.py").is_file():
                yield from _sources(item, f"{name}.{item.name}")
        elif item.name.endswith(".py"):
            stem = item.name[:-3]
            yield (name if stem == "__init__" else f"{name}.{stem}"), item.read_text("utf-8")


def _pynvml_source() -> str | None:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or not spec.origin:
        return None
    with open(spec.origin, encoding="utf-8") as file:  # noqa: PTH123 - a module's origin is a plain string
        return file.read()
