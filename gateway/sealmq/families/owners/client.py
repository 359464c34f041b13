"""What a host client says about its events: commands for the family, and their signatures.

A command is a JSON object, its answer, too (OWNERS.md has all of them).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sealmq_spec.errors import Malformed

from . import events, signing
from .assertions import BadAssertion, from_fields, from_keynote, keynote
from .settings import NAME

if TYPE_CHECKING:
    from sealmq.client import Client

__all__ = ["Owners", "items", "new_key", "read_key"]

_SIGNED = ("assert", "modify")
_MOST_FILE = 4096


class BadKey(Exception):
    """The file holds no private key that can be used."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


class Owners:
    """What `client` says about its events. Each call raises Denied, ... when it is refused.

    key: the private Ed25519 key (32 bytes) with which it signs what it asserts, or none.

    Example:
        async with Client.from_enrolment("Bob.sealmq.json", state="Bob.state") as client:
            owners = Owners(client)
            said = await owners.say("assert", licensees=["Tom"], actions=["RECEIVE"])
            await owners.say("retract", id=said["id"])
    """

    def __init__(self, client: Client, key: bytes = b"") -> None:
        self._client, self._key = client, key

    async def say(self, do: str, *, within: float | None = None, **said: Any) -> dict[str, Any]:
        """Send a command, and return its answer. Malformed: it can be no assertion."""
        body = _body(do, said)
        if self._key and do in _SIGNED:
            body = _body(do, {**said, **self._signature(said)})
        reply = await self._client.command(NAME, body, within=within)
        try:
            found = json.loads(reply)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Malformed("the gateway's answer is no JSON object")
        return found

    async def assertions(
        self, owner: str = "", by: str = "", *, within: float | None = None
    ) -> list[dict[str, Any]]:
        """All that the client may see: its own and those about its events, or about an owner's."""
        found: list[dict[str, Any]] = []
        left = 1
        while left:
            after = found[-1]["id"] if found else ""
            answer = await self.say("list", owner=owner, by=by, after=after, within=within)
            found += answer["assertions"]
            left = answer["left_out"] if answer["assertions"] else 0
        return found

    async def suspended(self, *, within: float | None = None) -> list[str]:
        """What of its own a backup has put back, and waits for it to `confirm`: ids of assertions,
        and APP/TYPE of event types, which come first."""
        kinds = (await self.say("types", within=within))["types"]
        made = await self.assertions(by=self._client.identity.name, within=within)
        return [
            *(f"{kind['app']}/{kind['type']}" for kind in kinds if kind.get("suspended")),
            *(one["id"] for one in made if one.get("suspended")),
        ]

    async def change_key(self, new: bytes, *, within: float | None = None) -> dict[str, Any]:
        """Have the public key of a private one (b"": none) on record from now on. Where one is on
        record, `key` has to be its private one."""
        public = signing.public_of(new) if new else b""
        said = {"public": public.hex()}
        if self._key:
            identity = self._client.identity
            text = signing.key_text(identity.site.hex(), identity.name, public)
            said["signature"] = signing.sign(self._key, text).hex()
        answer = await self.say("key", within=within, **said)
        self._key = new
        return answer

    def _signature(self, said: Mapping[str, Any]) -> dict[str, str]:
        """Over the canonical text of what is asserted."""
        identity = self._client.identity
        fields = {key: value for key, value in said.items() if key != "id"}
        try:
            if "keynote" in fields:
                [one] = keynote(str(fields["keynote"]))
                made = from_keynote(one, identity.name)
            else:
                made = from_fields(fields, identity.name, identity.name)
        except BadAssertion as error:
            raise Malformed(f"{error}; {error.hint}" if error.hint else str(error)) from None
        except ValueError:
            raise Malformed("one assertion a command") from None
        return {"signature": signing.sign(self._key, made.text(identity.site.hex())).hex()}


def _body(do: str, said: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps({"do": do, **said}, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Malformed("what is said is no text of Unicode") from None


def new_key(path: str | os.PathLike[str]) -> bytes:
    """Make a private key, in a new file that its user alone can read. OSError: there is one."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
    return key.private_bytes_raw()


def read_key(path: str | os.PathLike[str]) -> bytes:
    """The private key of such a file, 32 bytes. BadKey, OSError."""
    shown = os.fspath(path)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise BadKey(f"{shown} is no plain file", "sealmq owners key --new FILE makes one")
        if mode & 0o077:
            what = f"{shown} holds a private key and others can read it (mode {mode & 0o777:04o})"
            raise BadKey(what, f"chmod 600 {shown}; if somebody has read it, make a new key")
        pem = file.read(_MOST_FILE)
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        what = f"{shown} holds no Ed25519 private key without a passphrase"
        raise BadKey(what, "sealmq owners key --new FILE makes one")
    return key.private_bytes_raw()


def items(values: Sequence[str]) -> Mapping[int, bytes]:
    """The item of sealed attributes, each NAME=VALUE: true, false, a whole number, or a text; a
    text that looks like one of these stands in double quotes. Malformed.
    """
    found: dict[str, str | int | bool] = {}
    for text in values:
        name, equals, said = text.partition("=")
        if not name or not equals:
            raise Malformed(f"{text!r} is no attribute; NAME=VALUE, as speed=57")
        if name in found:
            raise Malformed(f"{name} stands twice")
        try:
            value = json.loads(said)
        except (ValueError, RecursionError):
            value = said
        found[name] = value if isinstance(value, str | int) else said
    if not found:
        return {}
    try:
        item = events.write_attributes(found)
    except UnicodeEncodeError:
        raise Malformed("an attribute is no text of Unicode") from None
    if len(item) > 255:
        raise Malformed(f"the attributes have {len(item)} bytes; at most 255 are taken")
    return {events.TLV: item}
