"""Who asks an SNMP agent, before any secret is fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustertop.sources.secret import Secret
    from clustertop.sources.snmp import Agent


@dataclass(frozen=True, slots=True)
class SnmpTarget:
    """An agent as the configuration names it. ``repr`` shows no secret."""

    host: str
    version: str = "2c"
    """``1``, ``2c`` or ``3``."""
    community: Secret | None = None
    """None: ``public``, which is everybody's default and no secret."""
    user: str = ""
    auth: Secret | None = None
    privacy: Secret | None = None
    auth_protocol: str = "SHA256"
    privacy_protocol: str = "AES"
    context: str = ""
    port: int = 161
    timeout: float = 2.0
    """Seconds until a request is sent again."""
    retries: int = 2

    def agent(self) -> Agent:
        """Fetch the secrets and return the agent to ask. It blocks while a secret's command runs: call it in a thread.

        Raises:
            SecretError: a secret cannot be had.
            ValueError: a key is too short for SNMPv3; the text does not hold it.
        """
        from clustertop.sources.snmp import Agent
        from clustertop.sources.snmp_message import Community, Key, User

        def key(secret: Secret | None) -> Key | None:
            return Key(secret.reveal()) if secret is not None else None

        who: Community | User
        if self.version == "3":
            who = User(self.user, key(self.auth), key(self.privacy), self.auth_protocol, self.privacy_protocol,
                       self.context)
        else:
            who = Community(key(self.community) or Key("public"), 1 if self.version == "1" else 2)
        return Agent(self.host, who, self.port, self.timeout, self.retries)
