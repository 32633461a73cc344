"""``clustertop pdu-walk`` as an operator runs it, against a real SNMP agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from clustertop import cli
from pdus import AUTH_KEY, OURS, PRIVACY_KEY, snmprec
from ports import free_udp_port

if TYPE_CHECKING:
    from pathlib import Path

    from pdus import Snmpsim

PROFILES = resources.files("clustertop.sources").joinpath("profiles")


def walk(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "clustertop", "pdu-walk", *arguments], capture_output=True, text=True,
                          check=False, timeout=240, env=os.environ | environment)


def test_raw_stands_beside_scaled_with_its_oid(agents: Snmpsim) -> None:
    done = walk(f"127.0.0.1:{agents.port}", CLUSTERTOP_COMMUNITY="eaton-g3")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "profile eaton-g3 (Eaton ePDU G2, G3, HD)" in lines
    assert "sysObjectID 1.3.6.1.4.1.534.6.6.7" in lines
    assert "phase L1 amps 28.3 A 28300 0.001 1.3.6.1.4.1.534.6.6.7.3.3.1.4.0.1.1" in lines
    assert "warning 25.6 A 25600 0.001 1.3.6.1.4.1.534.6.6.7.3.3.1.8.0.1.1" in lines
    assert "state high critical (critical) 1.3.6.1.4.1.534.6.6.7.3.3.1.5.0.1.1" in lines
    assert "total: 6800 W" in lines


def test_json_has_every_reading_or_its_reason(agents: Snmpsim) -> None:
    done = walk(f"127.0.0.1:{agents.port}", "--json", CLUSTERTOP_COMMUNITY="sentry3")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert said["profile"] == "sentry3"
    part = next(one for one in said["parts"] if one["name"] == "AA")
    assert part["readings"]["amps"] == {
        "value": 13.1, "unit": "A", "raw": "1310", "scale": 0.01, "oid": "1.3.6.1.4.1.1718.3.2.2.1.7.1.1"}
    assert part["readings"]["watts"] == {"value": None, "unit": "W", "unknown": "not provided"}
    assert part["limits"]["warn_amps"]["value"] == 12


def test_rows_are_a_fixture_that_can_be_served_again(agents: Snmpsim, tmp_path: Path) -> None:
    done = walk(f"127.0.0.1:{agents.port}", "--rows", CLUSTERTOP_COMMUNITY="raritan-px2")
    assert done.returncode == 0
    file = tmp_path / "again.snmprec"
    file.write_text(done.stdout)
    assert snmprec(file) == snmprec(OURS / "raritan-px2.snmprec")


def test_a_wrong_profile_shows_itself(agents: Snmpsim, tmp_path: Path) -> None:
    done = walk(f"127.0.0.1:{agents.port}", "--profile", "panduit", CLUSTERTOP_COMMUNITY="eaton-g3")
    assert done.returncode == 1
    assert "problem     no data" in done.stdout
    mine = tmp_path / "mine.toml"
    mine.write_text((PROFILES / "eaton-g3.toml").read_text())
    done = walk(f"127.0.0.1:{agents.port}", "--profile", str(mine), CLUSTERTOP_COMMUNITY="eaton-g3")
    assert (done.returncode, "profile     mine (Eaton" in done.stdout) == (0, True)
    done = walk(f"127.0.0.1:{agents.port}", CLUSTERTOP_COMMUNITY="odd-wrong-scale")
    assert "check the scales of phase L1: 65.5 A x 230.4 V is not 1480 W" in done.stdout


def test_a_device_without_a_profile_is_unscaled(agents: Snmpsim) -> None:
    done = walk(f"127.0.0.1:{agents.port}", CLUSTERTOP_COMMUNITY="odd-no-profile")
    assert done.returncode == 1
    assert "unscaled: no profile for this device" in done.stdout
    assert "1.3.6.1.4.1.99999.1.1 = 987" in done.stdout
    assert " A " not in done.stdout


def test_v3_with_keys_from_files_and_none_of_them_shown(agents: Snmpsim, tmp_path: Path) -> None:
    keys = {"auth": AUTH_KEY, "privacy": PRIVACY_KEY, "wrong": "not the right one"}
    for name, key in keys.items():
        (tmp_path / name).write_text(key)
        (tmp_path / name).chmod(0o600)
    v3 = (f"127.0.0.1:{agents.port}", "--user", "watcher", "--context", "enlogic", "--auth-key", f"file:{tmp_path}/auth")
    done = walk(*v3, "--privacy-key", f"file:{tmp_path}/privacy")
    assert done.returncode == 0
    assert "enlogic" in done.stdout
    failed = walk(*v3, "--privacy-key", f"file:{tmp_path}/wrong", "--timeout", "0.5", "--retries", "0")
    assert failed.returncode == 3
    assert "privacy key or protocol is wrong" in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert not [key for key in keys.values() if key in done.stdout + done.stderr + failed.stdout + failed.stderr]


@pytest.mark.parametrize(("arguments", "said"), [
    ((), "name a HOST"), (("pdu", "--profile", "nope"), "there is no profile nope"),
    (("pdu", "--community", "s3cret-word"), "not as the secret itself"), (("pdu:0",), "is no HOST"), (("pdu:x",), "is no HOST"),
    (("pdu", "--user", "me", "--auth-key", "s3cret-word"), "not as the secret itself"), (("pdu", "--snmp", "3"), "needs --user"),
    (("pdu", "--user", "me", "--snmp", "2c"), "for SNMPv3"), (("pdu", "--community", "file:/nowhere/x"), "No such file")])
def test_what_is_wrong_is_one_sentence_and_status_3(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pdu-walk", *arguments]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert "s3cret-word" not in err


def test_a_world_readable_key_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "community"
    file.write_text("s3cret-word")
    file.chmod(0o644)
    assert cli.main(["pdu-walk", "pdu", "--community", f"file:{file}"]) == 3
    err = capsys.readouterr().err
    assert "chmod 600" in err
    assert "s3cret-word" not in err


def test_nobody_there_is_status_3(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_udp_port()
    assert cli.main(["pdu-walk", f"127.0.0.1:{port}"]) == 3
    assert capsys.readouterr().err == f"clustertop: 127.0.0.1:{port}: nothing listens at this UDP port\n"


def test_the_profiles_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pdu-walk", "--profiles"]) == 0
    out = capsys.readouterr().out
    assert "raritan-px2" in out
    assert len(out.splitlines()) >= 30


def test_help_loads_neither_snmp_nor_numpy_nor_textual() -> None:
    code = ("import sys\nfrom clustertop import cli\ntry: cli.main(['pdu-walk', '--help'])\nexcept SystemExit: pass\n"
            "print([name for name in ('pysnmp', 'pyasn1', 'numpy', 'textual', 'msgspec', 'asyncio') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.splitlines()[-1] == "[]"
