"""sealmq.toml: any text is a Config or a ConfigError that says where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import sealmq.site
from sealmq.site.config import ConfigError, loads

from .target import Finding, Target

_TEMPLATES = Path(sealmq.site.__file__).parent / "templates"
_HEAD = '[site]\nname = "s"\nid = "01020304"\n[policy]\norder = ["labels"]\n'
_BODIES = (
    "[labels]\nlow = []\nhigh = ['low']\n[clients]\na = { label = 'low', kind = 'host' }\n",
    "[labels]\nlow = { over = [], suite = 'chacha20-poly1305' }\n[topics]\n'a/b' = 'low'\n",
    "[labels]\nx = ['y']\ny = ['x']\n",
    "[mediator]\nlisten = '0.0.0.0:1883'\nadvertise = '[::1]:1883'\nnumber = 3\n",
    "[broker]\nurl = 'mqtts://h:8883'\nca = '/c'\ncert = '/d'\nkey = '/k'\nautosave = 60\n",
    "[broker]\nkind = 'mosquitto'\n",
    "[attributes.a]\nsource = 'calendar'\nzone = 'UTC'\nelse = 'N'\n[attributes.a.hours]\n"
    "D = { between = ['08:00', '18:00'], weekdays = ['mon'] }\n",
    "[labels]\nl = []\n[clients]\nc = { label = 'l' }\n[attributes.b]\nsource = 'client'\n"
    "by = ['c']\nof = 'pair'\nvalid = '1h'\n[attributes.d]\nsource = 'count'\n"
    "of = 'subscriber'\nwindow = '60s'\n",
    "[[creation]]\nfilter = 'a/#'\nlabels = ['none']\nclients = []\n[families.x]\ny = 1\n",
)


class Fuzz(Target):
    """A whole file, as an operator's editor leaves it."""

    longest: ClassVar[int] = 3000
    words: ClassVar[tuple[bytes, ...]] = tuple(
        word.encode()
        for word in (
            "[site]", "[mediator]", "[broker]", "[policy]", "[labels]", "[clients]", "[topics]",
            "[[creation]]", "[families.", "name = ", "id = ", "key_file = ", "listen = ", "kind = ",
            "advertise = ", "number = ", "on_denied = ", "url = ", "user = ", "password_file = ",
            "order = ", "enforce = ", "over = ", "suite = ", "label = ", "disabled = ",
            "rotation = ", "filter = ", "labels = ", "clients = ", '"mqtt://', '"mqtts://',
            '"embedded"', "true", "'mosquitto'", "'external'", "'labels'", "bottom", "top", "none",
            "'device'", "[]", "{}", "[attributes.", "source = ", "of = ", "valid = ", "window = ",
        )
    )  # fmt: skip

    def one(self, data: bytes) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return
        try:
            config = loads(text, Path("/site/sealmq.toml"))
        except ConfigError as error:
            lines = text.count("\n") + text.count("\r") + 1
            # Other line ends than TOML's are counted as well, so this is an upper bound.
            if error.line is not None and not 0 < error.line <= lines + len(text):
                raise Finding(f"an error on line {error.line} of {lines}") from None
            if not str(error) or len(str(error)) > 4 * len(text) + 2000:
                raise Finding(f"an error text of {len(str(error))} characters") from None
            return
        for name in config.clients.values():
            if name.label not in (*config.labels, "bottom", "top", "none"):
                raise Finding(f"a client at label {name.label!r}, which is not there")

    def seeds(self) -> Iterator[bytes]:
        for path in sorted(_TEMPLATES.glob("*.toml")):
            yield path.read_bytes()
        for body in _BODIES:
            yield (_HEAD + body).encode()
