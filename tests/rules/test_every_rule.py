"""Each rule that ships, through every state, by its own limits, counts and durations; and gaps and restarts in each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clustertop.model import Severity
from clustertop.rules.spec import Clear, Level, Rule, builtin
from clustertop.rules.verdicts import Change, Verdicts

RULES = builtin()
every_rule = pytest.mark.parametrize("name", sorted(RULES))
NAN = float("nan")


def readings(one: Level | Clear) -> int:
    """How many readings, one a second, fulfil it."""
    if isinstance(one, Level):
        return max(one.for_polls, math.ceil(one.for_seconds) + 1)
    return max(one.polls, math.ceil(one.seconds) + 1)


class Row:
    """One thing under one rule, read once a second."""

    def __init__(self, name: str) -> None:
        self.rule: Rule = RULES[name]
        self.state = Verdicts(name, self.rule)
        self.levels = self.rule.levels()
        self.now = 100.0
        self.reads = 0
        limits = [level.limit for _, level in self.levels]
        far = max(abs(limits[-1]), 1.0) * (1 if self.rule.upward else -1)
        ends = [*limits[1:], limits[-1] + far]
        on_limit = self.rule.op in {">=", "<="}
        self.beyond = [limit if on_limit else limit + (far if end == limit else (end - limit) / 2)
                       for limit, end in zip(limits, ends, strict=True)]
        """By level, a value that breaches it, and no graver one where their limits differ."""
        clear = limits[0] if self.rule.clear.limit is None else self.rule.clear.limit
        self.fine = clear - far if on_limit else clear
        self.between = (clear + limits[0]) / 2 if clear != limits[0] else None

    def read(self, value: float, times: int = 1, *, settling: bool = False) -> list[Change]:
        out = []
        for _ in range(times):
            self.now += 1.0
            self.reads += 1
            out.append(self.state.evaluate(np.array([value]), np.array([self.reads]), self.now, self.now, None,
                                           np.array([True]) if settling else None))
        return [change for change in out if change]

    @property
    def level(self) -> int:
        return int(self.state.level[0]) if len(self.state.level) else 0

    def raise_(self, number: int = 0) -> None:
        self.read(self.beyond[number], readings(self.levels[number][1]))
        assert self.level >= self.levels[number][0]

    def restart(self) -> None:
        """The console starts anew, with what it remembers."""
        state = Verdicts(self.state.name, self.rule)
        if self.level:
            state.restore(0, Severity(self.level), float(self.state.since[0]), 0.0, float(self.state.value[0]))
        self.state = state


@every_rule
def test_it_is_raised_at_its_last_reading_and_not_one_before(name: str) -> None:
    row = Row(name)
    need = readings(row.levels[0][1])
    assert row.read(row.beyond[0], need - 1) == []
    row.read(row.fine)
    assert row.read(row.beyond[0], need - 1) == []
    assert [change.raised for change in row.read(row.beyond[0])] == [[0]]
    assert row.level == row.levels[0][0]


@every_rule
def test_it_holds_between_its_limits_and_ends_at_its_last_good_reading(name: str) -> None:
    row = Row(name)
    row.raise_()
    if row.between is not None:
        assert row.read(row.between, 200) == []
    need = readings(row.rule.clear)
    assert row.read(row.fine, need - 1) == []
    row.read(row.beyond[0])
    assert row.read(row.fine, need - 1) == []
    assert [change.cleared for change in row.read(row.fine)] == [[0]]


@every_rule
def test_it_worsens_and_eases_level_by_level(name: str) -> None:
    row = Row(name)
    row.raise_()
    since = row.state.since[0]
    for number, (severity, level) in list(enumerate(row.levels))[1:]:
        changes = row.read(row.beyond[number], readings(level))
        assert [change.worsened for change in changes] == [[0]]
        assert row.level == severity
    for number in range(len(row.levels) - 2, -1, -1):
        if row.levels[number][1].limit == row.levels[number + 1][1].limit:
            continue
        need = max(readings(row.rule.clear), readings(row.levels[number][1]))
        assert [change.eased for change in row.read(row.beyond[number], need)] == [[0]]
        assert row.level == row.levels[number][0]
    assert row.state.since[0] == since, "it is the same alert all the time"


@every_rule
def test_a_gap_changes_nothing_in_any_state(name: str) -> None:
    row = Row(name)
    need, good = readings(row.levels[0][1]), readings(row.rule.clear)
    row.read(row.fine)
    assert row.read(NAN, 400) == []
    for _ in range(need - 1):
        row.read(row.beyond[0])
        assert row.read(NAN) == []
    row.raise_()
    assert row.read(NAN, 400) == []
    assert row.level == row.levels[0][0]
    if good > 1:
        row.read(row.fine)
        assert row.read(NAN, 400) == [], "silence is no good reading"
        assert row.level == row.levels[0][0]
    row.read(row.fine, good)
    assert row.level == 0


@every_rule
def test_a_restart_loses_nothing_and_ends_nothing_in_any_state(name: str) -> None:
    row = Row(name)
    need, good = readings(row.levels[0][1]), readings(row.rule.clear)
    row.read(row.fine)
    row.restart()
    row.read(row.beyond[0], need - 1)
    row.restart()
    assert row.read(row.beyond[0], need - 1) == [], "what was on its way begins anew"
    row.raise_()
    since = row.state.since[0]
    row.restart()
    assert row.read(NAN, 50) == []
    assert row.read(row.beyond[0]) == [], "it is not raised twice"
    assert row.state.since[0] == since
    row.read(row.fine, good - 1)
    if good > 1:
        row.restart()
        assert row.read(row.fine, good - 1) == [], "what was on its way back begins anew as well"
    assert [change.cleared for change in row.read(row.fine)] == [[0]]


@every_rule
def test_while_it_settles_nothing_is_raised_and_what_outlives_it_is_at_its_end(name: str) -> None:
    row = Row(name)
    need = readings(row.levels[0][1])
    assert row.read(row.beyond[0], need + 50, settling=True) == []
    assert [change.raised for change in row.read(row.beyond[0])] == [[0]]
    level = row.level
    assert level
    assert row.read(NAN, 10, settling=True) == []
    assert row.level == level, "what fired goes on"


@every_rule
def test_h1_a_swing_around_the_limit_is_one_alert(name: str) -> None:
    """H1 a): one alert from the first confirmed crossing until it has been well for as often as the rule asks."""
    row = Row(name)
    row.raise_()
    good = readings(row.rule.clear)
    if good > 1 or row.between is not None:
        for _ in range(30):
            assert row.read(row.between if row.between is not None else row.fine) == []
            assert all(not change.raised and not change.cleared for change in row.read(row.beyond[0]))
        assert row.level
    else:
        assert name in {"node_unreachable", "node_stale", "probe_hung", "group_failed", "group_stale"}, "ends at once"
