"""Device profiles as data: what a file may say, what is refused, and what its fields do."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from clustertop.sources.oids import Pattern, oid
from clustertop.sources.pdu_reading import interpret
from clustertop.sources.profile import ProfileError, parse, profiles, recognise

if TYPE_CHECKING:
    from clustertop.sources.oids import Oid, Value
    from clustertop.sources.pdu_reading import PartReading, PduReading

BASE: Oid = (1, 3, 6, 1, 4, 1, 99999)
HEAD = """
title = "a PDU"
source = "a page"
base = "1.3.6.1.4.1.99999"
match = [{ object_id = "1.3.6.1.4.1.99999" }]
"""


def read(parts: str, rows: dict[tuple[int, ...], Value], head: str = HEAD) -> PduReading:
    return interpret(parse(head + parts, "x"), {(*BASE, *name): value for name, value in rows.items()})


def only(parts: str, rows: dict[tuple[int, ...], Value], head: str = HEAD) -> PartReading:
    part, = read(parts, rows, head).parts
    return part


def amps(field: str, rows: dict[tuple[int, ...], Value], head: str = HEAD) -> tuple[float | None, str]:
    part = only(f'[[parts]]\nkind = "phase"\nname = "L{{0}}"\nvolts = {{ oid = ".9.*" }}\namps = {field}\n',
                {(9, 1): 230, **rows}, head)
    return part.amps, part.unknown.get("amps", "")


@pytest.mark.parametrize(("text", "said"), [
    ("title = 1", "Expected `str`"), ("[[parts]]\nkind = 'phse'\nname = 'x'\namps = { oid = '.1.*' }", "phse"),
    ("[[parts]]\nkind = 'phase'\nname = 'x'\namps = { oid = '.1.*', skale = 2 }", "skale"),
    ("[[parts]]\nkind = 'phase'\nname = 'x'\namps = { oid = '.1.x' }", "no number"),
    ("[[parts]]\nkind = 'phase'\nname = 'x'\namps = { oid = '.1.*.*' }", "more than one"),
    ("[[parts]]\nkind = 'phase'\nname = 'x'\namps = { scale = 2 }", "give one of oid, name or value"),
    ("[[parts]]\nkind = 'phase'\nname = 'x'\namps = { oid = '.1.*', scale = 0 }", "above 0"),
    ("[[parts]]\nkind = 'phase'\nname = 'x'", "reads nothing"),
    ("[[parts]]\nkind = 'phase'\nname = 'x'\nstate = { oid = '.1.*', words = { 1 = 'fine' } }", "does not begin with"),
    ("[[parts]]\nkind = 'phase'\nname = 'x'\nnames = '.1.*'\namps = { name = 'A' }", "belong together"),
    ("", "parts"), ("this is = = not toml", "profile x")])
def test_what_is_not_right_is_refused_with_its_place(text: str, said: str) -> None:
    head = "" if "title" in text else HEAD
    with pytest.raises(ProfileError, match="profile x") as error:
        parse(head + text, "x")
    assert said in str(error.value)


def test_all_of_ours_are_right() -> None:
    assert len(profiles()) >= 30
    for name, profile in profiles().items():
        assert profile.name == name
        assert profile.title
        assert "MIB" in profile.source or name == "aten-pe"
        assert profile.columns()


def test_columns_to_read_are_few_and_none_lies_below_another() -> None:
    for profile in profiles().values():
        columns = profile.columns()
        assert columns == sorted(columns)
        for one, other in itertools.pairwise(columns):
            assert other[:len(one)] != one


@pytest.mark.parametrize(("raw", "field", "value", "reason"), [
    (47, '{ oid = ".1.*", scale = 0.1 }', 4.7, ""),
    (-1, '{ oid = ".1.*", scale = 0.1 }', None, "not provided"),
    (0, '{ oid = ".1.*" }', 0, ""),
    (0, '{ oid = ".1.*", zero = false }', None, "not provided"),
    (99999, '{ oid = ".1.*", invalid = [99999] }', None, "not provided"),
    (2**31 - 1, '{ oid = ".1.*", scale = 0.001 }', None, "not provided"),
    (4294967295, '{ oid = ".1.*", scale = 0.001 }', None, "not provided"),
    (5_000_000, '{ oid = ".1.*" }', None, "out of range"),
    (-930, '{ oid = ".1.*", scale = 0.01, signed = true }', 9.3, ""),
    (12, '{ oid = ".1.*", scaled = false }', None, "its scale is not known (raw 12)"),
    (0, '{ oid = ".1.*", scaled = false }', 0, ""),
    (b"4.75 A", '{ oid = ".1.*" }', 4.75, ""), (b"4750 mA", '{ oid = ".1.*" }', 4.75, ""), (b" 6.5\x00", '{ oid = ".1.*" }', 6.5, ""),
    (b"230 V", '{ oid = ".1.*" }', None, "not provided"), (b"", '{ oid = ".1.*" }', None, "not provided"),
    (b"N/A", '{ oid = ".1.*" }', None, "not provided"), (b"notsupported ", '{ oid = ".1.*" }', None, "not provided"),
    (b"200-240V, 32A, 7.4kVA", '{ oid = ".1.*", find = \'(\\d+)A\\b\' }', 32, ""),
    ("1.3.6.1", '{ oid = ".1.*" }', None, "not provided"), (3.5, '{ oid = ".1.*" }', 3.5, ""),
])
def test_a_raw_value_becomes_a_number_or_unknown(raw: Value, field: str, value: float | None, reason: str) -> None:
    found, why = amps(field, {(1, 1): raw})
    assert found == value
    assert reason in why
    assert bool(why) == (value is None)


def test_digits_exponents_and_divisors_stand_beside_the_value() -> None:
    assert amps('{ oid = ".1.*", digits = ".2.*" }', {(1, 1): 7467, (2, 1): 3}) == (7.467, "")
    assert amps('{ oid = ".1.*", digits = ".2.*" }', {(1, 1): 7467}) == (None, "its decimal digits are unknown")
    assert amps('{ oid = ".1.*", exponent = ".2.*" }', {(1, 1): 1366, (2, 1): -2}) == (13.66, "")
    assert amps('{ oid = ".1.*", divisor = ".2.*" }', {(1, 1): 473, (2, 1): -100}) == (4.73, "")
    assert amps('{ oid = ".1.*", divisor = ".2.*" }', {(1, 1): 4, (2, 1): 10}) == (40, "")
    assert amps('{ oid = ".1.*", divisor = ".2.*" }', {(1, 1): 473, (2, 1): 0}) == (None, "its scale is unknown")


def test_a_scale_may_depend_on_the_firmware() -> None:
    head = HEAD + '[device]\nfirmware = ".8.1"\n'
    field = '{ oid = ".1.*", scale = 0.1, firmware = [{ match = "^ ?1[.]", scale = 0.01 }] }'
    assert amps(field, {(1, 1): 470, (8, 1, 0): b"1.9"}, head) == (4.7, "")
    assert amps(field, {(1, 1): 47, (8, 1, 0): b"2.0"}, head) == (4.7, "")


def test_the_first_field_that_has_a_value_is_taken() -> None:
    field = '[{ oid = ".1.*", scale = 0.1 }, { oid = ".2.0" }]'
    assert amps(field, {(1, 1): 47, (2, 0): 9})[0] == 4.7
    assert amps(field, {(1, 1): -1, (2, 0): 9})[0] == 9
    assert amps(field, {(2, 0): 9})[0] == 9
    assert amps(field, {}) == (None, "not provided")


@pytest.mark.parametrize(("bits", "warn", "crit"), [
    (b"\x30", 20, 25), (b"\x10", None, 25), (b"\x20", 20, None), (b"\x00", None, None),
    (b"30 2 3 ", 20, 25), (b"20 2", 20, None), (b"00", None, None), (b"", None, None), (48, None, None)])
def test_a_limit_counts_only_where_its_bit_is_set(bits: Value, warn: float | None, crit: float | None) -> None:
    part = only(
        '[[parts]]\nkind = "phase"\nname = "L"\namps = { oid = ".1.*" }\n'
        'warn_amps = { oid = ".2.*", when = [{ oid = ".4.*", bit = 2 }] }\n'
        'crit_amps = { oid = ".3.*", when = [{ oid = ".4.*", bit = 3 }] }\n',
        {(1, 1): 5, (2, 1): 20, (3, 1): 25, (4, 1): bits})
    assert (part.warn_amps, part.crit_amps) == (warn, crit)


def test_a_limit_of_zero_is_none() -> None:
    part = only('[[parts]]\nkind = "phase"\nname = "L"\namps = { oid = ".1.*" }\ncrit_amps = { oid = ".2.*" }\n',
                {(1, 1): 5, (2, 1): 0})
    assert part.crit_amps is None


def test_rows_are_filtered_named_and_labelled() -> None:
    text = """
[[parts]]
kind = "bank"
name = "bank {key}"
key = ".3.*"
unit = "{0}"
label = ".4.*"
where = [{ oid = ".3.*", ne = [0] }, { index = 1, ne = [9] }]
amps = { oid = ".1.*" }
rating_amps = { oid = ".5.{0}.{key}" }
"""
    rows: dict[tuple[int, ...], Value] = {}
    for index, bank in (((1, 1), 0), ((1, 2), 7), ((2, 3), 8), ((2, 9), 9)):
        rows |= {(1, *index): 5, (3, *index): bank, (4, *index): b"\x1b[31mr\xc3\xa4ck\x07" }
    rows |= {(5, 1, 7): 16, (5, 2, 8): 20}
    found = [(one.name, one.unit, one.label, one.rating_amps) for one in read(text, rows).parts]
    assert found == [("bank 7", "1", "[31mräck", 16), ("bank 8", "2", "[31mräck", 20)]


def test_rows_that_the_device_calls_the_same_are_told_apart() -> None:
    text = '[[parts]]\nkind = "outlet"\nname = "outlet {0}"\ncalled = ".2.*"\namps = { oid = ".1.*" }\n'
    rows: dict[tuple[int, ...], Value] = {(1, 1): 1, (1, 2): 2, (1, 3): 3, (2, 1): b"srv", (2, 2): b"srv", (2, 3): b" "}
    assert [one.name for one in read(text, rows).parts] == ["srv #1", "srv #2", "outlet 3"]


def test_a_state_has_a_word_and_a_level() -> None:
    text = '[[parts]]\nkind = "bank"\nname = "b"\namps = { oid = ".1.*" }\nstate = { oid = ".2.*", words = { 0 = "tripped:open", 1 = "ok" } }\n'
    for raw, word, level in ((0, "open", "tripped"), (1, "ok", "ok"), (7, "7", "unknown")):
        part = only(text, {(1, 1): 3, (2, 1): raw})
        assert (part.state, part.level) == (word, level)
    assert only(text, {(1, 1): 3}).level == "unknown", "no state is not ok"


def test_no_power_beside_a_current_is_no_zero() -> None:
    text = '[[parts]]\nkind = "phase"\nname = "L"\namps = { oid = ".1.*" }\nvolts = { oid = ".2.*" }\nwatts = { oid = ".3.*" }\n'
    part = only(text, {(1, 1): 4, (2, 1): 230, (3, 1): 0})
    assert (part.watts, part.unknown["watts"]) == (None, "0 W at 4 A")
    assert only(text, {(1, 1): 0, (2, 1): 230, (3, 1): 0}).watts == 0


def test_the_longest_object_id_wins_then_the_description_then_the_tree() -> None:
    def made(name: str, match: str) -> object:
        head = HEAD.replace('match = [{ object_id = "1.3.6.1.4.1.99999" }]', f"match = [{match}]")
        return parse(head + "[[parts]]\nkind = 'phase'\nname = 'L'\namps = { oid = '.1.*' }", name)

    known = [made("tree", '{ tree = "1.3.6.1.4.1.99999" }'), made("vendor", '{ object_id = "1.3.6.1.4.1.99999" }'),
             made("model", '{ object_id = "1.3.6.1.4.1.99999.5" }'),
             made("words", '{ object_id = "1.3.6.1.4.1.99999.5", descr = "^Big" }')]

    def pick(object_id: str, descr: bytes = b"") -> str:
        rows: dict[Oid, Value] = {oid("1.3.6.1.2.1.1.2.0"): object_id, oid("1.3.6.1.2.1.1.1.0"): descr, (*BASE, 1, 1): 4}
        found = recognise(rows, known)  # type: ignore[arg-type]
        return found.name if found else ""

    assert pick("1.3.6.1.4.1.99999.5.1", b"Big one") == "words"
    assert pick("1.3.6.1.4.1.99999.5.1", b"small") == "model"
    assert pick("1.3.6.1.4.1.99999.6") == "vendor"
    assert pick("1.3.6.1.4.1.999991") == "tree", "99999 is no prefix of 999991"
    assert pick("nonsense") == "tree"


def test_patterns() -> None:
    star = Pattern.of("1.2.*.9")
    assert star.index((1, 2, 5, 6, 9)) == (5, 6)
    assert star.index((1, 2, 9)) is None, "no index"
    assert star.index((1, 2, 5, 8)) is None
    assert star.at((5, 6)) == (1, 2, 5, 6, 9)
    assert Pattern.of("1.2.{-1}.{key}").at((5, 6), 7) == (1, 2, 6, 7)
    assert Pattern.of("1.2.{3}").at((5, 6)) is None
    for bad in ("*", "1..2", "1.{x}", "", "1.²"):
        with pytest.raises(ValueError, match=r"no|beginning"):
            Pattern.of(bad)
