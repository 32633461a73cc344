"""Numbers as an operator reads them: short, with a unit, never more exact than they are."""

from __future__ import annotations

import math

_DECIMAL = ("", "k", "M", "G", "T", "P")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def scaled(value: float, unit: str, *, binary: bool = False) -> str:
    """``15754000000, "B/s"`` → ``15.8 GB/s``."""
    step, prefixes = (1024.0, _BINARY) if binary else (1000.0, _DECIMAL)
    size, power = abs(value), 0
    while size >= step * 0.9995 and power < len(prefixes) - 1:
        size /= step
        power += 1
    value = math.copysign(size, value)
    if power == 0:
        digits = f"{value:.0f}" if size >= 10 or value == int(value) else f"{value:.1f}"
    else:
        digits = f"{value:.0f}" if size >= 99.95 else f"{value:.1f}"
    return f"{digits} {prefixes[power]}{unit}".rstrip()


def quantity(value: float | None, unit: str) -> str:
    """One value with its unit; a dash for an unknown one (its reason is shown beside it by the caller)."""
    if value is None or math.isnan(value):
        return "-"
    match unit:
        case "ratio":
            return f"{value * 100:.0f} %" if value >= 0.1 or value == 0 else f"{value * 100:.1f} %"
        case "lanes":
            return f"x{value:.0f}"
        case "GT/s":
            return f"{value:g} GT/s"
        case "°C":
            return f"{value:.0f} °C"
        case "W":
            return scaled(value, "W") if value >= 10_000 else f"{value:.0f} W"
        case "A/s":
            return f"{round(value, 4) + 0.0:g} A/s"  # an amp in an hour shows; no zero has a sign
        case "s":
            return duration(value)
        case "B":
            return scaled(value, "B", binary=True)
        case "B/s" | "b/s" | "Hz":
            return scaled(value, unit)
        case "/s":
            return f"{scaled(value, '')}/s".replace(" /s", "/s") if value >= 1000 else f"{value:.3g}/s"
        case "":
            return f"{value:.0f}" if value == int(value) else f"{value:.3g}"
    return f"{scaled(value, unit)}"


def duration(seconds: float | None) -> str:
    """``4.2 s``, ``3 min``, ``2 h 05``, ``5 d``."""
    if seconds is None or math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "never"
    if 0 < seconds < 0.00095:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d}"
    return f"{seconds / 86_400:.0f} d"
