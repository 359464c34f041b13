"""Which Debian mirrors this host uses, read from its own apt sources (both formats).

Read only. The mirrors and the keys that vouch for them stay the host's choice; only the suite
that is asked for differs. See sources.list(5).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from steps import FetchError, run

# Names under which a mirror publishes a release of Debian itself.
_ROLLING = frozenset({"oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"})


@dataclass(frozen=True)
class Mirror:
    """One archive: its URI and how its signature is checked ("" = the host's trusted keys)."""

    uri: str
    signed_by: str = ""
    trusted: str = ""

    def deb822(self, suite: str) -> str:
        """An apt source stanza for the `main` component of `suite`."""
        text = f"Types: deb\nURIs: {self.uri}\nSuites: {suite}\nComponents: main\n"
        if self.signed_by:
            text += f"Signed-By: {self.signed_by}\n"
        if self.trusted:
            text += f"Trusted: {self.trusted}\n"
        return text


@dataclass(frozen=True)
class _Entry:
    types: list[str]
    uris: list[str]
    suites: list[str]
    components: list[str]
    signed_by: str = ""
    trusted: str = ""


def mirrors(codename: str) -> list[Mirror]:
    """The mirrors that serve Debian `codename` to this host, in the order apt reads them.

    Raises FetchError when apt or a usable source is missing.
    """
    hint = "MicroPython is taken from Debian packages: use Debian 12+ or Raspberry Pi OS 12+"
    query = ["apt-config", "shell", "L", "Dir::Etc::sourcelist/f", "P", "Dir::Etc::sourceparts/d"]
    told = dict(
        word.partition("=")[::2] for word in shlex.split(run("apt sources", query, hint=hint))
    )
    files = [Path(told.get("L", ""))]
    parts = Path(told.get("P", ""))
    if parts.is_dir():
        files += sorted(path for path in parts.iterdir() if path.suffix in (".list", ".sources"))
    entries: list[_Entry] = []
    for path in files:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            entries += parse_deb822(text) if path.suffix == ".sources" else parse_one_line(text)
    found = select(entries, codename)
    if not found:
        raise FetchError(
            f"no Debian mirror for '{codename}' in this host's apt sources",
            f"add one (component main) to {parts}, or use Debian 12+ or Raspberry Pi OS 12+",
        )
    return found


def select(entries: list[_Entry], codename: str) -> list[Mirror]:
    """Mirrors of whole releases: no security or update suites, no CD, no third component."""
    found: list[Mirror] = []
    for entry in entries:
        suites = {suite.rstrip("/") for suite in entry.suites}
        if "deb" not in entry.types or "main" not in entry.components:
            continue
        if not suites & (_ROLLING | {codename}):
            continue
        for uri in entry.uris:
            mirror = Mirror(uri, entry.signed_by, entry.trusted)
            if not uri.startswith("cdrom:") and mirror not in found:
                found.append(mirror)
    return found


def parse_one_line(text: str) -> list[_Entry]:
    """Entries of a `.list` file: `deb [option=value ...] uri suite component ...`."""
    entries: list[_Entry] = []
    for raw in text.splitlines():
        kind, *more = raw.partition("#")[0].split(maxsplit=1)[:2] or [""]
        rest = "".join(more)
        options: dict[str, str] = {}
        if rest.startswith("["):
            inside, _, rest = rest[1:].partition("]")
            options = dict(word.partition("=")[::2] for word in inside.split())
        words = rest.split()
        if kind != "deb" or len(words) < 3:
            continue
        entries.append(
            _Entry(
                [kind],
                words[:1],
                words[1:2],
                words[2:],
                options.get("signed-by", ""),
                options.get("trusted", ""),
            )
        )
    return entries


def parse_deb822(text: str) -> list[_Entry]:
    """Entries of a `.sources` file; a multi-line Signed-By (an embedded key) is kept verbatim."""
    entries: list[_Entry] = []
    for fields in _stanzas(text):
        if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off", "without"):
            continue
        entries.append(
            _Entry(
                fields.get("types", "").split(),
                fields.get("uris", "").split(),
                fields.get("suites", "").split(),
                fields.get("components", "").split(),
                fields.get("signed-by", ""),
                fields.get("trusted", ""),
            )
        )
    return entries


def _stanzas(text: str) -> list[dict[str, str]]:
    stanzas: list[dict[str, str]] = [{}]
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            stanzas.append({})
            name = ""
        elif line[0] in " \t":
            if name:
                stanzas[-1][name] += "\n" + line.rstrip()
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            stanzas[-1][name] = value.strip()
    return [stanza for stanza in stanzas if stanza]
