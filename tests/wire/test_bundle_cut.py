"""What travels of pynvml: all that the probe calls, and little else."""

from __future__ import annotations

import json
import re
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from clustertop.wire import bundle

if TYPE_CHECKING:
    import pytest


def carried() -> dict[str, str]:
    """Name and source of what travels."""
    return dict(json.loads(zlib.decompress(bundle.probe_body()))["modules"])


def test_every_function_that_the_probe_names_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = carried()
    module = ModuleType("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", module)
    exec(compile(sources["pynvml"], "pynvml", "exec"), module.__dict__)
    import pynvml  # the carried one

    assert pynvml is module
    named = {name for key, text in sources.items() if key != "pynvml" for name in re.findall(r'"(nvml[A-Z]\w+)"', text)}
    own = {name for name in named if name.startswith("nvmlDeviceGetCurrentClocks")}
    assert len(named) > 30
    # Two names of one call: the newer one is not in every pynvml.
    assert own & set(dir(module))
    assert named - own <= set(dir(module))
    assert issubclass(module.NVMLError_GpuIsLost, module.NVMLError)


def test_what_is_cut_is_what_nothing_names() -> None:
    head = "import os\nA = 1\n"
    one, two = "class B:\n    pass\ndef one():\n    return B()\n", "@staticmethod\ndef two():\n    return A\n"
    source = head + one + two
    assert bundle.cut(source, ["one"]) == head + one
    assert bundle.cut(source, ["two", "no_such"]) == head + two


def test_it_is_half_of_the_whole() -> None:
    import pynvml

    whole = len(Path(pynvml.__file__).read_text("utf-8"))
    assert len(carried()["pynvml"]) < 0.6 * whole


def test_docstrings_and_comments_stay_behind_and_lines_keep_their_numbers() -> None:
    source = '''"""Doc."""
A = """text
# not a comment
"""
"""About A."""


class B:
    """Doc
    of B."""

    x = 1  # stays
    # goes
    def f(self):
        """Only a docstring."""
        # goes
    def g(self): "on one line"
'''
    got = bundle.lean(source)
    assert got.count("\n") == source.count("\n")
    space: dict[str, object] = {}
    exec(compile(got, "lean", "exec"), space)
    assert space["A"] == "text\n# not a comment\n"
    assert "Doc" not in got
    assert "goes" not in got
    assert got.splitlines()[10] == source.splitlines()[10]
    assert got.splitlines()[-1] == source.splitlines()[-1]
    for name, text in carried().items():
        compile(text, name, "exec")
    assert '"""Group ``host``' not in carried()["clustertop_probe.host"]
