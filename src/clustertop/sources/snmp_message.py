"""SNMP messages by pysnmp: requests to octets and octets to answers. No sockets, no waiting.

pysnmp's high-level functions build and check every OID twice and cost three to four times as much CPU per value as the
codec below them, so the codec is used directly. For v3 its message processing and security model are used as they are.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import threading
import time
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, final

from pyasn1.codec.ber import decoder
from pyasn1.error import PyAsn1Error
from pyasn1.type import univ
from pysnmp.error import PySnmpError
from pysnmp.proto import rfc1905
from pysnmp.proto.api import v1, v2c

from clustertop.sources.snmp_ber import END, plain, request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clustertop.sources.oids import Oid, Value

Kind = Literal["get", "next", "bulk"]

AUTH_PROTOCOLS = ("MD5", "SHA", "SHA224", "SHA256", "SHA384", "SHA512")
PRIVACY_PROTOCOLS = ("DES", "3DES", "AES", "AES192", "AES256")
_STEPS = 5
"""Messages of a v3 request: discovery, time, the request, and two of them again after an engine restart."""


@final
class Key:
    """A community or a key, revealed from where it is kept and in use; nothing that prints it shows it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Key(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Key, self._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key does not leave the process")


@dataclass(frozen=True, slots=True)
class Community:
    """Who asks, in v1 and v2c."""

    community: Key
    version: Literal[1, 2] = 2


@dataclass(frozen=True, slots=True)
class User:
    """Who asks, in v3. Without *auth* neither proof nor privacy; without *privacy* in clear but proved.

    Raises:
        ValueError: privacy without auth, a key that is too short (RFC 3414: 8 octets), an unknown protocol.
    """

    name: str
    auth: Key | None = None
    privacy: Key | None = None
    auth_protocol: str = "SHA256"
    privacy_protocol: str = "AES"
    context: str = ""

    def __post_init__(self) -> None:
        if self.privacy is not None and self.auth is None:
            raise ValueError("SNMPv3 has no privacy without authentication")
        if self.auth_protocol not in AUTH_PROTOCOLS:
            raise ValueError(f"{self.auth_protocol} is none of {', '.join(AUTH_PROTOCOLS)}")
        if self.privacy_protocol not in PRIVACY_PROTOCOLS:
            raise ValueError(f"{self.privacy_protocol} is none of {', '.join(PRIVACY_PROTOCOLS)}")
        for what, key in (("authentication", self.auth), ("privacy", self.privacy)):
            if key is not None and len(key.reveal()) < 8:
                raise ValueError(f"the {what} key is shorter than the 8 characters that SNMPv3 asks for")

    @property
    def level(self) -> int:
        """1 neither, 2 authentication, 3 authentication and privacy."""
        return 1 if self.auth is None else 2 if self.privacy is None else 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: an error status (0: none) and its index from 1, or rows in the request's order."""

    status: int
    index: int
    rows: Sequence[tuple[Oid, Value | None]]
    """None where the agent has no such object; ``END`` as value where the MIB ends."""
    octets: int


class RefusedError(Exception):
    """The agent answered that it will not, for a reason that repeating does not change."""


class RestartedError(Exception):
    """The agent's v3 engine is not the one that we knew: begin anew."""


class Asking(Protocol):
    """One request under way."""

    def message(self) -> bytes:
        """The octets to send, for the first time or again."""
        ...

    def take(self, data: bytes) -> Answer | bytes | None:
        """Look at octets that came: the answer, another message to send first, or None if they are not for us.

        Raises:
            RefusedError: a refusal, RestartedError: the engine has to be learnt anew.
        """
        ...

    def end(self) -> None:
        """Forget the request."""
        ...


class Codec(Protocol):
    """Makes requests for one agent."""

    bulk: bool

    def ask(self, kind: Kind, oids: Sequence[Oid], repetitions: int) -> Asking:
        """Begin a request."""
        ...


def codec(who: Community | User, *, anew: bool = False) -> Codec:
    """The codec for one agent asked by *who*; *anew*: nothing that was learnt of any v3 engine before is used.

    Raises:
        ValueError: the library does not take the user's keys.
    """
    if isinstance(who, Community):
        return _CommunityCodec(who)
    return _UserCodec(who, _Engine(who) if anew else _shared(who))


def _pdu(api: Any, kind: Kind, oids: Sequence[Oid], repetitions: int) -> Any:
    if kind == "bulk":
        pdu = v2c.GetBulkRequestPDU()
        v2c.apiBulkPDU.set_defaults(pdu)
        v2c.apiBulkPDU.set_max_repetitions(pdu, repetitions)
        v2c.apiBulkPDU.set_non_repeaters(pdu, 0)
    else:
        pdu = (api.GetRequestPDU if kind == "get" else api.GetNextRequestPDU)()
        api.apiPDU.set_defaults(pdu)
    api.apiPDU.set_varbinds(pdu, [(oid, api.null) for oid in oids])
    return pdu


def _answer(api: Any, pdu: Any, octets: int) -> Answer:
    rows = [(tuple(name), _value(value)) for name, value in api.apiPDU.get_varbinds(pdu)]
    return Answer(int(pdu[1]), int(pdu[2]), rows, octets)


def _value(value: Any) -> Value | None:
    if isinstance(value, univ.Null):
        return END if isinstance(value, rfc1905.EndOfMibView) else None
    if isinstance(value, univ.Integer):
        return int(value)
    if isinstance(value, univ.OctetString):
        data = bytes(value)
        # net-snmp's way to send a float: an Opaque around the tag 9F 78, length 4.
        if len(data) == 7 and data[:3] == b"\x9f\x78\x04" and value.tagSet == v2c.Opaque.tagSet:
            return float(struct.unpack(">f", data[3:])[0])
        return data
    if isinstance(value, univ.ObjectIdentifier):
        return ".".join(map(str, tuple(value)))
    return None


class _CommunityCodec:
    def __init__(self, who: Community) -> None:
        self.bulk = who.version == 2
        self._api = v2c if self.bulk else v1
        self._who = who

    def ask(self, kind: Kind, oids: Sequence[Oid], repetitions: int) -> Asking:
        number = int(self._api.getNextRequestID())
        message = request(
            self._who.version, _octets(self._who.community), kind, number, oids, repetitions)
        return _CommunityAsking(self._api, message, number)


def _octets(community: Key) -> bytes:
    """As pysnmp sends it, where that can be."""
    try:
        return community.reveal().encode("iso-8859-1")
    except UnicodeEncodeError:
        return community.reveal().encode()


class _CommunityAsking:
    def __init__(self, api: Any, message: bytes, number: int) -> None:
        self._api = api
        self._message = message
        self._number = number

    def message(self) -> bytes:
        return self._message

    def take(self, data: bytes) -> Answer | None:
        usual = plain(data)
        if usual is not None:
            return None if usual.number != self._number else Answer(usual.status, usual.index, usual.rows, len(data))
        try:
            found, _ = decoder.decode(data, asn1Spec=self._api.Message())
            pdu = self._api.apiMessage.get_pdu(found)
            if not isinstance(pdu, self._api.GetResponsePDU().__class__) or int(pdu[0]) != self._number:
                return None
            return _answer(self._api, pdu, len(data))
        except (PyAsn1Error, PySnmpError, ValueError, TypeError, IndexError, AttributeError, RecursionError):
            return None

    def end(self) -> None:
        pass


_REFUSALS = {
    "UnknownUserName": "does not know the SNMPv3 user",
    "UnknownSecurityName": "does not know the SNMPv3 user",
    "WrongDigest": "says that the authentication key or protocol is wrong",
    "AuthenticationFailure": "answers with a proof that our authentication key does not fit",
    "AuthenticationError": "says that the authentication key or protocol is wrong",
    "DecryptionError": "says that the privacy key or protocol is wrong",
    "EncryptionError": "cannot be asked: the privacy protocol does not work here",
    "UnsupportedSecurityLevel": "does not allow this user this level of security",
    "UnsupportedAuthProtocol": "does not take this authentication protocol",
    "UnsupportedPrivProtocol": "does not take this privacy protocol",
    "NoSuchContext": "has no such SNMPv3 context",
    "UnknownContexts": "has no such SNMPv3 context",
}


class _Engine:
    """An engine of pysnmp's with one user, and our sockets in the place of its transport."""

    def __init__(self, who: User) -> None:
        # Here: the engine and its MIBs take a tenth of a second to load, which v2c has no use for.
        from pysnmp.entity import config, engine

        auths = dict(zip(AUTH_PROTOCOLS, (
            config.USM_AUTH_HMAC96_MD5, config.USM_AUTH_HMAC96_SHA, config.USM_AUTH_HMAC128_SHA224,
            config.USM_AUTH_HMAC192_SHA256, config.USM_AUTH_HMAC256_SHA384, config.USM_AUTH_HMAC384_SHA512),
            strict=True))
        privacies = dict(zip(PRIVACY_PROTOCOLS, (
            config.USM_PRIV_CBC56_DES, config.USM_PRIV_CBC168_3DES, config.USM_PRIV_CFB128_AES,
            config.USM_PRIV_CFB192_AES, config.USM_PRIV_CFB256_AES), strict=True))
        self.line = _Line()
        self.engine = engine.SnmpEngine()
        self.engine.register_transport_dispatcher(self.line)
        self._ticked = time.monotonic()
        try:
            config.add_v3_user(
                self.engine, who.name,
                auths[who.auth_protocol] if who.auth else config.USM_AUTH_NONE,
                who.auth.reveal() if who.auth else None,
                privacies[who.privacy_protocol] if who.privacy else config.USM_PRIV_NONE,
                who.privacy.reveal() if who.privacy else None)
        except PySnmpError:
            # Not chained: the library's text may hold what it was given.
            raise ValueError("the SNMPv3 user, keys or protocols are not usable") from None

    def tick(self) -> None:
        """Let the engine forget what is old; it counts these ticks as seconds."""
        now = time.monotonic()
        if now - self._ticked >= 1.0:
            self._ticked = now
            with contextlib.suppress(KeyError):
                self.line.tick(time.time())


_ENGINES: weakref.WeakValueDictionary[User, _Engine] = weakref.WeakValueDictionary()
_MAKING = threading.Lock()
_NUMBERS = itertools.count(1)


def _shared(who: User) -> _Engine:
    """The engine for *who*: making one takes a tenth of a second and a megabyte, so a fleet of agents shares it."""
    who = replace(who, context="")
    with _MAKING:
        engine = _ENGINES.get(who)
        if engine is None:
            _ENGINES[who] = engine = _Engine(who)
        return engine


class _UserCodec:
    """SNMPv3 with one agent."""

    bulk = True

    def __init__(self, who: User, engine: _Engine) -> None:
        self.who = who
        self.shared = engine
        self.name, self.context = v2c.OctetString(who.name), v2c.OctetString(who.context)
        self.address = (f"agent {next(_NUMBERS)}", 161)
        """What the engine files the agent under."""

    def ask(self, kind: Kind, oids: Sequence[Oid], repetitions: int) -> Asking:
        return _UserAsking(self, _pdu(v2c, kind, oids, repetitions))


_DOMAIN = (1, 3, 6, 1, 6, 1, 1)


class _Line:
    """Stands where the engine looks for a transport: keeps what it wants to send, passes on what came."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.take: Callable[..., object] = lambda *_: None
        self.tick: Callable[..., object] = lambda *_: None

    def register_recv_callback(self, take: Callable[..., object], _id: object = None) -> None:
        self.take = take

    def register_timer_callback(self, tick: Callable[..., object]) -> None:
        self.tick = tick

    def send_message(self, message: Any, _domain: object, _address: object) -> None:
        self.out.append(bytes(message))

    def get_timer_ticks(self) -> float:
        return 0.0

    def get_timer_resolution(self) -> float:
        return 1.0


@dataclass(slots=True)
class _UserAsking:
    codec: _UserCodec
    pdu: Any
    _handles: list[object] = field(default_factory=list)
    _came: list[Any] = field(default_factory=list)
    """What the engine made of the last octets: a PDU, or the name of an error."""
    _steps: int = 0

    def message(self) -> bytes:
        engine, line = self.codec.shared.engine, self.codec.shared.line
        line.out.clear()
        try:
            self._handles.append(engine.message_dispatcher.send_pdu(
                engine, _DOMAIN, self.codec.address, 3, 3, self.codec.name, self.codec.who.level, None,
                self.codec.context, 1, self.pdu, True, 1e9, self._done, None))
        except PySnmpError as error:
            raise RefusedError(_refusal(_indication(error))) from None
        if not line.out:
            raise RefusedError("cannot be asked: the library made no message")
        return line.out.pop()

    def take(self, data: bytes) -> Answer | bytes | None:
        line = self.codec.shared.line
        line.out.clear()
        self._came.clear()
        try:
            line.take(line, _DOMAIN, self.codec.address, data)
        except (PySnmpError, PyAsn1Error, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            return None
        if not self._came:
            return None
        found = self._came.pop()
        if not isinstance(found, str):
            return _answer(v2c, found, len(data))
        if found not in ("UnknownEngineID", "NotInTimeWindow"):
            raise RefusedError(_refusal(found))
        self._steps += 1
        if self._steps > _STEPS:
            raise RestartedError
        return self.message()

    def end(self) -> None:
        engine = self.codec.shared.engine
        for handle in self._handles:
            engine.message_dispatcher.release_state_information(engine, handle, 3)
        self._handles.clear()
        self.codec.shared.tick()

    def _done(self, _engine: object, _model: object, _security: object, _name: object, _level: object, _id: object,
              _context: object, _version: object, pdu: Any, status: Any, _handle: object, _given: object) -> None:
        if status:
            self._came.append(type(status["errorIndication"]).__name__)
        elif int(pdu[0]) == int(self.pdu[0]):
            self._came.append(pdu)


def _indication(error: Any) -> str:
    try:
        return type(error["errorIndication"]).__name__
    except (KeyError, TypeError, IndexError):
        return type(error).__name__


def _refusal(word: str) -> str:
    return _REFUSALS.get(word, f"refused the SNMPv3 request ({word})")
