"""What operators give a policy family to keep at the key generator alone, and what of it mediators
are told (families/manifest.py, KgKeeps; GATEWAY.md G7).

The family's part says what it keeps: bytes, sealed in the store. It goes by the policy in force, so
what mediators are told is made anew when either changes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

from sqlalchemy import Connection

from sealmq.families import registry
from sealmq.families.api import FamilyConfigError
from sealmq.families.faults import of_family
from sealmq.families.manifest import KgKeeps
from sealmq.kglink import MAX_FRAME
from sealmq.site.model import Config

from . import rows
from .errors import Bad, KgRefusal
from .seal import Vault

MOST_SAID = 2 << 20
"""Bytes that an operator gives a family at a time, and is shown again."""
# Else what was taken while the site is down could be neither shown nor changed while it is up.
_MOST_JSON = MAX_FRAME - 65_536
MOST_KEY, MOST_ROW, MOST_TOLD = 256, 1 << 20, 256 << 20
"""Of what mediators are told: bytes of a key, of a row, and of all that a family tells."""


def parts(config: Config) -> Iterator[tuple[str, KgKeeps]]:
    """The families in force that keep something, and their parts."""
    for family in config.policy.order:
        manifest = registry.manifest(family)
        if manifest.kg_keeps is not None:
            yield family, manifest.load(manifest.kg_keeps)


def _part(config: Config, family: str) -> KgKeeps:
    found = dict(parts(config)).get(family)
    if found is None:
        raise Bad(
            f"no policy family {family[:64]!r} in force keeps anything at the key generator",
            "[policy] order names those in force",
        )
    return found


def take(tx: Connection, vault: Vault, config: Config, family: str, said: bytes) -> bool:
    """Keep what comes of it from now on; False: that is what was kept. Bad: it cannot be."""
    part = _part(config, family)
    if len(said) > MOST_SAID:
        raise Bad(f"{len(said)} bytes for {family}; at most {MOST_SAID} are taken")
    if (size := len(json.dumps(said.decode("utf-8", "replace")))) > _MOST_JSON:
        raise Bad(
            f"{size} bytes for {family} as JSON; at most {_MOST_JSON} are taken",
            "each character beyond ASCII is six of them, or twelve",
        )
    before = rows.kept(tx, vault, family)
    try:
        after = part.take(config, before, said, secrets.token_bytes)
    except Exception as error:
        raise _refusal(family, error) from error
    if after == before:
        return False
    rows.keep(tx, vault, family, after)
    return True


def leave(tx: Connection, vault: Vault, config: Config, names: frozenset[str]) -> list[str]:
    """Clients of these names are gone, for families that are not in force as well; notes. One that
    is not, and is broken or no longer there, keeps nobody in, and is told of them once it can be.
    """
    notes = []
    for family in rows.keeping(tx):
        all_names = names | rows.leavers(tx, family)
        if not all_names:
            continue
        before = rows.kept(tx, vault, family)
        try:
            manifest = registry.manifest(family)
            if manifest.kg_keeps is None:
                continue
            part = manifest.load(manifest.kg_keeps)
            after = part.left(config, before, all_names, secrets.token_bytes)
        except Exception as error:
            if family in config.policy.order:
                raise _refusal(family, error) from error
            rows.put_leavers(tx, family, all_names)
            if names:
                notes.append(
                    f"{family} is not in [policy] order and cannot be asked: what it keeps of "
                    "clients that are gone goes when it can be"
                )
            continue
        rows.put_leavers(tx, family, frozenset())
        if after != before:
            rows.keep(tx, vault, family, after)
            notes.append(f"{family} keeps nothing more of clients that are gone")
    return notes


def shown(tx: Connection, vault: Vault, config: Config, family: str) -> bytes:
    """What the operator is shown of it."""
    part = _part(config, family)
    try:
        return part.shown(rows.kept(tx, vault, family))
    except Exception as error:
        raise _refusal(family, error) from error


class Told:
    """What mediators are told; made anew where policy or what is kept has changed."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[tuple[str, bytes], list[list[str]]]] = {}

    def rows(self, tx: Connection, vault: Vault, config: Config) -> list[list[str]]:
        """Family, key, value in hex, of all families in force."""
        found: list[list[str]] = []
        for family, part in parts(config):
            of = config.digest, rows.kept(tx, vault, family)
            if self._made.get(family, ((), []))[0] != of:
                self._made[family] = of, _told(family, part, config, of[1])
            found += self._made[family][1]
        return found


def _told(family: str, part: KgKeeps, config: Config, kept: bytes) -> list[list[str]]:
    try:
        made = [[family, key, value.hex()] for key, value in part.rows(config, kept)]
    except Exception as error:
        raise _refusal(family, error) from error
    whole = sum(len(row[2]) // 2 for row in made)
    if whole > MOST_TOLD or any(
        len(row[1].encode()) > MOST_KEY or len(row[2]) > 2 * MOST_ROW for row in made
    ):
        raise Bad(
            f"the policy family {family} tells mediators more than fits: {whole} bytes",
            f"{MOST_TOLD} bytes fit, of which a row may have {MOST_ROW}",
        )
    return made


def _refusal(family: str, error: Exception) -> Exception:
    if isinstance(error, KgRefusal):
        return error
    if isinstance(error, FamilyConfigError):
        return Bad(f"{family}: {error}", error.hint)
    fault = of_family(error, "what it keeps")
    return error if fault is None else Bad(str(fault), fault.hint)
