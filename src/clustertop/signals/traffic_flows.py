"""Flows between nodes as arrays: who is beside whom, each byte once, sums per rack and per scope. Pure.

For a fleet at once. Nodes are numbers 0 to n - 1; n itself stands for everything that is no node of the inventory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.intp]
    Mask = NDArray[np.bool_]

UNKNOWN = -1
"""Neither crosses nor stays: an end is not placed, or the leaves do not tell."""


@dataclass(frozen=True, eq=False, slots=True)
class Pairs:
    """Which rows of a table of peers are about which two nodes. Worked out again only when rows change."""

    nodes: int
    rows: Numbers
    """Rows that leave their node; those of a node with itself are no traffic between nodes."""
    source: Numbers
    """[pairs] each direction is a pair of its own."""
    target: Numbers
    sends: Numbers
    """[rows] the pair of what the row's node sends to its peer."""
    receives: Numbers
    """[rows] the pair of what it receives from it."""
    links: Numbers
    """[rows] both directions together."""
    ends: NDArray[np.intp]
    """[links, 2] the two nodes, the lower first."""
    order: Numbers
    """Rows by link, and where each link begins in that order: for minima and maxima."""
    starts: Numbers
    told_sent: NDArray[np.intp]
    """[pairs] rows that tell of it as what is sent, and as what is received."""
    told_received: NDArray[np.intp]
    unheard: Mask
    """[pairs] of which no row tells as of what is received."""

    @property
    def codes(self) -> Numbers:
        """[pairs] source and target as one number, ascending."""
        return self.source * (self.nodes + 1) + self.target


def pair_up(reporter: Numbers, peer: Numbers, nodes: int) -> Pairs:
    """Return the pairs of a table of peers.

    Args:
        reporter: [rows] number of the node that tells.
        peer: [rows] number of its peer; *nodes* where it is no node.
        nodes: how many nodes there are.
    """
    rows = np.flatnonzero(reporter != peer)
    reporter, peer = reporter[rows].astype(np.intp), peer[rows].astype(np.intp)
    width = nodes + 1
    codes = np.concatenate([reporter * width + peer, peer * width + reporter])
    known, place = np.unique(codes, return_inverse=True)
    place = place.reshape(-1)
    low, high = np.minimum(reporter, peer), np.maximum(reporter, peer)
    both, links = np.unique(low * width + high, return_inverse=True)
    links = links.reshape(-1)
    order = np.argsort(links, kind="stable")
    starts = np.searchsorted(links[order], np.arange(len(both)))
    sends, receives = place[: len(rows)], place[len(rows) :]
    heard = np.bincount(receives, minlength=len(known))
    return Pairs(
        nodes, rows, known // width, known % width, sends, receives, links,
        np.stack([both // width, both % width], axis=1), order, starts,
        np.bincount(sends, minlength=len(known)), heard, heard == 0)


def once(pairs: Pairs, sent: Floats, received: Floats, read: Mask) -> Floats:
    """Return [pairs] bytes from source to target, each once though both ends may tell; NaN where nobody does.

    What the sender says counts. What the receiver says counts where the sender is not read, or did not tell of all its
    addresses. A sender that is read and has no row for the target sends it nothing.

    Args:
        pairs: of :func:`pair_up`.
        sent: [rows of the table] bytes to the peer, NaN where unknown.
        received: [rows of the table] bytes from it.
        read: [nodes] whether the node's table of peers is known now.
    """
    count = len(pairs.source)
    told, lost = _added(pairs.sends, sent[pairs.rows], count)
    heard, missed = _added(pairs.receives, received[pairs.rows], count)
    # Where no row is unknown, a pair that is not heard of is told of. Nearly all are such.
    out: Floats = np.where(np.append(read, False)[pairs.source] | pairs.unheard, told, heard)
    if lost is None and missed is None:
        return out
    none = np.zeros(count, np.intp)
    lost, missed = none if lost is None else lost, none if missed is None else missed
    some = np.flatnonzero((lost > 0) | (missed > 0))
    told, heard, lost, missed = told[some], heard[some], lost[some], missed[some]
    reads = np.append(read, False)[pairs.source[some]]
    some_told, some_heard = pairs.told_sent[some] > lost, pairs.told_received[some] > missed
    part = np.fmax(np.where(some_told, told, np.nan), np.where(some_heard, heard, np.nan))
    whole_heard = some_heard & (missed == 0)
    by_receiver = np.where(whole_heard, heard, part)
    # Its own rows may all be there and unknown (first seen): then its silence is no zero.
    out[some] = np.where(reads & (lost == 0), told, by_receiver)
    return out


def _added(place: Numbers, values: Floats, count: int) -> tuple[Floats, NDArray[np.intp] | None]:
    """[count] the sum of the known *values* of each place, and how many are unknown; None: none is."""
    unknown = np.isnan(values)
    if not unknown.any():
        return total(place, values, count), None
    return total(place, np.where(unknown, 0.0, values), count), np.bincount(place[unknown], minlength=count)


def total(place: Numbers, values: Floats | Mask, count: int) -> Floats:
    """[count] the sum of the *values* of each place."""
    return np.bincount(place, values, count).astype(np.float64, copy=False)


def crosses_rack(pairs: Pairs, rack: Numbers) -> NDArray[np.int8]:
    """[pairs] 1: between racks, 0: within one, UNKNOWN. *rack* is [nodes], negative where it is not known."""
    placed = np.append(rack, -1)
    here, there = placed[pairs.source], placed[pairs.target]
    return np.where((here < 0) | (there < 0), UNKNOWN, here != there).astype(np.int8)


def crosses_spine(pairs: Pairs, leaves: Mask) -> NDArray[np.int8]:
    """[pairs] 1: the nodes share no leaf, 0: both hang on one leaf only and it is the same, UNKNOWN.

    *leaves* is [nodes, leaves]. Nodes on several leaves (rails) that share one may use it or not: which port a flow
    takes is not told.
    """
    hung = np.concatenate([leaves, np.zeros((1, leaves.shape[1]), np.bool_)])
    count = hung.sum(axis=1)
    if count.max(initial=0) <= 1:
        which = np.where(count == 1, hung.argmax(axis=1), -1) if hung.shape[1] else np.full(len(hung), -1)
        shared = which[pairs.source] == which[pairs.target]
    else:
        shared = np.zeros(len(pairs.source), np.bool_)
        for column in hung.T:
            shared |= column[pairs.source] & column[pairs.target]
    here, there = count[pairs.source], count[pairs.target]
    out = np.where(shared, np.where((here == 1) & (there == 1), 0, UNKNOWN), 1)
    return np.where((here == 0) | (there == 0), UNKNOWN, out).astype(np.int8)


def rack_codes(pairs: Pairs, rack: Numbers, racks: int) -> Numbers:
    """[pairs] where each stands in the matrix of :func:`rack_matrix`; the last rack is what is in none."""
    placed = np.append(rack, -1)
    placed = np.where(placed < 0, racks, placed)
    out: Numbers = placed[pairs.source] * (racks + 1) + placed[pairs.target]
    return out


def rack_matrix(codes: Numbers, amount: Floats, racks: int) -> Floats:
    """[racks + 1, racks + 1] bytes from rack to rack; the last one is what is in no rack. *amount* has no unknown."""
    return total(codes, amount, (racks + 1) ** 2).reshape(racks + 1, racks + 1)


# ---- scopes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Scopes:
    """Which pairs belong to which scope: those between its nodes, and those with what is no node."""

    count: int
    scope: Numbers
    """[entries]"""
    pair: Numbers
    """[entries]"""
    whole: tuple[int, ...]
    """Scopes of all pairs; they have no entries."""


class Layers:
    """Scopes sorted into layers in which no node has two: so one look at all pairs finds the scope of each."""

    def __init__(self, nodes: int, members: Sequence[Numbers]) -> None:
        """*members* has the nodes of each scope; a node may be in several."""
        self.count = len(members)
        self.whole: list[int] = []
        """Scopes of all nodes: every pair is theirs."""
        self.layers: list[Numbers] = []
        """[nodes + 1] each: the node's scope, -1 where it has none; the last one is what is no node."""
        for number, mine in enumerate(members):
            if len(mine) == nodes:
                self.whole.append(number)
                continue
            layer = next((one for one in self.layers if (one[mine] < 0).all()), None)
            if layer is None:
                layer = np.full(nodes + 1, -1, np.intp)
                self.layers.append(layer)
            layer[mine] = number


def scopes_of(pairs: Pairs, layers: Layers) -> Scopes:
    """Return the pairs of each scope but for those of all nodes."""
    scope, pair = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
    outside_source, outside_target = pairs.source == pairs.nodes, pairs.target == pairs.nodes
    for layer in layers.layers:
        first, second = layer[pairs.source], layer[pairs.target]
        # A pair of two outsiders does not exist: every row has its own node at one end.
        mine = np.where(outside_source, second, first)
        found = np.flatnonzero((mine >= 0) & ((first == second) | outside_source | outside_target))
        scope.append(mine[found])
        pair.append(found)
    return Scopes(layers.count, np.concatenate(scope), np.concatenate(pair), tuple(layers.whole))


@dataclass(frozen=True, eq=False, slots=True)
class Split:
    """The entries of scopes by what their pairs do: those that cross, stay, or are not placed."""

    count: int
    place: Numbers
    """[entries] the scope and what the pair does, as one number."""
    pair: Numbers
    """[entries]"""
    whole: tuple[int, ...]
    all: tuple[Floats, Floats, Floats]
    """[pairs] each: 1 for those that cross, stay, are not placed; else 0."""


def split(scopes: Scopes, crosses: NDArray[np.int8]) -> Split:
    """Sort the entries of *scopes* by *crosses*, [pairs]; worked out again only when pairs or scopes change."""
    kind = np.where(crosses == 1, 0, np.where(crosses == 0, 1, 2))
    return Split(scopes.count, kind[scopes.pair] * scopes.count + scopes.scope, scopes.pair, scopes.whole,
                 ((kind == 0).astype(np.float64), (kind == 1).astype(np.float64), (kind == 2).astype(np.float64)))


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Per scope, [scopes]: bytes that cross, that are placed, that are not, and these of all (NaN without any)."""

    crossing: Floats
    placed: Floats
    unplaced: Floats
    unplaced_ratio: Floats


def sums(parts: Split, amount: Floats) -> Sums:
    """Add each scope's pairs up. *amount* is [pairs]; a pair of unknown bytes is 0 in it."""
    crossing, staying, lost = total(parts.place, amount[parts.pair], 3 * parts.count).reshape(3, parts.count)
    for number in parts.whole:
        # einsum, not dot: that one starts threads.
        crossing[number], staying[number], lost[number] = (
            np.einsum("i,i->", which, amount) for which in parts.all)
    placed = crossing + staying
    every = placed + lost
    with np.errstate(invalid="ignore", divide="ignore"):
        return Sums(crossing, placed, lost, np.where(every > 0, lost / every, np.nan))


# ---- latency -------------------------------------------------------------------------------------------------------


def of_links(pairs: Pairs, values: Floats) -> Floats:
    """[links] the largest of *values*, [rows of the table], that either end tells; NaN where neither does."""
    if not len(pairs.starts):
        return np.empty(0)
    out: Floats = np.fmax.reduceat(values[pairs.rows][pairs.order], pairs.starts)
    return out


def worse_end(pairs: Pairs, values: Floats) -> Numbers:
    """[links] the node that has the higher mean of *values*, [links], over its own links: whose trouble it likely is.

    A link has two ends, and one bad end makes all of its links bad: so each is laid at one door only.
    """
    known = ~np.isnan(values) & (pairs.ends[:, 1] < pairs.nodes)
    count = np.zeros(pairs.nodes + 1)
    summed = np.zeros(pairs.nodes + 1)
    for end in (0, 1):
        who = pairs.ends[known, end]
        count += np.bincount(who, minlength=pairs.nodes + 1)
        summed += total(who, values[known], pairs.nodes + 1)
    mean = summed / np.maximum(count, 1)
    first, second = pairs.ends[:, 0], pairs.ends[:, 1]
    # Of two that are alike, the one with more links: the hub, not the spoke.
    ahead = (mean[second] > mean[first]) | ((mean[second] == mean[first]) & (count[second] > count[first]))
    return np.where(ahead & (second < pairs.nodes), second, first)


def largest(owner: Numbers, values: Floats, count: int) -> tuple[Floats, Numbers]:
    """[count] the largest known value of each owner and its position, or NaN and -1."""
    out, where = np.full(count, np.nan), np.full(count, -1, np.intp)
    rows = np.flatnonzero(~np.isnan(values) & (owner < count))
    who, known = owner[rows], values[rows]
    np.fmax.at(out, who, known)
    last = known == out[who]
    where[who[last]] = rows[last]  # of those that are alike the last one stays
    return out, where
