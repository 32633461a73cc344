"""``bench/gpu_check.py`` against a stand-in nvidia-smi and our compiled NVML: it finds what differs, and only that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import nvml_lib

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "gpu_check.py"
XML = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>550.90.07</driver_version><attached_gpus>1</attached_gpus>
<gpu id="00000000:17:00.0"><product_name>H100</product_name><uuid>{uuid}</uuid>
<pci><pci_gpu_link_info><pcie_gen><max_link_gen>5</max_link_gen></pcie_gen>
<link_widths><current_link_width>{width}x</current_link_width></link_widths></pci_gpu_link_info></pci>
<temperature><gpu_temp>{temp} C</gpu_temp><memory_temp>N/A</memory_temp></temperature></gpu></nvidia_smi_log>
"""


def check(tmp_path: Path, *scenario: str, **said: object) -> tuple[int, str]:
    """Exit status and output of one run."""
    library = nvml_lib.build(tmp_path / "nvml")
    lines = ("count 1", "0 uuid GPU-1", "0 temp 55", "0 pcie_width 16", "0 pcie_gen_max 5",
             "0 !nvmlDeviceGetFieldValues 3", *scenario)
    env = nvml_lib.Scenario(tmp_path / "scenario", *lines).env()
    smi = tmp_path / "nvidia-smi"
    text = XML.format(**{"uuid": "GPU-1", "width": 16, "temp": 55, **said})
    smi.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    smi.chmod(0o755)
    done = subprocess.run([sys.executable, SCRIPT, "--nvml", library, "--smi", smi], env=env, capture_output=True,
                          text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.cc
def test_what_agrees_is_ok(tmp_path: Path) -> None:
    status, text = check(tmp_path)
    assert (status, "DIFFERS" in text) == (0, False), text
    assert "1 GPUs, 0 values differ" in text


@pytest.mark.cc
def test_what_differs_is_named(tmp_path: Path) -> None:
    status, text = check(tmp_path, width=8, temp=70)
    assert status == 1
    assert [row.split()[1] for row in text.splitlines() if "DIFFERS" in row] == ["temp", "pcie_width"]


@pytest.mark.cc
def test_a_gpu_that_only_one_of_them_lists_is_a_difference(tmp_path: Path) -> None:
    status, text = check(tmp_path, uuid="GPU-2")
    assert status == 1
    assert "nvidia-smi does not list it" in text
    assert "the probe does not list it" in text


@pytest.mark.cc
def test_a_driver_that_does_not_start_is_said(tmp_path: Path) -> None:
    status, text = check(tmp_path, "init 18")
    assert status == 3
    assert "Driver/library version mismatch" in text


def test_without_nvidia_smi_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT], env={"PATH": str(tmp_path)}, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == 3
    assert "no nvidia-smi in PATH" in done.stderr
