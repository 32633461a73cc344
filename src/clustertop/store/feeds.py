"""Table ``feed``: what every breaker carries, by its PDU or estimated from its nodes, and how that is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.hosts import fold
from clustertop.model import Why, intern
from clustertop.signals import feed, power
from clustertop.store.feed_estimate import FROM_BMC, FROM_GPU, NOTHING, Estimates
from clustertop.store.feed_levels import LIMITS, least, padded, reader, told, worst
from clustertop.store.feed_parts import Part, choose
from clustertop.store.feed_past import SETTLED_SECONDS, Events, Past
from clustertop.store.view import Freshness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.places import Site
    from clustertop.signals.columns import Columns
    from clustertop.store.feed_estimate import Estimate
    from clustertop.store.owners import Owners
    from clustertop.store.table import Table

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

SILENT_SECONDS = 15.0
"""A node from which nothing came for so long, though its link stands, may be without power."""
TAKEOVER_SECONDS = 60.0
"""So long after one of a pair lost its load the other's current foretells nothing."""
AHEAD = 4.0
"""A forecast looks at most so many times as far ahead as its readings look back: a minute foretells no half hour."""
_NO_ANSWER = intern("its PDU does not answer")
_NO_PDU = intern("its PDU is not among the devices")
_NO_VOLTS = intern("no volts configured, so no current can be estimated")
_NOTHING = intern(NOTHING)


class Feeds:
    """The feeds of a site, [feeds] in the site's order; ``owners.first_feed`` is the first one's owner."""

    def __init__(
        self, site: Site, tables: Mapping[str, Table], owners: Owners, *, freshness: Freshness | None = None,
        warning: float = power.WARNING_RATIO, critical: float = power.CRITICAL_RATIO,
    ) -> None:
        """Add a row for every feed.

        Args:
            site: what is watched beside the nodes.
            tables: all tables; ``feed`` is filled, ``pdu``, ``bmc``, ``psu``, ``gpu``, ``node`` and ``device`` are
                read where they exist.
            owners: whose the rows are.
            freshness: when a reading is old.
            warning: of a breaker's rating, as the rule ``feed_current`` has it.
            critical: of a breaker's rating.
        """
        self._feeds, self._tables, self._owners = site.feeds, tables, owners
        self._table = tables["feed"]
        self._freshness = freshness or Freshness()
        self._warning, self._critical = warning, critical
        count = len(site.feeds)
        names = {one.name: row for row, one in enumerate(site.feeds)}
        self._partner = np.full(count, -1, np.intp)
        for row, one in enumerate(site.feeds):
            if one.pair in names and names[one.pair] != row:
                # Declared at one of them is declared.
                self._partner[row], self._partner[names[one.pair]] = names[one.pair], row
        numbers = {node.name: number for number, node in enumerate(owners.nodes)}
        self._estimates = Estimates(site.feeds, numbers, len(owners.nodes))
        self._nodes = np.array([len(one.nodes) for one in site.feeds], np.float64)
        self._rating = np.array([_number(one.rating_amps) for one in site.feeds], np.float64)
        self._volts = np.array([_number(one.volts) for one in site.feeds], np.float64)
        self._lines = np.array([one.phases if one.wiring == "star" else np.sqrt(3) if one.phases == 3 else 1
                                for one in site.feeds], np.float64)
        self._polyphase = np.array([one.phases > 1 for one in site.feeds], np.bool_)
        pdus = [owners.number("pdu", one.pdu) if one.pdu else None for one in site.feeds]
        self._metered = np.array([bool(one.pdu) for one in site.feeds], np.bool_)
        self._pdu = np.array([-1 if owner is None else owner for owner in pdus], np.int64)
        self._listed = -1
        self._identity: dict[int, tuple[str, str]] = {}
        """By PDU: its serial number and its profile."""
        self._others: set[int] = set()
        """Rows that were another device's."""
        self._parts = [Part() for _ in site.feeds]
        self._rows = np.full((count, 1), -1, np.intp)
        self._spoken = np.full((count, 1), -1, np.intp)
        """[feeds, most] every row that the device may say something of: its conductors, and the part they belong to."""
        self._open = np.zeros(count, np.bool_)
        """[feeds] something happened to its load, which is told of the feed."""
        self._whole = np.full(count, -1, np.intp)
        self._first = np.zeros(count, np.intp)
        self._missing = np.zeros(count, np.bool_)
        self._phase_missing = np.zeros(count, np.bool_)
        self._partial = np.zeros(count, np.bool_)
        """[feeds] a conductor of it is not known: no current at the others is not none."""
        self._star: list[int] = []
        self._delta: list[int] = []
        self._no_part = np.zeros(count, np.uint16)
        self._past, self._events = Past(count), Events(count)
        self._measured_volts = np.full(count, np.nan)
        self._absurd_before = np.zeros(count, np.bool_)
        self._absurd = np.zeros(count, np.bool_)
        self._seen_at = np.full(count, -np.inf)
        self._lost_since = np.full(len(owners.nodes), np.nan)
        self._limits: tuple[NDArray[np.float64], feed.Held] | None = None
        self._numbers = numbers
        self._psus_listed = -1
        self._said: list[dict[str, Attr]] = [{} for _ in site.feeds]
        self._told: tuple[feed.Held, bytes, bytes, bytes] | None = None
        self._worked_out = np.zeros((2, count), np.bool_)
        """[voltage, neutral current; feeds] where that is not measured but configured, or worked out of the phases."""
        self._began: float | None = None
        for row, one in enumerate(site.feeds):
            made = self._table.add(owners.first_feed + row, "", {"name": one.name})
            assert made == row

    def derive(self, now: float) -> None:
        """Fill the table as of *now*, our monotonic clock; call it when the tables that it reads are up to date."""
        count = len(self._feeds)
        if not count:
            return
        if self._began is None:
            # What did not answer at the beginning is no news.
            self._began = now
        self._choose()
        self._name_supplies()
        t = self._table.columns
        estimate = self._estimates.work_out(self._tables, now, self._freshness)
        silent = self._silent()
        carried, said, at, interval, held = self._carried(estimate, silent, now)
        new = at > self._seen_at
        # Of an estimate every node's reading is news; once an interval is often enough.
        new &= self._metered | ~(at < self._seen_at + 0.9 * interval)
        self._seen_at = np.where(new, at, self._seen_at)
        usable = (carried.coverage >= 1.0) & (self._events.kind == feed.NO_EVENT) & ~self._partial
        self._past.push(new, at, carried.amps, usable)
        scale = self._scale(carried, new)
        carried = feed.Carried(carried.amps, carried.why, carried.watts, carried.volts, carried.lower_bound,
                               carried.estimated, carried.coverage, self._past.before, scale, carried.neutral,
                               carried.device_level)
        lost, just_lost = self._nodes_lost(now)
        events = self._events
        known = self._metered & ~(self._partial & (carried.amps <= events.none(held.rating)))
        load = np.where(known, carried.amps, np.nan)
        # Without voltage at its first reading it is not just idle, though no load was seen to go.
        dark = power.voltage_gone(self._measured_volts, self._volts) & new & ~events.seen & (self._nodes > 0)
        said = (said[0], said[1] | dark)
        events.update(self._past, new & self._metered, load, self._measured_volts, self._volts, held.rating, said,
                      silent, self._partner, just_lost, now)
        # What a feed takes over from the other of its pair is a step: it is no climb, and what was before says nothing.
        other = np.maximum(self._partner, 0)
        self._past.forget((self._partner >= 0) & (events.kind[other] != feed.NO_EVENT)
                          & (now - events.at[other] <= TAKEOVER_SECONDS))
        # A load that nobody hangs on need not be there.
        seen = events.seen | (self._nodes == 0) | carried.estimated
        # A load that went, and nobody could say for minutes that it was lost or tripped, is judged as what it is now:
        # else what was said of it before stands for as long as nothing runs on it.
        settled = (events.kind == feed.GONE) & (now - events.at > SETTLED_SECONDS)
        kind = np.where(settled, feed.NO_EVENT, events.kind)
        self._open = events.kind != feed.NO_EVENT
        feed.fill(t, carried, held, kind, seen, self._warning)
        feed.fill_pairs(t, carried, held, self._partner, kind, self._warning)
        unsaid = np.where(self._partial & ~np.isnan(carried.amps), feed.LOWER_BOUND, carried.why)
        feed.fill_events(t, events.kind, ~np.isnan(load) & seen, events.at, events.before, now,
                         np.where(self._metered, unsaid, feed.ESTIMATED))
        t.put("nodes", self._nodes)
        t.put("nodes_lost", lost.astype(float))
        self._foretell(carried, held, now)
        table = self._table
        table.read_at[:count], table.interval[:count] = at, interval
        table.reads[:count] += new
        self._say(estimate, held)

    # -- where the current is read --------------------------------------------------------------------------------

    def _choose(self) -> None:
        """Find the feeds' parts among the PDUs' rows, when these have changed."""
        pdu = self._tables.get("pdu")
        if pdu is None or self._listed == pdu.listed:
            return
        self._listed = pdu.listed
        listed = {owner: self._of_this_one(owner, pdu) for owner in set(self._pdu.tolist()) if owner >= 0}
        for row, one in enumerate(self._feeds):
            mine = listed.get(int(self._pdu[row]), [])
            self._parts[row] = part = choose(one, mine, pdu.keys, pdu.attrs)
            self._whole[row] = part.whole
            if one.outlets_name_nodes:
                self._hang(row, {
                    str(pdu.attrs[outlet].get(word) or "") for outlet in mine
                    if pdu.attrs[outlet].get("kind") == "outlet" for word in ("part_label", "name")})
            known = part.rows or part.deltas
            self._no_part[row] = Why.KNOWN if known or not mine else intern(
                f"the PDU has no {one.part}" if one.part else "the PDU has no inlet; name a part of it")
        self._rows = padded([part.rows for part in self._parts])
        self._spoken = padded([part.all for part in self._parts])
        for row, part in enumerate(self._parts):
            self._first[row] = (*part.rows, *part.deltas, 0)[0]
            self._missing[row] = part.missing
            # Of a total or an average none is none; of a phase that is not there it is not.
            self._phase_missing[row] = part.missing and any(pdu.attrs[one].get("kind") != "inlet" for one in part.rows)
        self._delta = [row for row, part in enumerate(self._parts) if part.deltas]
        self._star = [row for row, (one, part) in enumerate(zip(self._feeds, self._parts, strict=True))
                      if part.neutral >= 0 or (len(part.rows) == 3 == one.phases and one.wiring == "star")]

    def _of_this_one(self, owner: int, pdu: Table) -> list[int]:
        """The rows of PDU *owner*, but for what only another device had that was at its address before."""
        rows = pdu.of_node.get(owner, [])
        serial = str(self._tables["device"].attrs[owner - self._owners.first_device].get("serial") or "")
        profile = next((str(pdu.attrs[row].get("profile") or "") for row in rows if pdu.present[row]), "")
        before = self._identity.get(owner, ("", ""))
        if any(old and new and old != new for old, new in zip(before, (serial, profile), strict=True)):
            self._others.update(row for row in rows if not pdu.present[row])
        self._identity[owner] = (serial or before[0], profile or before[1])
        self._others.difference_update(row for row in rows if pdu.present[row])
        return [row for row in rows if row not in self._others]

    def _hang(self, row: int, names: set[str]) -> None:
        """The PDU's outlets are named after nodes: those hang on this feed as well."""
        one = self._feeds[row]
        more = sorted(name for name in names & self._numbers.keys() if name not in one.nodes)
        if not more:
            return
        self._owners.hang(self._owners.first_feed + row, more)
        self._feeds = self._owners.site.feeds
        self._estimates = Estimates(self._feeds, self._numbers, len(self._owners.nodes))
        self._nodes[row] = len(self._feeds[row].nodes)
        self._told = None

    def _name_supplies(self) -> None:
        """Give every power supply the feed that it is said to hang on, as an attribute."""
        psus = self._tables.get("psu")
        if psus is None or psus.listed == self._psus_listed:
            return
        self._psus_listed = psus.listed
        for one in self._feeds:
            for supply in one.supplies:
                for row in psus.of_node.get(self._numbers.get(supply.node, -1), ()) if supply.psus else ():
                    attrs = psus.attrs[row]
                    if supply.psus and {psus.keys[row], attrs.get("name")} & {*supply.psus}:
                        psus.say(row, {**attrs, "feed": one.name})

    def claimed(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of the ``pdu`` table that a feed stands for; those of them of whose feed an event is told."""
        mine = self._spoken >= 0
        return np.unique(self._spoken[mine]), np.unique(self._spoken[mine & self._open[:, None]])

    def _silent(self) -> Mask:
        """[feeds] whose PDU does not answer."""
        devices = self._tables.get("device")
        if devices is None or not devices.rows:
            return np.zeros(len(self._feeds), np.bool_)
        down = np.zeros(len(self._owners), np.bool_)
        rows = slice(0, devices.rows)
        down[devices.node[rows][devices.columns.col("reachable") == 0]] = True
        out: Mask = (self._pdu >= 0) & down[np.maximum(self._pdu, 0)]
        return out

    def _carried(
        self, estimate: Estimate, silent: Mask, now: float,
    ) -> tuple[feed.Carried, tuple[Mask, Mask], Floats, Floats, feed.Held]:
        """What the feeds carry, whose breaker is open and whose supply is gone by the PDU's word, when that was read,
        how often it is, and the limits."""
        count = len(self._feeds)
        pdu = self._tables.get("pdu")
        amps, why = np.full(count, np.nan), np.full(count, Why.NEVER_READ, np.uint16)
        watts, volts, neutral = np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.nan)
        at, interval = np.full(count, -np.inf), np.full(count, np.nan)
        measured = np.full(count, np.nan)
        bound, partial, absurd, tripped, cut = (np.zeros(count, np.bool_) for _ in range(5))
        level, limits = np.full(count, np.nan), np.full((3, count), np.nan)
        derived = np.zeros(count, np.bool_)
        if pdu is not None and pdu.rows:
            rows, used = np.maximum(self._rows, 0), self._rows >= 0
            c = pdu.columns
            fresh = pdu.fresh(now, self._freshness) & pdu.present[: pdu.rows]

            read = reader(c, self._rows, fresh)
            currents, voltages, powers = read("amps"), read("volts"), read("watts")
            amps = worst(currents)
            known = (~np.isnan(currents)).sum(axis=1)
            partial = (known < used.sum(axis=1)) | self._phase_missing
            bound = partial | self._missing
            most = np.argmax(np.where(np.isnan(currents), -1.0, currents), axis=1)
            lines = np.arange(count)
            measured = worst(voltages)
            volts = np.where(np.isnan(voltages[lines, most]), worst(voltages), voltages[lines, most])
            # A whole that does not say how much it is: the sum of its conductors, if all of them do.
            watts = powers.sum(axis=1, where=used)
            watts[~used.any(axis=1)] = np.nan
            whole = np.maximum(self._whole, 0)
            said = np.where((self._whole >= 0) & fresh[whole], c.col("watts")[whole], np.nan)
            watts = np.where(np.isnan(said), watts, said)
            one_phase = (used.sum(axis=1) == 1) & ~self._polyphase
            absurd = power.scales_disagree(currents, voltages, powers).any(axis=1) & one_phase
            level, tripped, cut = told(c, self._spoken, fresh)
            limits = np.array([least(np.where(used, c.col(name)[rows], np.nan)) for name in LIMITS[:3]])
            neutral = self._neutral(currents, known, c.col("amps"), fresh)
            derived = self._from_deltas(amps, volts, watts, c, fresh)
            first = self._first
            has = used.any(axis=1) | derived
            at = np.where(has, pdu.read_at[first], -np.inf)
            interval = np.where(has, pdu.interval[first], np.nan)
            why = np.where(has, np.where(fresh[first], c.why_of("amps")[first], Why.STALE),
                           Why.NEVER_READ).astype(np.uint16)
        why = np.where(self._no_part != Why.KNOWN, self._no_part, why)
        why = np.where(self._metered & (self._pdu < 0), _NO_PDU, why)
        why = np.where(silent, _NO_ANSWER, why)
        for values in (amps, volts, watts, neutral, level):
            values[silent] = np.nan
        tripped, cut = tripped & ~silent, cut & ~silent
        self._partial, self._measured_volts = partial & ~silent, np.where(silent, np.nan, measured)
        volts = np.where(np.isnan(volts) & (~np.isnan(amps) | ~self._metered), self._volts, volts)
        self._worked_out[0] = np.isnan(self._measured_volts) & ~np.isnan(volts)
        # No PDU is named: the power of what hangs on it, over its voltage.
        guess = ~self._metered
        with np.errstate(invalid="ignore", divide="ignore"):
            guessed = power.estimated_amps(estimate.watts, self._volts * self._lines)
        amps, watts = np.where(guess, guessed, amps), np.where(guess, estimate.watts, watts)
        at, interval = np.where(guess, estimate.read_at, at), np.where(guess, estimate.interval, interval)
        bound = np.where(guess, estimate.lower_bound | self._polyphase, bound)
        unmetered = np.where(np.isnan(estimate.watts), _NOTHING, np.where(np.isnan(self._volts), _NO_VOLTS, 0))
        why = np.where(guess, unmetered, why).astype(np.uint16)
        coverage = np.where(guess, estimate.coverage, np.where(np.isnan(amps), np.nan, 1.0))
        carried = feed.Carried(amps, why, watts, volts, bound, guess | derived, coverage, self._past.before, absurd,
                               neutral, level)
        return carried, (tripped, cut), at, interval, self._hold(limits)

    def _neutral(self, currents: Floats, known: NDArray[np.int64], amps: Floats, fresh: Mask) -> Floats:
        """The neutral's current: as measured, else worked out of the three phases of a star."""
        out = np.full(len(self._feeds), np.nan)
        for row in self._star:
            part = self._parts[row]
            if part.neutral >= 0 and fresh[part.neutral] and not np.isnan(amps[part.neutral]):
                out[row] = amps[part.neutral]
                self._worked_out[1, row] = False
            elif len(part.rows) == 3 == known[row] and self._feeds[row].wiring == "star":
                out[row] = power.neutral_amps(*currents[row, :3])
                self._worked_out[1, row] = True
        return out

    def _from_deltas(self, amps: Floats, volts: Floats, watts: Floats, c: Columns, fresh: Mask) -> Mask:
        """Fill the line currents of feeds of which only the loads between the lines are measured."""
        out = np.zeros(len(self._feeds), np.bool_)
        for row in self._delta:
            three = list(self._parts[row].deltas)
            out[row] = True
            if not fresh[three].all():
                continue
            loads = np.where(np.isnan(c.col("apparent_va")[three]), c.col("watts")[three], c.col("apparent_va")[three])
            told = c.col("volts")[three]
            between = float(self._volts[row]) if np.isnan(told).any() else float(told.mean())
            amps[row] = max(float(one) for one in power.line_amps(loads[0], loads[1], loads[2], between))
            volts[row] = between
            if np.isnan(watts[row]):
                watts[row] = float(c.col("watts")[three].sum())
        return out

    # -- what it is held against ----------------------------------------------------------------------------------

    def _hold(self, device: Floats) -> feed.Held:
        """The limits of every feed; *device*: [rating, warning, critical; feeds] as the devices have them."""
        if self._limits is not None and np.array_equal(self._limits[0], device, equal_nan=True):
            return self._limits[1]
        count = len(self._feeds)
        rating, warning, critical = (np.full(count, np.nan) for _ in range(3))
        by_device, unrated, disagree = np.zeros(count, np.bool_), np.ones(count, np.bool_), np.full(count, np.nan)
        for row in range(count):
            ours = _known(self._rating[row])
            own, *theirs = (_known(value) for value in device[:, row])
            found = power.limits(ours, own, theirs[0], theirs[1], self._warning, self._critical)
            rating[row] = _number(ours if ours is not None else own)
            warning[row], critical[row] = _number(found.warning_amps), _number(found.critical_amps)
            by_device[row], unrated[row] = found.source == "device limits", ours is None
            if ours is not None and any(value is not None for value in (own, *theirs)):
                disagree[row] = float(bool(found.disagreement))
            self._said[row] = {"limits": found.source, "disagreement": found.disagreement}
        held = feed.Held(rating, warning, critical, by_device, unrated, disagree)
        self._limits = (device.copy(), held)
        return held

    def _scale(self, carried: feed.Carried, new: Mask) -> Mask:
        """[feeds] where amps, volts and watts did not fit together at two readings."""
        self._absurd_before = np.where(new, self._absurd, self._absurd_before)
        self._absurd = np.where(new, carried.absurd, self._absurd)
        return self._absurd & self._absurd_before

    # -- what becomes of it ---------------------------------------------------------------------------------------

    def _nodes_lost(self, now: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[feeds] nodes that do not answer, and those of them that stopped within the last minutes."""
        ends, count = self._estimates, len(self._feeds)
        nodes = self._tables.get("node")
        if nodes is None or not nodes.rows:
            return np.zeros(count, np.int64), np.zeros(count, np.int64)
        c = nodes.columns
        owner = nodes.node[: nodes.rows]
        lost = np.zeros(len(self._lost_since), np.bool_)
        lost[owner[(c.col("reachable") == 0) | (c.col("frame_age_seconds") > SILENT_SECONDS)]] = True
        self._lost_since = np.where(lost, np.fmin(self._lost_since, now), np.nan)
        just = lost & (now - self._lost_since <= SETTLED_SECONDS) & (self._lost_since > self._began)
        return (np.bincount(ends.feed[lost[ends.node]], minlength=count),
                np.bincount(ends.feed[just[ends.node]], minlength=count))

    def _foretell(self, carried: feed.Carried, held: feed.Held, now: float) -> None:
        past, t = self._past, self._table.columns
        past.foretell(held.rating, now)
        unknown = np.where(np.isnan(carried.amps), np.where(carried.why > 0, carried.why, Why.NOT_PROVIDED),
                           past.reason).astype(np.uint16)
        sure = past.confidence >= power.CONFIDENCE
        usable = ~np.isnan(carried.amps) & ~np.isnan(past.gap)
        for name, limit in (("to_warning_seconds", held.warning), ("to_critical_seconds", held.critical),
                            ("to_rating_seconds", held.rating)):
            with np.errstate(invalid="ignore", divide="ignore"):
                seconds = np.maximum(past.gap - (held.rating - limit), 0.0) / past.slope
            shown = usable & sure & (seconds <= np.fmin(power.HORIZON_SECONDS, AHEAD * past.seen_seconds))
            _put(t, name, np.where(shown, seconds, np.nan), unknown)
            if name == "to_critical_seconds":
                capped = np.where(shown, seconds, np.where(usable, power.HORIZON_SECONDS, np.nan))
                _put(t, "limit_in_seconds", capped, unknown)
        _put(t, "slope_amps_per_second", np.where(usable, past.slope, np.nan), unknown)
        _put(t, "forecast_confidence_ratio", np.where(usable, past.confidence, np.nan), unknown)

    def _say(self, estimate: Estimate, held: feed.Held) -> None:
        """Give the rows their words, where these have changed."""
        table = self._table
        now = (held, estimate.counted.tobytes(), estimate.gpu_only.tobytes(), self._worked_out.tobytes())
        if now == self._told:
            return
        self._told = now
        for row, one in enumerate(self._feeds):
            source = "pdu" if one.pdu else _source(int(estimate.counted[row]), int(estimate.gpu_only[row]))
            attrs: dict[str, Attr] = {
                "name": one.name, "pair": one.pair, "pdu": one.pdu, "part": one.part, "rack": one.rack,
                "source": source, "nodes": fold(one.nodes),
                **({"volts_by": "configured"} if self._worked_out[0, row] else {}),
                **({"neutral_by": "worked out of the phases"} if self._worked_out[1, row] else {}),
                **self._said[row]}
            if table.attrs[row] != attrs:
                table.say(row, attrs)


def _source(counted: int, gpu_only: int) -> str:
    if not counted:
        return "none"
    if gpu_only == counted:
        return f"{FROM_GPU}: only the GPUs"
    return FROM_BMC + (f", of {gpu_only} nodes only the GPUs" if gpu_only else "")


def _put(t: Columns, name: str, values: Floats, why: NDArray[np.uint16]) -> None:
    number = t.spec.index[name]
    t.values[number] = values
    t.why[number] = np.where(np.isnan(values), why, Why.KNOWN)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
