"""What a column is: its name, unit, valid range and where it is read. Tables, help, JSON and rules all read this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Kind = Literal["gauge", "counter", "state", "derived"]
CounterClass = Literal["", "hard", "soft", "congestion", "traffic", "info"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One column of a table. Units are base units (bytes, watts, seconds, ratio 0 to 1)."""

    name: str
    unit: str
    """As shown: ``W``, ``°C``, ``B``, ``B/s``, ``/s``, ``ratio``, ``lanes``, ``GT/s``, or empty for a bare number."""
    help: str
    raw: str = ""
    """The probe's column; empty for what the console works out itself."""
    kind: Kind = "gauge"
    lo: float = 0.0
    """Lowest valid value, after scaling."""
    hi: float = float("inf")
    """Highest valid value, after scaling; beyond it a reading is unknown and counted."""
    scale: float = 1.0
    parse: Callable[[str], float] | None = None
    """For columns that arrive as text; raises ValueError when the text is no value."""
    words: Mapping[int, str] = field(default_factory=dict)
    """For states: the number's name."""
    bits: int = 0
    """Width of a counter that stops at its end; 0: it does not."""
    cls: CounterClass = ""
    rate: str = ""
    """Name of the rate column made from this counter."""
    history: bool = False
    source: str = ""
    """Vendor page or kernel document."""
    label: str = ""
    """Short column head."""
    aliases: tuple[str, ...] = ()
    """Other columns of the probe that mean the same; a row has at most one of them all."""
    coverage: str = ""
    """Of a mean or a sum: the column that says over what share of its things it is, 0 to 1."""

    @property
    def saturation(self) -> float:
        """The value at which the counter stops, or infinity."""
        return float(2**self.bits - 1) if self.bits else float("inf")


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A kind of thing and its columns, in order."""

    name: str
    group: str
    """The probe group that feeds it; empty: the console fills it."""
    title: str
    metrics: tuple[Metric, ...]
    index: Mapping[str, int]
    raw_index: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(metric.name for metric in self.metrics)

    def metric(self, name: str) -> Metric:
        """The column called *name*. Raises KeyError."""
        return self.metrics[self.index[name]]


def word_parser(numbers: Mapping[str, int]) -> Callable[[str], float]:
    """Return a parser for a state that arrives as one of the words of *numbers*; it raises ValueError for any other."""
    def parse(text: str) -> float:
        found = numbers.get(text.strip())
        if found is None:
            raise ValueError(f"not one of {', '.join(numbers)}: {text!r}")
        return float(found)

    return parse


def rate_of(counter: Metric) -> Metric:
    """Return the rate column that *counter* names."""
    unit = "B/s" if counter.unit == "B" else "/s"
    return Metric(
        name=counter.rate, unit=unit, help=f"rate of {counter.name}", kind="derived", history=counter.history,
        source=counter.source, label=counter.label,
    )


def table(name: str, group: str, title: str, metrics: tuple[Metric, ...]) -> TableSpec:
    """Return the table of *metrics*, counters first, with the rate columns of its counters behind them.

    Raises:
        ValueError: two columns share a name or a raw column.
    """
    # Counters first, then the rest of what nodes send, then what we work out: each block is one slice of the store.
    ordered = sorted(metrics, key=lambda metric: 2 if not metric.raw else 0 if metric.kind == "counter" else 1)
    columns = tuple(ordered) + tuple(rate_of(metric) for metric in ordered if metric.rate)
    index = {metric.name: number for number, metric in enumerate(columns)}
    sent = [(name, number) for number, metric in enumerate(columns) if metric.raw
            for name in (metric.raw, *metric.aliases)]
    raw = dict(sent)
    if len(index) != len(columns) or len(raw) != len(sent):
        raise ValueError(f"table {name}: two columns share a name")
    return TableSpec(name, group, title, columns, index, raw)
