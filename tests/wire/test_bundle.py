"""Launcher, loader and bundle run under every shell and every Python from 3.6 on, and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from clustertop.model import LinkState
from clustertop.wire import bundle
from clustertop.wire.frame import decode
from clustertop.wire.local import LocalTransport
from clustertop.wire.transport import PollSettings
from fleets import STANDIN_BODY, Remember, pack_probe, until
from tools import need

SETTINGS = PollSettings(interval_seconds=0.1)


def pythons() -> list[str]:
    """Every Python from 3.6 on that can be found here, by path."""
    found = {sys.executable}
    for minor in range(6, 15):
        path = shutil.which(f"python3.{minor}")
        if path and "shims" not in path:
            found.add(path)
    found |= {str(path) for path in Path.home().glob(".pyenv/versions/3.*/bin/python")}
    return sorted(found)


async def run(
    shell: str | tuple[str, ...], *candidates: str, body: bytes | None = STANDIN_BODY
) -> tuple[bytes, bytes]:
    """Talk to a probe by hand through *shell*; return its stdout up to the first frame, and its stderr."""
    process = await asyncio.create_subprocess_exec(
        *((shell,) if isinstance(shell, str) else shell), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    nonce = bundle.new_nonce()
    process.stdin.write(bundle.launcher(nonce, candidates or (sys.executable,)))
    out = b""
    async with asyncio.timeout(60):
        while b"ready" not in out and b"nopython" not in out and (line := await process.stdout.readline()):
            out += line
        if b"ready" in out:
            process.stdin.write(bundle.bundle(bundle.probe_args(SETTINGS, nonce), body))
            while b"CT1@@" not in out and (line := await process.stdout.readline()):
                out += line
        process.stdin.close()
        rest, err = await process.communicate()
    return (out + rest).replace(nonce.encode(), b"NONCE"), err


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "ksh", "busybox"])
async def test_shells(shell: str) -> None:
    path = need(shell)
    out, err = await run((path, "sh") if shell == "busybox" else (path,))
    assert re.match(rb"\n@@CT1 NONCE ready 3\.\d+\.\d+\S*@@\n@@CT1 NONCE {", out)
    assert not err


@pytest.mark.parametrize("python", pythons())
async def test_python_versions(python: str) -> None:
    out, err = await run("/bin/sh", python)
    assert b" NONCE CT1@@\n" in out
    assert not err


async def test_no_python_here() -> None:
    out, err = await run("/bin/sh", "python9", "/nonexistent/*/bin/python3")
    assert out == b"\n@@CT1 NONCE nopython@@\n"
    assert not err


async def test_echoed_launcher_is_no_answer(tmp_path: Path) -> None:
    script = bundle.launcher("NONCE").decode()
    assert not re.search(r"@@CT1 NONCE", script)


async def test_traceback_names_module_and_source_line() -> None:
    body = pack_probe("def main(args):\n    return missing_name\n")
    out, err = await run("/bin/sh", body=body)
    assert b"@@CT1 NONCE failed NameError: name 'missing_name' is not defined@@" in out
    assert b"<bundle>/clustertop_probe.loop.py" in err
    assert b"return missing_name" in err


async def test_nothing_is_written_and_environment_is_not_listened_to(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a json.py of the working directory was imported')")
    (tmp_path / "clustertop_probe.py").write_text("raise SystemExit('not from the bundle')")
    before = sorted(os.listdir(tmp_path))
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(bundle.launcher("0" * 16, (sys.executable,)))
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"\n"
        assert b"ready" in await process.stdout.readline()
        process.stdin.write(bundle.bundle(bundle.probe_args(SETTINGS, "0" * 16), STANDIN_BODY))
        assert b'"q": 1' in await process.stdout.readline()
        process.stdin.close()
        await process.communicate()
    assert sorted(os.listdir(tmp_path)) == before


def test_the_bundle_carries_probe_and_pynvml_and_is_made_once() -> None:
    import zlib

    names = [name for name, _ in json.loads(zlib.decompress(bundle.probe_body()))["modules"]]
    assert bundle.PACKAGE in names
    assert "pynvml" in names
    assert len(bundle.probe_body()) < 150_000
    assert bundle.probe_body() is bundle.probe_body()


async def test_this_machine() -> None:
    got = Remember()
    transport = LocalTransport(SETTINGS, got, body=STANDIN_BODY)
    await transport.open()
    await until(lambda: len(got.payloads) >= 2)
    transport.send({"do": "full"})
    await until(lambda: decode(got.payloads[-1]).full)
    transport.send({"do": "fail"})
    failure = await transport.wait_closed()
    assert failure.state is LinkState.PROBE_FAILED
    assert failure.reason == "the probe ended: ValueError: ]0;no such thing"
    await transport.open()
    await transport.close()
    assert (await transport.wait_closed()).state is LinkState.CLOSED


async def test_this_machine_with_the_real_probe() -> None:
    pytest.importorskip("clustertop.probe.loop")
    got = Remember()
    transport = LocalTransport(SETTINGS, got)
    await transport.open()
    await until(lambda: len(got.payloads) >= 2)
    assert decode(got.payloads[0]).full
    await transport.close()


async def test_this_machine_without_python() -> None:
    got = Remember()
    transport = LocalTransport(SETTINGS, got, candidates=("python9",))
    await transport.open()
    await until(lambda: len(got.payloads) >= 2)
    assert (decode(got.payloads[0]).h or {})["probe"] == "sh"
    await transport.close()


async def test_probe_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    probe = f"import os\ndef main(args):\n    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n    os.read(0, 1)\n"
    script.write_text(
        "import asyncio, os, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from fleets import Remember, pack_probe\n"
        "from clustertop.wire.local import LocalTransport\n"
        "from clustertop.wire.transport import PollSettings\n"
        "async def main():\n"
        f"    await LocalTransport(PollSettings(), Remember(), body=pack_probe({probe!r})).open()\n"
        f"    while not os.path.exists({str(tmp_path / 'pid')!r}): await asyncio.sleep(0.01)\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, str(script))
    await asyncio.wait_for(process.wait(), 60)
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())
