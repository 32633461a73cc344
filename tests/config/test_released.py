"""The file that remembers which GPUs were let go: whatever it holds, it is read; what cannot be written is said."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from clustertop.released import ReleasedNodes

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_noted_is_read_and_only_news_is_news(tmp_path: Path) -> None:
    one, other = (ReleasedNodes(tmp_path / "a" / "released.json") for _ in range(2))
    assert one.read() == {}
    assert other.news() is None
    assert one.note("gpu1", 5.5) == ""
    assert one.note("gpu2", 6.0) == ""
    assert other.news() == {"gpu1": 5.5, "gpu2": 6.0}
    assert other.news() is None
    assert other.note("gpu1", None) == ""
    assert one.news() == {"gpu2": 6.0}
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["released.json", "released.lock"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"gpu1": "now"}', '{"gpu1": true}', '{"gpu1": -1}', '{"gpu1": 1e300}',
                                  "\x00\xff"])
def test_what_makes_no_sense_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "released.json"
    path.write_text(text)
    assert ReleasedNodes(path).read() == {}
    assert ReleasedNodes(path).note("gpu9", 7.0) == ""
    assert json.loads(path.read_text()) == {"gpu9": 7.0}


def test_names_are_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "released.json"
    path.write_text(json.dumps({"\x1b[31mgpu1": 3.0}))
    assert all("\x1b" not in name for name in ReleasedNodes(path).read())


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = ReleasedNodes(tmp_path / "file" / "released.json").note("gpu1", 1.0)
    assert "cannot be written" in said
    assert ReleasedNodes(tmp_path / "file" / "released.json").news() is None


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "released.json"
    threads = [threading.Thread(target=ReleasedNodes(path).note, args=(f"gpu{number}", float(number + 1)))
               for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ReleasedNodes(path).read()) == 20


def test_the_place_follows_the_environment() -> None:
    assert str(ReleasedNodes.usual({"XDG_STATE_HOME": "/x"}).path) == "/x/clustertop/released.json"
    assert str(ReleasedNodes.usual({"XDG_STATE_HOME": "x"}).path).endswith("/.local/state/clustertop/released.json")
