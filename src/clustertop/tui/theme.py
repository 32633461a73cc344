"""Colour themes: TOML files, checked when they are read, made into the styles that lines are drawn with.

The files are found beside the package (``clustertop/themes`` in a wheel) or at the top of the source tree.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.style import Style
from textual.theme import Theme as TextualTheme

import clustertop
from clustertop.files import read_bounded
from clustertop.text import clean

ROLES = ("background", "panel", "text", "muted", "accent", "ok", "info", "warning", "critical", "stale", "unknown",
         "cursor")
STEPS = 8
MAX_BYTES = 1 << 20
DEFAULT = "dark"
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_NAMED = frozenset({"default"} | {
    prefix + name for prefix in ("", "bright_")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
})


class ThemeError(ValueError):
    """A theme file that cannot be used; the text names the file, the key and what would be right."""


@dataclass(frozen=True, slots=True)
class Theme:
    """One theme: colours by role, and two ramps from little to much."""

    name: str
    dark: bool
    ansi: bool
    """True: colours are names of the terminal's own 16, and its background shows through."""
    colors: dict[str, str]
    load: tuple[str, ...]
    """Utilisation, power, memory: more is only more."""
    hot: tuple[str, ...]
    """Temperature: more is worse."""

    def textual(self) -> TextualTheme:
        """What Textual's own widgets (the filter line, the palette) are coloured with."""
        c = {role: _textual(color) for role, color in self.colors.items()}
        return TextualTheme(
            name=f"clustertop-{self.name}", primary=c["accent"], secondary=c["info"], warning=c["warning"],
            error=c["critical"], success=c["ok"], accent=c["accent"], foreground=c["text"],
            background=c["background"], surface=c["background"], panel=c["panel"], boost=c["panel"],
            dark=self.dark, ansi=self.ansi,
            variables={
                "scrollbar": c["muted"], "scrollbar-hover": c["accent"], "scrollbar-active": c["accent"],
                "scrollbar-background": c["background"], "scrollbar-background-hover": c["background"],
                "scrollbar-background-active": c["background"], "scrollbar-corner-color": c["background"],
                "input-cursor-background": c["text"], "input-cursor-foreground": c["background"],
                "block-cursor-background": c["cursor"], "block-cursor-foreground": c["text"],
                "ansi-background": "ansi_black" if self.dark else "ansi_white",
                "ansi-foreground": "ansi_white" if self.dark else "ansi_black",
                "border-blurred": c["muted"], "input-cursor-text-style": "none",
                "input-selection-background": c["cursor"],
            },
        )


@dataclass(slots=True)
class Palette:
    """Style names to styles. A name with ``@`` behind it is the same under the cursor."""

    styles: dict[str, Style]
    cursor: Style
    _made: dict[str, Style] = field(default_factory=dict)

    def style(self, name: str) -> Style:
        """The style called *name*; an unknown name is plain text."""
        made = self._made.get(name)
        if made is None:
            made = self.styles.get(name.removesuffix("@"), self.styles["text"])
            if name.endswith("@"):
                made = made + self.cursor
            self._made[name] = made
        return made


def palette(theme: Theme, *, mono: bool) -> Palette:
    """Return the styles of *theme*; with *mono* by weight, underline and reverse alone."""
    if mono:
        plain = Style()
        styles = {
            "text": plain, "muted": Style(dim=True), "head": Style(bold=True), "title": Style(bold=True),
            "accent": Style(bold=True), "tab": Style(bold=True, reverse=True), "ok": plain, "info": plain,
            "warning": Style(bold=True), "critical": Style(bold=True, reverse=True), "stale": Style(dim=True),
            "unknown": Style(dim=True), "lost": Style(bold=True, reverse=True),
            "paused": Style(bold=True, reverse=True),
            "t:ok": plain, "t:info": Style(underline=True), "t:warning": Style(bold=True, underline=True),
            "t:critical": Style(bold=True, reverse=True),
        }
        styles |= {f"{ramp}{step}": plain for ramp in ("load", "hot") for step in range(STEPS)}
        return Palette(styles, Style(reverse=True))
    c = theme.colors

    def on(color: str) -> Style:
        return Style(color=_ink(color, theme.ansi), bgcolor=color)

    styles = {
        "text": Style(color=c["text"]), "muted": Style(color=c["muted"]),
        "head": Style(color=c["muted"], bold=True), "title": Style(color=c["text"], bold=True),
        "accent": Style(color=c["accent"]), "tab": Style(color=c["accent"], bold=True, reverse=theme.ansi),
        "ok": Style(color=c["ok"]), "info": Style(color=c["info"]), "warning": Style(color=c["warning"], bold=True),
        "critical": Style(color=c["critical"], bold=True), "stale": Style(color=c["stale"]),
        "unknown": Style(color=c["unknown"]), "lost": on(c["critical"]) + Style(bold=True),
        "paused": on(c["warning"]) + Style(bold=True),
        "t:ok": on(theme.load[1]), "t:info": on(c["info"]), "t:warning": on(c["warning"]) + Style(bold=True),
        "t:critical": on(c["critical"]) + Style(bold=True),
    }
    styles |= {f"load{step}": on(color) for step, color in enumerate(theme.load)}
    styles |= {f"hot{step}": on(color) for step, color in enumerate(theme.hot)}
    cursor = Style(reverse=True) if theme.ansi else Style(bgcolor=c["cursor"])
    return Palette(styles, cursor)


def folder() -> Path:
    """Where the shipped themes lie: in the package, or at the top of the source tree."""
    package = Path(clustertop.__file__).parent
    inside = package / "themes"
    return inside if inside.is_dir() else package.parent.parent / "themes"


def load_all(place: Path | None = None) -> tuple[dict[str, Theme], list[str]]:
    """Return the usable themes by name, ``dark`` first, and a sentence for each file that is not usable."""
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    for path in sorted((place or folder()).glob("*.toml")):
        try:
            theme = load(path)
        except ThemeError as error:
            problems.append(str(error))
            continue
        if theme.name in themes:
            problems.append(f"{path}: another theme is already called {theme.name!r}")
        else:
            themes[theme.name] = theme
    if DEFAULT in themes:
        themes = {DEFAULT: themes.pop(DEFAULT), **themes}
    return themes, problems


def load(path: Path) -> Theme:
    """Read one theme file.

    Raises:
        ThemeError: it cannot be read, is not TOML, lacks a key, or has a colour that is none.
    """
    try:
        data = tomllib.loads(read_bounded(path, MAX_BYTES).decode("utf-8"))
    except OSError as error:
        raise ThemeError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ThemeError(f"{path}: not TOML: {clean(str(error), 120)}") from None
    known = {"name", "dark", "ansi", "colors", "ramps"}
    for key in data:
        if key not in known:
            raise ThemeError(f"{path}: {clean(key, 40)!r} is no key of a theme; there are {', '.join(sorted(known))}")
    name = data.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9-]{1,24}", name):
        raise ThemeError(f"{path}: name must be 1 to 24 small letters, digits and '-'")
    for key in ("dark", "ansi"):
        if not isinstance(data.get(key, False), bool):
            raise ThemeError(f"{path}: {key} must be true or false")
    ansi = bool(data.get("ansi", False))
    colors, ramps = data.get("colors"), data.get("ramps")
    if not isinstance(colors, dict) or not isinstance(ramps, dict):
        raise ThemeError(f"{path}: the tables [colors] and [ramps] must be there")
    for role in colors:
        if role not in ROLES:
            raise ThemeError(f"{path}: colors.{clean(role, 40)}: no such colour; there are {', '.join(ROLES)}")
    return Theme(
        name, bool(data.get("dark", True)), ansi,
        {role: _color(path, f"colors.{role}", colors.get(role), ansi) for role in ROLES},
        _ramp(path, "load", ramps.get("load"), ansi), _ramp(path, "hot", ramps.get("hot"), ansi),
    )


def _ramp(path: Path, name: str, value: Any, ansi: bool) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) != STEPS:
        raise ThemeError(f"{path}: ramps.{name} must be a list of {STEPS} colours, little to much")
    return tuple(_color(path, f"ramps.{name}[{at}]", color, ansi) for at, color in enumerate(value))


def _color(path: Path, key: str, value: Any, ansi: bool) -> str:
    if value is None:
        raise ThemeError(f"{path}: {key} is missing")
    if ansi and isinstance(value, str) and value in _NAMED:
        return value
    if not ansi and isinstance(value, str) and _HEX.fullmatch(value):
        return value
    right = "a name of the 16 terminal colours such as 'bright_red'" if ansi else "'#rrggbb'"
    raise ThemeError(f"{path}: {key}: {clean(str(value), 40)!r} is no colour; write {right}")


def _ink(color: str, ansi: bool) -> str:
    """Black or white, whichever reads better on *color*."""
    if ansi:
        return "bright_white" if color in {"black", "blue", "red", "magenta", "bright_black"} else "black"
    red, green, blue = (int(color[at:at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#101216" if (luminance + 0.05) / 0.055 > 1.05 / (luminance + 0.05) else "#f4f6f8"


def _textual(color: str) -> str:
    return color if color.startswith("#") else f"ansi_{color}"
