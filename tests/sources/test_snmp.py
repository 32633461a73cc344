"""The SNMP client: against a real agent, and against one that misbehaves at the wire."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import pickle
import shutil
import socket
import struct
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pysnmp.proto.api import v2c

from clustertop.sources import snmp, snmp_message
from clustertop.sources.oids import oid
from clustertop.sources.snmp import Agent, Client, SnmpError
from clustertop.sources.snmp_message import Answer, Community, Key, RefusedError, User, codec
from pdus import AUTH_KEY, OURS, PRIVACY_KEY, USERS, Snmpsim, snmprec, snmpsim
from ports import free_udp_port
from snmp_fake import Request, fake, table

if TYPE_CHECKING:
    from pathlib import Path

SYS_DESCR = oid("1.3.6.1.2.1.1.1.0")
EATON = oid("1.3.6.1.4.1.534.6.6.7")
T = (1, 3, 6, 1, 4, 1, 99999, 1)


async def test_every_version_reads_what_the_agent_has(agents: Snmpsim) -> None:
    want = {name: value for name, value in snmprec(OURS / "eaton-g3.snmprec").items() if name[:len(EATON)] == EATON}
    assert len(want) == 29
    for agent in (agents.agent("eaton-g3", version=1), agents.agent("eaton-g3"), agents.secure("eaton-g3")):
        async with Client(agent) as client:
            assert (await client.walk(EATON)).rows == want
            some = sorted(want)[::3]
            absent = (*EATON, 77, 1)
            assert await client.get([*some, absent]) == {name: want[name] for name in some}
            assert await client.next([SYS_DESCR[:-1], (2, 5)]) == [(SYS_DESCR, b"ePDU MA"), None]


@pytest.mark.parametrize(("name", "auth", "privacy"), USERS)
async def test_v3_protocols(name: str, auth: str, privacy: str, agents: Snmpsim) -> None:
    agent = agents.secure("fs-net-pdu", name=name, auth_protocol=auth, privacy_protocol=privacy)
    async with Client(agent) as client:
        assert await client.get([SYS_DESCR]) == {SYS_DESCR: b"net-pdu"}


@pytest.mark.parametrize(("user", "said"), [
    ({"name": "stranger"}, "does not know the SNMPv3 user"),
    ({"auth": Key("wrong horse")}, "authentication key or protocol is wrong"),
    ({"privacy": Key("wrong staple")}, "privacy key or protocol is wrong"),
    ({"auth_protocol": "SHA"}, "authentication key or protocol is wrong"),
    ({"privacy": None}, "does not allow this user this level of security"),
    ({"auth": None, "privacy": None}, "does not allow this user this level of security"),
])
async def test_a_refusal_of_v3_is_one_sentence_that_names_the_agent_and_no_secret(
    user: dict[str, object], said: str, agents: Snmpsim
) -> None:
    async with Client(agents.secure("eaton-g3", **user)) as client:
        with pytest.raises(SnmpError) as refused:
            await client.get([SYS_DESCR])
    assert said in str(refused.value)
    assert f"127.0.0.1:{agents.port}" in str(refused.value)
    told = "".join(traceback.format_exception(refused.value)) + repr(client.agent)
    assert not [key for key in (AUTH_KEY, PRIVACY_KEY, "wrong horse", "wrong staple") if key in told]


@pytest.mark.parametrize("restarted", ["boots counted on", "boots gone back", "another engine"])
async def test_an_engine_that_restarts_is_followed(restarted: str, tmp_path: Path) -> None:
    port, few = free_udp_port(), tmp_path / "few"
    few.mkdir()
    shutil.copy(OURS / "fs-net-pdu.snmprec", few)
    engine = "80004fb8056c616231"
    # The agent counts its boots in a file of its own, below the folder it is given.
    with snmpsim({"": few}, tmp_path / "one", f"--v3-engine-id={engine}", port=port) as agents:
        client = Client(agents.secure("fs-net-pdu", timeout=1.0, retries=2))
        assert await client.get([SYS_DESCR]) == {SYS_DESCR: b"net-pdu"}
        assert await client.get([SYS_DESCR]) == {SYS_DESCR: b"net-pdu"}
    work = tmp_path / ("two" if restarted == "boots gone back" else "one")
    after = engine[:-1] + "2" if restarted == "another engine" else engine
    with snmpsim({"": few}, work, f"--v3-engine-id={after}", port=port):
        assert await client.get([SYS_DESCR]) == {SYS_DESCR: b"net-pdu"}
    client.close()


async def test_a_fleet_shares_an_engine_and_a_dead_agent_makes_no_new_ones(
    agents: Snmpsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    real = snmp_message._Engine

    def counted(who: User) -> object:
        made.append(who)
        return real(who)

    monkeypatch.setattr(snmp_message, "_Engine", counted)
    clients = [Client(agents.secure(name, name="usual", auth_protocol="SHA", timeout=0.5, retries=1))
               for name in ("eaton-g3", "enlogic", "panduit") * 3]
    for answer in await asyncio.gather(*(client.get([SYS_DESCR]) for client in clients)):
        assert answer
    assert len(made) <= 1
    dead = clients[0]
    made.clear()
    dead._attempts = _silent  # type: ignore[method-assign]
    for _ in range(4):
        with pytest.raises(SnmpError, match="no answer"):
            await dead.get([SYS_DESCR])
    assert len(made) == 1, "learnt anew once, in case it had restarted"
    assert await clients[1].get([SYS_DESCR]), "and nobody else minds"
    for client in clients:
        client.close()


async def _silent(*_: object) -> Answer:
    raise TimeoutError


async def test_c15_no_answer_comes_within_its_deadline_and_delays_nobody(agents: Snmpsim) -> None:
    """C15: an agent that drops everything is 'no answer' within timeout x (retries + 1) + 1 s; the others go on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        slow = Agent("127.0.0.1", Community(Key("lab")), silent.getsockname()[1], 600, 0)
        async with Client(slow) as client, Client(agents.agent("eaton-g3")) as alive:
            waiting = asyncio.ensure_future(client.get([SYS_DESCR]))
            for _ in range(5):
                assert await alive.get([SYS_DESCR]) == {SYS_DESCR: b"ePDU MA"}
            assert not waiting.done()
            waiting.cancel()
            await asyncio.wait({waiting})
        assert silent.recv(2000)
        dead = replace(slow, timeout=0.2, retries=2)
        assert dead.deadline == pytest.approx(0.2 * 3 + 1)
        async with Client(dead) as client:
            with pytest.raises(SnmpError, match=r"no answer within 0\.2 s, asked 3 times") as error:
                await client.get([SYS_DESCR])
            assert error.value.silent
            assert client.requests == 3
        silent.setblocking(False)
        heard = [silent.recv(2000) for _ in range(3)]
        assert len(set(heard)) == 1, "the same request again, not another"


async def test_c15_the_deadline_is_ours_whatever_the_codec_does() -> None:
    """C15: a message layer that never says that it is done is cut off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        client = Client(Agent("127.0.0.1", Community(Key("lab")), silent.getsockname()[1], 0.1, 0))

        async def stuck(*_: object) -> None:
            await asyncio.Event().wait()

        client._attempts = stuck  # type: ignore[method-assign, assignment]
        async with asyncio.timeout(60):
            with pytest.raises(SnmpError, match="no answer"):
                await client.get([SYS_DESCR])


async def test_one_request_at_a_time_per_agent() -> None:
    under_way, most = 0, 0
    loop = asyncio.get_running_loop()

    async with fake(lambda _: []) as agent:
        def answers(request: Request) -> list[bytes]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)

            def later() -> None:
                nonlocal under_way
                under_way -= 1
                assert agent.transport is not None
                agent.transport.sendto(request.answer([(request.names[0], 1)]), client_address)

            loop.call_later(0.02, later)
            return []

        agent.answers = answers
        client_address = ("127.0.0.1", 0)
        original = agent.datagram_received

        def received(data: bytes, addr: tuple[str, int]) -> None:
            nonlocal client_address
            client_address = addr
            original(data, addr)

        agent.datagram_received = received  # type: ignore[method-assign]
        async with Client(agent.agent(timeout=2)) as client:
            await asyncio.gather(*(client.get([(*T, number)]) for number in range(5)))
    assert most == 1
    assert len(agent.seen) == 5


async def test_what_is_for_another_request_or_is_no_snmp_is_passed_over() -> None:
    def answers(request: Request) -> list[bytes]:
        return [b"", b"\x30\x82\xff\xff", b"GET / HTTP/1.1\r\n\r\n", request.answer([(T, 1)], number=request.number + 1),
                request.answer([((*T, 9), 666), (T, 5)])]

    async with fake(answers) as agent, Client(agent.agent()) as client:
        assert await client.get([T]) == {T: 5}, "and a row that nobody asked for is not kept"
        assert len(agent.seen) == 1


async def test_a_lost_answer_is_asked_for_again() -> None:
    count = 0

    def answers(request: Request) -> list[bytes]:
        nonlocal count
        count += 1
        return [request.answer([(T, count)])] if count == 2 else []

    async with fake(answers) as agent, Client(agent.agent(timeout=0.3, retries=1)) as client:
        assert await client.get([T]) == {T: 2}


async def test_too_big_is_asked_for_in_halves() -> None:
    def answers(request: Request) -> list[bytes]:
        if len(request.names) > 3:
            return [request.answer([], status=1)]
        return [request.answer([(name, name[-1]) for name in request.names])]

    names = [(*T, number) for number in range(10)]
    async with fake(answers) as agent, Client(agent.agent()) as client:
        assert await client.get(names) == {name: name[-1] for name in names}


async def test_one_object_that_fails_costs_itself_only() -> None:
    bad = (*T, 4)

    def answers(request: Request) -> list[bytes]:
        if bad in request.names:
            return [request.answer([], status=5, index=1)]
        return [request.answer([(name, name[-1]) for name in request.names])]

    names = [(*T, number) for number in range(8)]
    async with fake(answers) as agent, Client(agent.agent()) as client:
        assert await client.get(names) == {name: name[-1] for name in names if name != bad}


@pytest.mark.parametrize("chokes_above", [1, 3, 20])
async def test_an_agent_that_drops_large_bulks_is_walked_in_smaller_ones(chokes_above: int) -> None:
    rows: dict[tuple[int, ...], object] = {(*T, column, row): row for column in range(1, 4) for row in range(1, 30)}
    honest = table(rows)

    def answers(request: Request) -> list[bytes]:
        asked = request.repetitions * len(request.names)
        return [] if asked > max(chokes_above, 6) else honest(request)

    async with fake(answers) as agent, Client(agent.agent(timeout=0.5, retries=0)) as client:
        await client.get([(*T, 1, 1)])
        assert (await client.walk((*T, 1), (*T, 2), (*T, 3))).rows == rows


async def test_an_agent_that_drops_large_gets_is_asked_for_less() -> None:
    rows: dict[tuple[int, ...], object] = {(*T, row): row for row in range(1, 20)}
    honest = table(rows)

    def answers(request: Request) -> list[bytes]:
        return [] if len(request.names) > 8 else honest(request)

    async with fake(answers) as agent, Client(agent.agent(timeout=0.3, retries=0)) as client:
        for _ in range(2):
            assert await client.get([(*T, 1)]) == {(*T, 1): 1}
            with pytest.raises(SnmpError, match="no answer"):
                await client.get(rows)
        assert await client.get(rows) == rows


async def test_a_walk_ends_by_time_and_a_dead_agent_ends_it_soon() -> None:
    rows: dict[tuple[int, ...], object] = {(*T, column, row): row for column in range(1, 4) for row in range(1, 200)}
    async with fake(table(rows)) as agent, Client(agent.agent(timeout=0.5, retries=0)) as client:
        walk = await client.walk(T, max_seconds=0)
        assert walk.cut == "stopped after 0 s"
        assert walk.rows
        agent.answers = lambda _: []
        agent.seen.clear()
        with pytest.raises(SnmpError, match="no answer"):
            await client.walk(T)
        assert len(agent.seen) == 2, "once as usual, once small"


async def test_bulk_answers_that_are_too_big_are_narrowed() -> None:
    rows: dict[tuple[int, ...], object] = {(*T, column, row): row for column in range(1, 4) for row in range(1, 30)}
    honest = table(rows)

    def answers(request: Request) -> list[bytes]:
        return [request.answer([], status=1)] if request.repetitions * len(request.names) > 6 else honest(request)

    async with fake(answers) as agent, Client(agent.agent()) as client:
        assert (await client.walk((*T, 1), (*T, 2), (*T, 3))).rows == rows


async def test_columns_are_read_together_and_answers_may_be_cut_short() -> None:
    rows: dict[tuple[int, ...], object] = {(*T, column, row): row for column in range(1, 9) for row in range(1, 12)}
    async with fake(table(rows, limit=5)) as agent, Client(agent.agent()) as client:
        assert (await client.walk(*((*T, column) for column in range(1, 9)))).rows == rows
    async with fake(table(rows)) as agent, Client(agent.agent()) as client:
        assert (await client.walk(*((*T, column) for column in range(1, 9)))).rows == rows
        assert len(agent.seen) <= 6


async def test_a_scalar_is_a_root_too() -> None:
    rows: dict[tuple[int, ...], object] = {(*T, 1, 0): 7, (*T, 2, 0): 8, (*T, 3, 1, 1): 9}
    async with fake(table(rows)) as agent, Client(agent.agent()) as client:
        assert (await client.walk((*T, 1, 0), (*T, 3))).rows == {(*T, 1, 0): 7, (*T, 3, 1, 1): 9}


async def test_a_walk_ends_at_its_bounds_and_says_so() -> None:
    def endless(request: Request) -> list[bytes]:
        first = request.names[0]
        return [request.answer([((*T, first[-1] + number), b"x" * 20) for number in range(1, 25)])]

    async with fake(endless) as agent, Client(agent.agent()) as client:
        walk = await client.walk((*T, 1)[:-1], max_rows=100)
        assert len(walk.rows) == 100
        assert walk.cut == "stopped after 100 rows"
        walk = await client.walk((*T, 1)[:-1], max_octets=5000)
        assert walk.cut.startswith("stopped after 5,")
        assert len(walk.rows) < 300


async def test_a_walk_that_goes_round_in_circles_ends() -> None:
    def circle(request: Request) -> list[bytes]:
        return [request.answer([((*T, 5), 1), ((*T, 6), 1), ((*T, 5), 1)])]

    async with fake(circle) as agent, Client(agent.agent()) as client:
        walk = await client.walk(T)
        assert "do not increase" in walk.cut
        assert len(agent.seen) == 1


async def test_values_of_every_type() -> None:
    given = {1: v2c.Counter64(2**64 - 2), 2: v2c.Gauge32(2**32 - 1), 3: v2c.TimeTicks(9), 4: v2c.IpAddress("10.0.0.1"),
             5: v2c.ObjectIdentifier("1.3.6.1.4.1.9"), 6: v2c.Opaque(b"\x9f\x78\x04" + struct.pack(">f", 12.5)),
             7: v2c.OctetString(b"\x00\xff"), 8: v2c.Integer32(-5), 9: v2c.NoSuchObject(""), 10: v2c.Null("")}
    want = {1: 2**64 - 2, 2: 2**32 - 1, 3: 9, 4: b"\n\x00\x00\x01", 5: "1.3.6.1.4.1.9", 6: 12.5, 7: b"\x00\xff", 8: -5}
    rows: dict[tuple[int, ...], object] = {(*T, number): value for number, value in given.items()}
    async with fake(table(rows)) as agent, Client(agent.agent()) as client:
        assert await client.get(rows) == {(*T, number): value for number, value in want.items()}


async def test_a_closed_port_and_an_unknown_name_are_said() -> None:
    with pytest.raises(SnmpError, match="nothing listens at this UDP port"):
        await Client(Agent("127.0.0.1", Community(Key("x")), free_udp_port(), 0.3, 0)).get([T])
    with pytest.raises(SnmpError, match=r"nowhere\.invalid: its name is not known"):
        await Client(Agent("nowhere.invalid", Community(Key("x")), 161, 5, 0)).get([T])


async def test_a_client_recovers_when_its_agent_comes_back() -> None:
    async with fake(table({T: 4})) as agent:
        client = Client(agent.agent(timeout=0.5, retries=0))
        assert await client.get([T]) == {T: 4}
        answers, agent.answers = agent.answers, lambda _: []
        with pytest.raises(SnmpError) as error:
            await client.get([T])
        assert "community" not in str(error.value), "it has answered before, so that is not the cause"
        agent.answers = answers
        assert await client.get([T]) == {T: 4}
        client.close()


def test_a_key_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    one = Key("tr0ub4dor")
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("x").warning("%s %r %s", one, one, [one])
    assert "tr0ub4dor" not in caplog.text + repr(one) + str(one) + f"{one} {one!r}" + repr({"a": (one,)})
    for copied in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError):
            copied(one)
    assert one == Key("tr0ub4dor")
    assert one != "tr0ub4dor"


def test_secrets_do_not_show_and_bad_users_are_refused() -> None:
    agent = Agent("pdu", User("me", Key("hidden-auth-1"), Key("hidden-priv-1")))
    assert "hidden" not in repr(agent) + repr(Client(agent).agent) + str(agent.who)
    assert agent.name == "pdu"
    assert Agent("fd00::1", agent.who, 1161).name == "[fd00::1]:1161"
    for bad in ({"auth": Key("short")}, {"privacy": Key("long enough")},
                {"auth": Key("long enough"), "auth_protocol": "SHA1"},
                {"auth": Key("long enough"), "privacy": Key("long enough"), "privacy_protocol": "ROT13"}):
        with pytest.raises(ValueError, match=r"SNMPv3|none of|shorter") as error:
            User("me", **bad)  # type: ignore[arg-type]
        assert "long enough" not in str(error.value)


def test_there_is_no_set_in_the_client() -> None:
    for module in (snmp, snmp_message):
        source = inspect.getsource(module)
        assert "SetRequest" not in source
        assert "set_cmd" not in source


_ASKING = codec(Community(Key("lab"))).ask("get", [T], 0)
_GOOD = Request(_ASKING.message()).answer([(T, 5), ((*T, 1), b"text"), ((*T, 2), None)])


@settings(max_examples=300, deadline=None)
@given(st.one_of(
    st.binary(max_size=200),
    st.tuples(st.integers(0, len(_GOOD) - 1), st.integers(0, 255)).map(
        lambda change: _GOOD[:change[0]] + bytes([change[1]]) + _GOOD[change[0] + 1:]),
    st.integers(0, len(_GOOD)).map(lambda size: _GOOD[:size])))
def test_whatever_comes_is_an_answer_or_nothing(data: bytes) -> None:
    found = _ASKING.take(data)
    assert found is None or (found.rows is not None and len(found.rows) <= 3)  # type: ignore[union-attr]


_SECURE = codec(User("watcher", Key(AUTH_KEY), Key(PRIVACY_KEY)))
_SECURE_ASKING = _SECURE.ask("get", [T], 0)
_SECURE_MESSAGE = _SECURE_ASKING.message()


@settings(max_examples=150, deadline=None)
@given(st.one_of(
    st.binary(max_size=200),
    st.tuples(st.integers(0, len(_SECURE_MESSAGE) - 1), st.integers(0, 255)).map(
        lambda change: _SECURE_MESSAGE[:change[0]] + bytes([change[1]]) + _SECURE_MESSAGE[change[0] + 1:])))
def test_whatever_comes_by_v3_is_passed_over_or_refused(data: bytes) -> None:
    try:
        found = _SECURE_ASKING.take(data)
    except RefusedError:
        return
    assert found is None or isinstance(found, bytes)
