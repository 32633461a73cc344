"""Host notation: what it names, in which order, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from clustertop.hosts import MAX_NODES, NotationError, Target, expand, expand_all, expand_names, fold

D7 = Path(__file__).parents[3] / "shared" / "cases" / "D7"


def names(text: str) -> list[str]:
    return [target.spec for target in expand(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu[001-003],login1", ["gpu001", "gpu002", "gpu003", "login1"]),
        ("login1,gpu[08-11]", ["login1", "gpu08", "gpu09", "gpu10", "gpu11"]),
        ("gpu[5,1-2]", ["gpu5", "gpu1", "gpu2"]),
        ("gpu[1-9/4]", ["gpu1", "gpu5", "gpu9"]),
        ("r[1-2]n[01-02]-ib", ["r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"]),
        ("a b\tc, d ,", ["a", "b", "c", "d"]),
        ("a,b,a", ["a", "b"]),
        ("gpu[1-5]!gpu[2-3]", ["gpu1", "gpu4", "gpu5"]),
        ("gpu[1-3] !gpu1", ["gpu2", "gpu3"]),
        ("gpu[1-4]&gpu[3-9]", ["gpu3", "gpu4"]),
        ("gpu[1-3]^gpu[2-4]", ["gpu1", "gpu4"]),
        ("ops@gpu[1-2]:2222", ["ops@gpu1:2222", "ops@gpu2:2222"]),
        ("ops@corp.example@gpu1", ["ops@corp.example@gpu1"]),
        ("[::1]:2222", ["[::1]:2222"]),
        ("::1,[fe80::1%eth0]", ["::1", "fe80::1%eth0"]),
        ("root@[2001:db8::7]:22", ["root@[2001:db8::7]:22"]),
        ("10.0.0.[1-3]", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ("", []),
    ],
)
def test_what_is_named(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu[001-064", "a bracket is not closed"),
        ("gpu001-064]", "brackets that do not match"),
        ("gpu[1-[2]]", "brackets that do not match"),
        ("gpu[1-x]", "is no range"),
        ("gpu[]", "nothing is no range"),
        ("gpu[-1]", "is no range"),
        ("gpu[3-1]", "write the lower number first"),
        ("gpu[1-3/0]", "is empty"),
        ("gpu[1-010]", "need as many digits"),
        ("gpu[١-٣]", "is no range"),
        ("h:0", "is not a port"),
        ("h:65536", "is not a port"),
        ("h:ssh", "is not a port"),
        ("h:", "is not a port"),
        ("[::1]x", "is not a port"),
        ("[::zz]:1", "is no range"),
        ("1:2:3", "not an IPv6 address"),
        ("@", "no groups are configured"),
        ("user@", "nothing is not a host name"),
        ("@@x", "no groups are configured"),
        ("us er@x;y", "is not a host name"),
        ("$(reboot)", "is not a host name"),
        ("-oProxyCommand=x", "is not a host name"),
        ("ops@-h", "is not a host name"),
        ("-l@h", "is no user name"),
        ("a/b", "is not a host name"),
        ("a" * 300, "is not a host name"),
        ("a,!", "nothing stands after '!'"),
        ("a!,b", "nothing stands between '!' and ','"),
        ("\x1b[31m", "a bracket is not closed"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(NotationError) as caught:
        expand(text)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text", ["a[1-10001]", "a[1-999999999999999]", "a[1-101]b[1-100]", "a[1-9000],b[1-9000]", "a[1-99]" * 9]
)
def test_too_many_are_refused_and_never_cut(text: str) -> None:
    with pytest.raises(NotationError, match=r"at most 10,000 are watched at once"):
        expand(text)
    assert len(expand("a[00001-10000]")) == MAX_NODES


def test_hosts_named_twice_are_told() -> None:
    targets, twice = expand_all(["a[1-3]", "a2,b", "a3"])
    assert [target.host for target in targets] == ["a1", "a2", "a3", "b"]
    assert twice == ["a2", "a3"]
    assert expand_names("r[1-2]") == ["r1", "r2"]


def test_groups_are_asked_for_by_name() -> None:
    asked = []

    def group(name: str) -> list[Target]:
        asked.append(name)
        return [Target("a1"), Target("a2")]

    assert names("x") == ["x"]
    assert [one.host for one in expand("x,@rack:r[1-2],b!@g", group)] == ["x", "b"]
    assert asked == ["rack:r[1-2]", "g"]


@pytest.mark.skipif(not D7.is_dir(), reason="the field's cases are not beside this checkout")
def test_field_case_d7() -> None:
    expected = json.loads((D7 / "expect.json").read_text())
    lists = dict(re.findall(r"Name=(\S+) Nodes=(\S+)", (D7 / "topology.conf").read_text()))
    assert names(lists["b1"]) == expected["b1"]
    assert names(lists["rack02"]) == expected["rack02"]
    assert len(names(lists["rack01"])) == expected["rack01_count"]
    assert names(lists["rack01"])[0] == "gpu001"


_STEM = st.from_regex(r"[a-z][a-z-]{0,5}[a-z]", fullmatch=True)
_HOST = st.one_of(
    _STEM,
    st.builds(lambda a, i, width: f"{a}{i:0{width}d}", _STEM, st.integers(0, 300), st.integers(1, 4)),
    st.builds(lambda a, i, b, j: f"{a}{i}{b}{j:02d}", _STEM, st.integers(0, 3), _STEM, st.integers(0, 20)),
)  # fmt: skip


@given(st.lists(_HOST, max_size=40, unique=True))
def test_folded_names_unfold_to_the_same(hosts: list[str]) -> None:
    folded = fold(hosts)
    assert sorted(names(folded)) == sorted(hosts)
    assert fold(names(folded)) == folded


@given(
    _STEM,
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=4),
)
def test_ranges_mean_what_clustershell_says(stem: str, ranges: list[tuple[int, int, int]]) -> None:
    text = f"{stem}[{','.join(f'{low:03d}-{low + more:03d}/{step}' for low, more, step in ranges)}]"
    assert sorted(names(text)) == sorted(NodeSet(text, resolver=RESOLVER_NOGROUP))


@given(
    st.builds(
        Target,
        st.one_of(_HOST, st.ip_addresses().map(str)),
        st.one_of(st.just(""), st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)),
        st.integers(0, 65535),
    )
)
def test_a_target_reads_its_own_spelling(target: Target) -> None:
    assert expand(target.spec) == [target]


@given(st.text(alphabet="ab0[]-,/!&^@: .%x\x1b\n", max_size=24))
def test_any_text_is_read_or_refused_in_one_sentence(text: str) -> None:
    says, targets = "", []
    try:
        targets = expand(text)
    except NotationError as error:
        says = str(error)
    assert says.isprintable()
    assert all(re.fullmatch(r"[\w.:%-]+", target.host) for target in targets)
    assert not any(target.host.startswith("-") for target in targets)
