"""RDMA ports: state, rate, and counters by what they mean.

Sources: kernel Documentation/ABI/stable/sysfs-class-infiniband; InfiniBand Architecture Specification, PortCounters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals.metric import Metric, table
from clustertop.signals.rdma_catalogue import NARROW
from clustertop.signals.rdma_counters import COUNTERS
from clustertop.signals.rdma_counters import known as is_known
from clustertop.signals.units import data_rate, lanes, number, numbered_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

_ABI = "https://docs.kernel.org/admin-guide/abi-stable.html"

UP, DOWN, POLLING, DISABLED, INIT, TRAINING, ABSENT = 0, 1, 2, 3, 4, 5, 6
LINK_WORDS = {
    UP: "up",
    DOWN: "down",
    POLLING: "down (polling: no partner signal)",
    DISABLED: "off (disabled)",
    INIT: "init (no subnet manager)",
    TRAINING: "training",
    ABSENT: "MISSING",
}

MOST_RATES = 4096
_RATE_CODE = float(1 << 20)
RATE_TEXTS: dict[int, str] = {}
"""What ports have said of their rate, by the number that stands for it in the table."""
_RATE_CODES: dict[str, float] = {}
_BITS: list[float] = []
_LANES: list[float] = []

_FOLDERS = {"c": "counters/", "x": "counters_ext/", "h": "hw_counters/"}

LEAST_PEERS = 3
"""Fewer ports of one model than this have no common rate."""
LEAST_SHARE = 0.6
"""A rate that fewer than this share of them have is not common."""


def rate_code(text: str) -> float:
    """Return the number that stands for a rate's text, which says two things: ``25 Gb/sec (1X EDR)``.

    Raises:
        ValueError: it is no rate, or the nodes have made up too many.
    """
    code = _RATE_CODES.get(text)
    if code is None:
        bits = data_rate(text)
        if not 1e9 <= bits <= 1e13:
            raise ValueError(f"no port's rate: {text!r}")
        if len(_BITS) >= MOST_RATES:
            raise ValueError("too many different rates")
        code = _RATE_CODES[text] = _RATE_CODE + len(_BITS)
        RATE_TEXTS[int(code)] = text
        _BITS.append(bits)
        _LANES.append(lanes(text))
    return code


_STATE = (
    Metric("state", "", "logical state", "state", kind="state", hi=5.0, parse=numbered_state, source=_ABI,
           words={0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}),
    Metric("physical_state", "", "physical state", "phys_state", kind="state", hi=7.0, parse=numbered_state,
           source=_ABI, words={0: "no change", 1: "Sleep", 2: "Polling", 3: "Disabled", 4: "Training", 5: "LinkUp",
                               6: "LinkErrorRecovery", 7: "Phy Test"}),
    Metric("rate_text", "", "rate as the port says it", "rate", kind="state", lo=_RATE_CODE,
           hi=_RATE_CODE + MOST_RATES, parse=rate_code, words=RATE_TEXTS, source=_ABI),
)
_SHOWN = ("transmit_bytes_per_second", "receive_bytes_per_second")
"""Rates whose last minutes are kept."""
_DERIVED = (
    Metric("hw_transmit_bytes_per_second", "B/s", "sent, by the driver's own counters", kind="derived"),
    Metric("hw_receive_bytes_per_second", "B/s", "received, by the driver's own counters", kind="derived"),
    Metric("rate_bits_per_second", "b/s", "signalling rate; of a port that is down it means nothing", kind="derived",
           lo=1e9, hi=1e13, source=_ABI, label="rate"),
    Metric("lanes", "", "lanes in use", kind="derived", source=_ABI),
    Metric("rate_expected_bits_per_second", "b/s", "what most ports of this model run at; of InfiniBand, four lanes",
           kind="derived", label="expected"),
    Metric("rate_missing_ratio", "ratio", "how much of the expected rate is missing", kind="derived", hi=1.0),
    Metric("link", "", "state and physical state together", kind="derived", words=LINK_WORDS, label="link"),
    Metric("was_up", "", "1: the port has been seen up, so it is expected up", kind="derived"),
    Metric("never_used", "", "1: not up, and not seen up since it was first seen: no fault", kind="derived"),
    Metric("down", "", "1: an expected port is not up (an administratively disabled one is off, not down)",
           kind="derived"),
    Metric("down_apart", "", "1: down while other ports of its node are not", kind="derived"),
    Metric("downs_last_ten_minutes", "", "times the link went down in the last ten minutes", kind="derived",
           label="downs"),
    Metric("flap", "", "1: down 25 s or more and back in the last ten minutes, or down three times in them",
           kind="derived"),
    Metric("virtual", "", "1: a virtual function; shown under its parent, not judged", kind="derived"),
    Metric("hard_errors_total", "", "increase of hard errors since first seen", kind="derived", label="hard"),
    Metric("soft_errors_total", "", "increase of soft errors since first seen", kind="derived", label="soft"),
    Metric("congestion_total", "", "increase of congestion counters since first seen", kind="derived", label="cong"),
    Metric("hard_errors_last_minute", "", "hard errors in the last minute, without the link downs of a port that is "
           "down or flaps", kind="derived", label="hard/min"),
    Metric("soft_errors_last_minute", "", "soft errors in the last minute", kind="derived", label="soft/min"),
    Metric("symbol_errors_last_hour", "", "bit errors (symbol_error, ICRC) in the last hour", kind="derived",
           label="sym/h"),
    Metric("link_recoveries_last_minute", "", "link error recoveries in the last minute", kind="derived",
           label="recov/min"),
    Metric("transport_errors_per_second", "/s", "retransmissions, timeouts and packets out of sequence, mean of ten "
           "seconds", kind="derived", label="soft/s"),
    Metric("receive_pause_frames_per_second", "/s", "pause frames received by its network interfaces: the switch holds "
           "the port back", kind="derived", label="pause rx"),
    Metric("transmit_pause_frames_per_second", "/s", "pause frames sent by its network interfaces: the port holds the "
           "switch back", kind="derived", label="pause tx"),
    Metric("discards_per_second", "/s", "packets its network interfaces dropped for want of buffers", kind="derived",
           label="discards"),
    Metric("saturated_counters", "", "counters stopped at their end: true value unknown", kind="derived"),
)

METRICS = (
    _STATE
    + tuple(
        Metric(
            counter.column, "B" if counter.scale != 1 or counter.is_bytes else "", counter.meaning,
            counter.raw, "counter" if counter.cls != "info" else "gauge",
            hi=2.0**64, scale=float(counter.scale), parse=number, bits=counter.bits, cls=counter.cls,
            rate=counter.rate, history=counter.rate in _SHOWN, source=counter.source, aliases=counter.aliases,
        )
        for counter in COUNTERS
    )
    + _DERIVED
)
TABLE = table("port", "rdma", "RDMA ports", METRICS)


def label(key: str, attrs: Mapping[str, object]) -> str:
    """``mlx5_0/1``: the current name is only a label."""
    dev, port = attrs.get("dev"), attrs.get("port")
    return f"{dev}/{port}" if dev else key


def derive(t: Columns, virtual: NDArray[np.bool_], heard: NDArray[np.bool_]) -> None:
    """Work out link, rate and expectation in place. ``was_up`` is kept from tick to tick.

    Args:
        t: the port table.
        virtual: [rows] a virtual function.
        heard: [rows] its node's ports have been listed on this run: only then is one that is not there gone.
    """
    state, physical = t.col("state"), t.col("physical_state")
    link = np.full(len(t), np.nan)
    link[state >= 4] = UP
    link[state == 3] = INIT
    link[state == 2] = INIT
    down = state == 1
    link[down] = DOWN
    link[down & (physical == 2)] = POLLING
    link[down & (physical == 3)] = DISABLED
    link[down & (physical == 4)] = TRAINING
    link[~t.present & heard] = ABSENT
    t.put("link", link)
    t.put("virtual", virtual.astype(float))
    was_up = (t.col("was_up") == 1) | (link == UP)
    t.put("was_up", was_up.astype(float))
    expected = was_up & ~virtual
    broken = (link == DOWN) | (link == POLLING) | (link == TRAINING) | (link == INIT) | (link == ABSENT)
    t.put("down", np.where(np.isnan(link) | ~expected, np.nan, broken.astype(float)), Why.NOT_JUDGED)
    t.put("never_used", np.where(np.isnan(link) | virtual, np.nan, (~was_up & (link != UP)).astype(float)),
          Why.NOT_JUDGED)
    _rates(t, link)
    _traffic(t)


def _rates(t: Columns, link: NDArray[np.float64]) -> None:
    code, why = t.col("rate_text"), t.why_of("rate_text")
    known = ~np.isnan(code)
    place = np.where(known, code - _RATE_CODE, 0.0).astype(np.intp)
    known &= place < len(_BITS)
    # A port that is down has no capacity; its nominal 10 Gb/s is not one.
    no_rate = ~np.isnan(link) & (link != UP)
    for name, texts in (("rate_bits_per_second", _BITS), ("lanes", _LANES)):
        values = np.full(len(t), np.nan)
        values[known] = np.array(texts)[place[known]] if texts else np.nan
        values[no_rate] = np.nan
        t.put(name, values)
        missing = np.isnan(values)
        t.why_of(name)[missing] = np.where(known | no_rate, Why.NOT_JUDGED, why)[missing]


def _traffic(t: Columns) -> None:
    """Bytes per second from whatever counter says them; a narrow counter at its end says nothing."""
    for name in NARROW:
        metric = t.spec.metric(name)
        stuck = (t.col(name) == (2.0**32 - 1) * metric.scale) & (t.col(metric.rate) == 0)
        t.col(metric.rate)[stuck] = np.nan
        t.set_why(metric.rate, stuck, Why.SATURATED)
    for way in ("transmit", "receive"):
        narrow, wide = t.col(f"{way}_bytes_per_second"), t.col(f"wide_{way}_bytes_per_second")
        better = ~np.isnan(wide)
        narrow[better] = wide[better]
        t.set_why(f"{way}_bytes_per_second", better, Why.KNOWN)
        own, six = t.col(f"own_{way}_bytes_per_second"), t.col(f"ip6_{way}_bytes_per_second")
        t.put(f"hw_{way}_bytes_per_second", own + np.nan_to_num(six))
        unknown = np.isnan(own)
        t.why_of(f"hw_{way}_bytes_per_second")[unknown] = t.why_of(f"own_{way}_bytes_per_second")[unknown]


def expected_rates(
    model: NDArray[np.intp], rate: NDArray[np.float64], lane_count: NDArray[np.float64],
    infiniband: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return what each port should run at, in bits per second; NaN where nothing tells.

    Args:
        model: [ports] number of the port's model (board, else adapter and driver, with its link layer); -1: unknown.
        rate: what it runs at, NaN unless it is up.
        lane_count: how many lanes it runs on.
        infiniband: whether its link layer is InfiniBand, whose adapters have four lanes; an Ethernet port may well
            have one.
    """
    out = np.full(len(rate), np.nan)
    up = ~np.isnan(rate) & (model >= 0)
    for kind in np.unique(model[up]):
        mine = up & (model == kind)
        values, counts = np.unique(rate[mine], return_counts=True)
        most = int(counts.argmax())
        if counts.sum() >= LEAST_PEERS and counts[most] >= LEAST_SHARE * counts.sum():
            out[mine] = values[most]
    single = infiniband & (lane_count == 1)
    out[single] = np.fmax(out[single], 4 * rate[single])
    return out


def judge_rates(t: Columns, expected: NDArray[np.float64]) -> None:
    """Fill what is missing of the expected rate. A port that runs faster than its peers misses nothing."""
    rate = t.col("rate_bits_per_second")
    t.put("rate_expected_bits_per_second", np.where(np.isnan(rate), np.nan, expected), Why.NOT_JUDGED)
    t.put("rate_missing_ratio", np.maximum(1.0 - rate / expected, 0.0), Why.NOT_JUDGED)


def unclassified(names: Sequence[str], known: Mapping[str, int]) -> list[tuple[int, str]]:
    """(place, file) of the columns among *names* that no table of ours tells about, as ``hw_counters/new_counter``."""
    return [(place, _FOLDERS[name[:1]] + name[2:]) for place, name in enumerate(names)
            if name[1:2] == ":" and name[:1] in _FOLDERS and name not in known and not is_known(name)]
