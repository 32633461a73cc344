"""A real HTTPS Redfish service on loopback: session slots, slowness and every way of failing that a test orders.

Its certificates are made for the run; it logs who asked for what, how many asked at once and which sessions are open.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import ipaddress
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

USER = "reader"
PASSWORD = "kiwi-Lampe-77/ä"
SESSIONS = "/redfish/v1/SessionService/Sessions"
EXPAND = "?$expand=.($levels=1)"


@dataclass(frozen=True)
class Certificates:
    """A CA, and a certificate of 127.0.0.1 that it signed."""

    ca_file: str
    chain_file: str
    fingerprint: str

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        now = datetime.datetime.now(datetime.UTC)

        def name(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        def sign(subject: str, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey,
                 extension: x509.ExtensionType, *, critical: bool) -> x509.Certificate:
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
            return (
                x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("site CA"))
                .public_key(key.public_key()).serial_number(x509.random_serial_number())
                .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=2))
                .add_extension(extension, critical)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
                .add_extension(identifier, critical=False)
                .sign(issuer_key, hashes.SHA256()))

        ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca = sign("site CA", ca_key, ca_key, x509.BasicConstraints(ca=True, path_length=0), critical=True)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        cert = sign("bmc", key, ca_key, address, critical=False)
        ca_file, chain = folder / "ca.pem", folder / "bmc.pem"
        ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
        chain.write_bytes(cert.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        return cls(str(ca_file), str(chain), cert.fingerprint(hashes.SHA256()).hex())


@dataclass
class Reply:
    """What a test has the service say instead."""

    status: int = 200
    body: bytes | dict[str, Any] = b""
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = 0.0
    cut: int | None = None
    """Close the connection after so many bytes of the body."""


@dataclass
class Seen:
    """One request."""

    method: str
    path: str
    who: str
    """``token``, ``basic`` or empty."""
    began: float
    ended: float
    status: int


class RedfishServer:
    """The service. ``order`` is asked first for each request and may answer in its place."""

    def __init__(self, tree: dict[str, Any], certificates: Certificates, *, slots: int = 8, expand: bool = False) -> None:
        self.tree = {path.rstrip("/"): body for path, body in tree.items()}
        self.certificates = certificates
        self.slots = slots
        self.expand = expand
        self.order: Callable[[str, str], Reply | None] = lambda method, path: None
        self.sessions: dict[str, str] = {}
        """Path → token of the open ones."""
        self.dead_tokens: set[str] = set()
        """Tokens that are answered with 401 although the session still holds its slot."""
        self.strangers = 0
        """Slots that somebody else holds."""
        self.seen: list[Seen] = []
        self.passwords = 0
        """Requests that brought our password."""
        self.most_open = 0
        self.most_at_once = 0
        self._at_once = 0
        self._count = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.chain_file)
        self._http = _Server(self, context)
        self.url = f"https://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(60)

    def count(self, method: str, part: str = "") -> int:
        """How many requests there were."""
        return sum(one.method == method and part in one.path for one in self.seen)

    @contextlib.contextmanager
    def _one(self) -> Iterator[None]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> Reply:
        with self._one():
            began = time.monotonic()
            who = self._who(headers)
            reply = self.order(method, path)
            if reply is None:
                reply = self._usual(method, path, headers, body, who)
            if reply.wait:
                self._stop.wait(reply.wait)
            with self._lock:
                kind = "basic" if headers.get("Authorization") else "token" if headers.get("X-Auth-Token") else ""
                self.seen.append(Seen(method, path, kind, began, time.monotonic(), reply.status))
            return reply

    def _who(self, headers: Any) -> bool:
        token = headers.get("X-Auth-Token")
        if token:
            return token in self.sessions.values() and token not in self.dead_tokens
        kind, _, coded = (headers.get("Authorization") or "").partition(" ")
        if kind == "Basic" and base64.b64decode(coded) == f"{USER}:{PASSWORD}".encode():
            self.passwords += 1
            return True
        return False

    def _usual(self, method: str, path: str, headers: Any, body: bytes, known: bool) -> Reply:
        plain = path.partition("?")[0].rstrip("/")
        if method == "POST" and plain == SESSIONS:
            return self.login(body)
        if method == "GET" and plain == "/redfish/v1":
            return self._body(plain, headers)
        if not known:
            return Reply(401, error("Base.1.12.NoValidSession", "There is no valid session"))
        if method == "DELETE":
            with self._lock:
                return Reply(204) if self.sessions.pop(plain, None) else Reply(404)
        if plain not in self.tree:
            return Reply(404, error("Base.1.12.ResourceMissingAtURI", "not here"))
        if path.endswith(EXPAND):
            if not self.expand:
                return Reply(501, error("Base.1.12.QueryNotSupported", "no"))
            members = self.tree[plain].get("Members", [])
            full = [{**self.tree.get(member["@odata.id"].rstrip("/"), {}), **member} for member in members]
            return Reply(200, {**self.tree[plain], "Members": full})
        return self._body(plain, headers)

    def login(self, body: bytes) -> Reply:
        """The usual answer to a login."""
        said = json.loads(body)
        if said.get("Password") == PASSWORD:
            self.passwords += 1
        if said != {"UserName": USER, "Password": PASSWORD}:
            return Reply(401, error("Base.1.12.InsufficientPrivilege", "wrong"))
        with self._lock:
            if len(self.sessions) + self.strangers >= self.slots:
                return Reply(503, error("Base.1.12.SessionLimitExceeded", "The session establishment failed due to the "
                                        "number of simultaneous sessions exceeding the limit of the implementation."))
            self._count += 1
            path, token = f"{SESSIONS}/{self._count}", f"token-{self._count}-{hashlib.sha256(body).hexdigest()[:16]}"
            self.sessions[path] = token
            self.most_open = max(self.most_open, len(self.sessions))
        return Reply(201, {"@odata.id": path, "Id": str(self._count)},
                     {"X-Auth-Token": token, "Location": f"{self.url}{path}"})

    def _body(self, plain: str, headers: Any) -> Reply:
        text = json.dumps(self.tree[plain]).encode()
        etag = f'W/"{hashlib.sha256(text).hexdigest()[:8]}"'
        if headers.get("If-None-Match") == etag:
            return Reply(304, b"", {"ETag": etag})
        return Reply(200, text, {"ETag": etag})


def error(code: str, message: str) -> dict[str, Any]:
    """An error body as services write it."""
    return {"error": {"code": "Base.1.12.GeneralError", "message": "See ExtendedInfo",
                      "@Message.ExtendedInfo": [{"MessageId": code, "Message": message}]}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, service: RedfishServer, context: ssl.SSLContext) -> None:
        self.service = service
        self.context = context
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = super().get_request()
        return self.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that lets go, or does not trust us, is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        reply = self.server.service.answer(self.command, self.path, self.headers, body)
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status not in {204, 304}:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if reply.cut is not None:
            self.wfile.write(data[: reply.cut])
            self.close_connection = True
        elif reply.status not in {204, 304}:
            self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the library's names

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


def completed(tree: dict[str, Any]) -> dict[str, Any]:
    """A tree with what a recording has left out: the root, and collections and chassis that only their members show."""
    out = {path.rstrip("/"): body for path, body in tree.items() if path.startswith("/redfish/")}
    for path in list(out):
        parts = path.split("/")
        for depth in range(4, len(parts)):
            parent = "/".join(parts[:depth])
            child = {"@odata.id": "/".join(parts[: depth + 1])}
            body = out.setdefault(parent, {"@odata.id": parent, "made": True})
            if not body.get("made"):
                continue
            if depth == 5 and parts[3] in {"Chassis", "Systems"}:
                body.setdefault(parts[depth], child)
            elif child not in body.setdefault("Members", []):
                body["Members"].append(child)
    for path in out:  # a recording put together of several devices: its chassis may not link to what is below it
        for name in ("Power", "Thermal"):
            if f"{path}/{name}" in out:
                out[path] = {**out[path], name: {"@odata.id": f"{path}/{name}"}}
    root = out.setdefault("/redfish/v1", {"@odata.id": "/redfish/v1", "@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot"})
    for name in ("Chassis", "Systems", "PowerEquipment"):
        if f"/redfish/v1/{name}" in out:
            root.setdefault(name, {"@odata.id": f"/redfish/v1/{name}"})
    draft = "/redfish/v1/DCIMPower/default/RackPDU"
    if draft in out:
        root.setdefault("DCIMPower", {"@odata.id": draft})
    return out


def node_tree() -> dict[str, Any]:
    """Our own node: a chassis with two supplies in both schemas, six sensors, a GPU board in it, and a rack PDU's circuits."""
    base = "/redfish/v1"
    chassis = f"{base}/Chassis/Node"
    supplies = f"{chassis}/PowerSubsystem/PowerSupplies"

    def link(path: str) -> dict[str, str]:
        return {"@odata.id": path}

    def collection(kind: str, *paths: str) -> dict[str, Any]:
        return {"@odata.type": f"#{kind}Collection.{kind}Collection", "Members": [link(path) for path in paths],
                "Members@odata.count": len(paths) + 1}

    tree: dict[str, Any] = {
        base: {"@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "Vendor": "Ours", "Chassis": link(f"{base}/Chassis"),
               "Systems": link(f"{base}/Systems"), "SessionService": link(f"{base}/SessionService"),
               "Links": {"Sessions": link(SESSIONS)},
               "ProtocolFeaturesSupported": {"ExpandQuery": {"Levels": True, "NoLinks": True}}},
        f"{base}/SessionService": {"@odata.type": "#SessionService.v1_1_8.SessionService", "SessionTimeout": 2400},
        f"{base}/Chassis": collection("Chassis", chassis, f"{base}/Chassis/Board"),
        f"{base}/Systems": collection("ComputerSystem", f"{base}/Systems/Host"),
        f"{base}/Systems/Host": {"@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem", "PowerState": "On"},
        chassis: {"@odata.type": "#Chassis.v1_25_0.Chassis", "Manufacturer": "Ours", "Model": "N-8",
                  "EnvironmentMetrics": link(f"{chassis}/EnvironmentMetrics"), "Sensors": link(f"{chassis}/Sensors"),
                  "PowerSubsystem": link(f"{chassis}/PowerSubsystem")},
        f"{chassis}/EnvironmentMetrics": {"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
                                          "PowerWatts": {"Reading": 6120.5}},
        f"{chassis}/PowerSubsystem": {
            "@odata.type": "#PowerSubsystem.v1_1_0.PowerSubsystem", "CapacityWatts": 6600, "PowerSupplies": link(supplies),
            "PowerSupplyRedundancy": [{"RedundancyGroup": [link(f"{supplies}/A")],
                                       "Status": {"State": "Enabled", "Health": "OK"}}]},
        supplies: collection("PowerSupply", f"{supplies}/A", f"{supplies}/B"),
        f"{chassis}/Sensors": collection("Sensor", *(f"{chassis}/Sensors/T{n}" for n in range(6))),
        f"{base}/Chassis/Board": {"@odata.type": "#Chassis.v1_25_0.Chassis", "Links": {"ContainedBy": link(chassis)},
                                  "EnvironmentMetrics": link(f"{base}/Chassis/Board/EnvironmentMetrics")},
        f"{base}/Chassis/Board/EnvironmentMetrics": {
            "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "PowerWatts": {"Reading": 4800}},
    }
    for name, watts in (("A", 3050.5), ("B", 3070)):
        tree[f"{supplies}/{name}"] = {
            "@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Name": f"Supply {name}", "PowerCapacityWatts": 3300,
            "Status": {"State": "Enabled", "Health": "OK"}, "Metrics": link(f"{supplies}/{name}/Metrics")}
        tree[f"{supplies}/{name}/Metrics"] = {
            "@odata.type": "#PowerSupplyMetrics.v1_1_0.PowerSupplyMetrics", "InputPowerWatts": {"Reading": watts},
            "InputVoltage": {"Reading": 229}, "InputCurrentAmps": {"Reading": 13.4}, "OutputPowerWatts": {"Reading": watts - 140}}
    for n in range(6):
        tree[f"{chassis}/Sensors/T{n}"] = {
            "@odata.id": f"{chassis}/Sensors/T{n}", "@odata.type": "#Sensor.v1_6_0.Sensor", "Id": f"T{n}", "Name": f"Zone {n}",
            "Reading": 30 + n, "ReadingType": "Temperature", "ReadingUnits": "Cel", "Status": {"State": "Enabled"}}
    return tree
