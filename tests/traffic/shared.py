"""Where the recorded samples and the field's cases lie, for tests that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
SAMPLES = SHARED / "samples"
CASES = SHARED / "cases"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded samples are not beside this checkout")


def sample(path: str) -> str:
    """The text of one sample."""
    return (SAMPLES / path).read_text(encoding="utf-8")


def case(name: str, file: str) -> Any:
    """A case's JSON file."""
    return json.loads((CASES / name / file).read_text(encoding="utf-8"))
