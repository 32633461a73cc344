"""Theme files: the shipped ones, and bad ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.color import Color

from clustertop.tui import theme

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = theme.load_all()


def test_the_shipped_themes_are_all_usable() -> None:
    themes, problems = SHIPPED
    assert problems == []
    assert next(iter(themes)) == "dark"
    assert set(themes) == {"dark", "light", "contrast", "ansi"}


@pytest.mark.parametrize("name", sorted(SHIPPED[0]))
def test_states_differ_in_every_theme(name: str) -> None:
    colors = SHIPPED[0][name].colors
    assert len({colors[role] for role in ("ok", "warning", "critical")}) == 3
    assert len({colors[role] for role in ("warning", "critical", "stale")}) == 3


@pytest.mark.parametrize("name", ["dark", "light", "contrast"])
def test_text_can_be_read_on_its_background(name: str) -> None:
    made = SHIPPED[0][name]
    for role in ("text", "muted", "accent", "ok", "info", "warning", "critical", "stale", "unknown"):
        least = 3.4 if role in {"muted", "stale"} else 4.0
        assert _contrast(made.colors[role], made.colors["background"]) >= least, role
    for color in (*made.load, *made.hot):
        assert _contrast(theme._ink(color, False), color) >= 4.0, color


def test_the_contrast_theme_needs_no_red_against_green() -> None:
    colors = SHIPPED[0]["contrast"].colors
    assert _contrast(colors["critical"], colors["ok"]) > 1.15
    red, green, blue = Color.parse(colors["ok"]).get_truecolor()
    assert blue > green > red
    red, green, blue = Color.parse(colors["critical"]).get_truecolor()
    assert red > green > blue


def _contrast(one: str, other: str) -> float:
    def luminance(color: str) -> float:
        parts = [part / 255 for part in Color.parse(color).get_truecolor()]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


GOOD = (theme.folder() / "dark.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("old", "new", "said"), [
    ('critical = "#ff6b5e"', 'critical = "redd"', "colors.critical: 'redd' is no colour; write '#rrggbb'"),
    ('critical = "#ff6b5e"\n', "", "colors.critical is missing"),
    ('name = "dark"', 'name = "Dark Side"', "name must be 1 to 24 small letters"),
    ("dark = true", 'dark = "yes"', "dark must be true or false"),
    ("[ramps]", "[ramp]", "'ramp' is no key of a theme"),
    ("[colors]", "[colors", "not TOML"),
    ('panel = "', 'pannel = "', "colors.pannel: no such colour"),
])
def test_a_bad_theme_file_is_named_with_the_key_and_what_would_be_right(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    bad = tmp_path / "bad.toml"
    assert old in GOOD
    bad.write_text(GOOD.replace(old, new), encoding="utf-8")
    (tmp_path / "dark.toml").write_text(GOOD, encoding="utf-8")
    themes, problems = theme.load_all(tmp_path)
    assert len(problems) == 1
    assert problems[0].startswith(str(bad))
    assert said in problems[0]
    assert list(themes) == ["dark"]


def test_a_ramp_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(GOOD.replace('"#1a212c", ', ""), encoding="utf-8")
    with pytest.raises(theme.ThemeError, match=r"ramps\.load must be a list of 8 colours"):
        theme.load(bad)
