"""Set up and run clustertop from a checkout, with nothing but Python 3.11 or newer.

    python3 dev.py demo [OPTIONS]    the demo cluster with the console on it
    python3 dev.py test [OPTIONS]    the tests
    python3 dev.py check             lint, types, layer contracts, then the tests
    python3 dev.py lint|types|contracts|picture|bench
    python3 dev.py gpu-check         the probe against nvidia-smi, on a machine with a real GPU
    python3 dev.py run [ARGUMENTS]   clustertop itself, for example: run gpu[001-008]

Everything is installed into .venv beside this file, so it works where the system's Python is externally managed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("CLUSTERTOP_VENV") or ROOT / ".venv")
BIN = VENV / "bin"
CODE = ("src", "tests", "bench", "docs", "dev.py")


def requirements(groups: tuple[str, ...]) -> list[str]:
    """The requirements of the dependency groups in pyproject.toml, nested groups unfolded."""
    import tomllib

    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    out: list[str] = []
    for group in groups:
        for entry in table[group]:
            out += requirements((entry["include-group"],)) if isinstance(entry, dict) else [entry]
    return out


def install(groups: tuple[str, ...]) -> None:
    """Make .venv hold this checkout and *groups*; does nothing when it already does."""
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + " ".join(groups).encode()).hexdigest()
    stamp = VENV / f".stamp-{'-'.join(groups) or 'run'}"
    if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        return
    print(f"setting up {VENV} ...", file=sys.stderr, flush=True)
    if not (BIN / "python").exists():
        try:
            venv.create(VENV, with_pip=True)
        except subprocess.CalledProcessError:
            shutil.rmtree(VENV, ignore_errors=True)
            sys.exit("dev.py: this Python cannot make virtual environments; on Debian and Ubuntu install python3-venv")
    command = [BIN / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ROOT]
    if subprocess.run([*command, *requirements(groups)], check=False).returncode:
        sys.exit("dev.py: pip could not install what clustertop needs; its message is above")
    stamp.write_text(wanted, encoding="ascii")


def call(*command: object) -> int:
    """Run a tool of .venv in the checkout; returns its exit status."""
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    return subprocess.run([str(part) for part in command], cwd=ROOT, env=env, check=False).returncode


def main(arguments: list[str]) -> int:
    """Do what the first argument names."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(__doc__)
        return 0
    what, *rest = arguments
    tools = {
        "lint": [BIN / "ruff", "check", *CODE],
        "types": [BIN / "mypy"],
        "contracts": [BIN / "lint-imports"],
        "test": [BIN / "python", "-m", "pytest", "-n", "2", "--dist", "loadgroup", *rest],
    }
    if what in {"demo", "run"}:
        install(())
        program = str(BIN / "clustertop")
        os.execv(program, [program, *(["demo"] if what == "demo" else []), *rest])
    if what == "test":
        install(("test",))
        return call(*tools["test"])
    if what in {"lint", "types", "contracts"}:
        install(("dev",))
        return call(*tools[what])
    if what == "check":
        install(("dev",))
        return max(call(*command) for command in tools.values())
    if what in {"picture", "bench"}:
        install(("dev",))
        script = ["docs/make_picture.py"] if what == "picture" else ["bench/fleet.py", *(rest or ["64"])]
        return call(BIN / "python", *script)
    if what == "gpu-check":
        install(())
        return call(BIN / "python", "bench/gpu_check.py", *rest)
    print(f"dev.py: no such command: {what}\n{__doc__}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    if sys.version_info < (3, 11):
        found = next((name for minor in range(19, 10, -1) if shutil.which(name := f"python3.{minor}")), None)
        if found is None:
            sys.exit(f"dev.py: clustertop needs Python 3.11 or newer; this is {sysconfig.get_python_version()}")
        os.execvp(found, [found, *sys.argv])
    sys.exit(main(sys.argv[1:]))
