"""The site, through the command `sealmq` alone: init, up, status, client add, and one text edit of
sealmq.toml before it is up, as an operator would: where it is reached, and by what it judges.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from .acts import ORDER, SETTINGS
from .broker import Broker, free_port
from .children import Child, Children, run
from .errors import DemoError
from .places import Places, sealmq

_PATIENCE_S = 45.0
# The command `sealmq` several times in one process: its start costs more than its work.
_COMMANDS = """
import json, sys
from sealmq.cli.main import main
for words in json.loads(sys.argv[1]):
    if code := main(words):
        sys.exit(code)
"""


async def command(*words: str | Path) -> str:
    """`sealmq …`; its standard output. DemoError: it failed."""
    code, out, error = await run(sealmq(), *words)
    if code:
        text = " ".join(map(str, words[:2]))
        raise DemoError(f"`sealmq {text}` failed: {error.strip() or out.strip()}")
    return out


class Plant:
    """The running factory. `port`: where its mediator listens."""

    def __init__(self, places: Places, children: Children) -> None:
        self.places, self._children = places, children
        self.port = free_port()
        self._up: Child | None = None

    async def init(self, advertise: int, enforce: bool) -> None:
        """A fresh factory; its clients are told the port `advertise`: the network's tap."""
        where = self.places
        listen = f"127.0.0.1:{self.port}"
        await command(
            "init",
            where.site,
            *("--example", "factory"),
            *("--key-file", where.key, "--listen", listen),
        )
        toml = where.site / "sealmq.toml"
        text = toml.read_text(encoding="utf-8")
        line = f'listen = "{listen}"'
        for old, new in (
            (re.escape(line), f'{line}\nadvertise = "127.0.0.1:{advertise}"'),
            (r"order = \[.*\]", f"order = {json.dumps(ORDER)}"),
        ):
            text, count = re.subn(f"^{old}$", new, text, flags=re.MULTILINE)
            if count != 1:
                word = new.partition(" ")[0]
                raise DemoError(f"{toml} has {count} lines that say `{word}`, not one")
        text += SETTINGS
        if not enforce:
            text = _without_policy(text)
        toml.write_text(text, encoding="utf-8")

    async def up(self, broker: Broker, port: int) -> None:
        """Start it on the broker behind `port`, where the broker's tap is; return once ready."""
        self._up = await self._children.start(
            "up",
            [
                sealmq(),
                "up",
                self.places.site,
                "--key-file",
                self.places.key,
                "--broker",
                f"mqtt://mediator@127.0.0.1:{port}",
                "--broker-password-file",
                broker.password_file,
            ],
        )
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE_S
        run_folder = self.places.site / "run"
        while not (run_folder / "mediator" / "ready.json").exists():
            self._check(loop.time() < end)
            await asyncio.sleep(0.1)

    async def status(self) -> dict[str, Any]:
        """`sealmq status --json`; waits until all is ready."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE_S
        while True:
            code, out, _ = await run(sealmq(), "status", self.places.site, "--json")
            if code == 0:
                said: dict[str, Any] = json.loads(out)
                return said
            self._check(loop.time() < end)
            await asyncio.sleep(0.3)

    async def enrol(self, labels: dict[str, str]) -> dict[str, int]:
        """An enrolment file for each client (name -> label); gives the clients' numbers."""
        site, key, folder = self.places.site, self.places.key, self.places.clients
        add = ["client", "add", str(site), "--key-file", str(key), "--json"]
        commands = [
            [*add, name, "--label", label, "-o", str(folder / f"{name}.json")]
            for name, label in labels.items()
        ]
        code, out, error = await run(sys.executable, "-c", _COMMANDS, json.dumps(commands))
        if code:
            raise DemoError(f"`sealmq client add` failed: {error.strip() or out.strip()}")
        numbers = (int(json.loads(line)["number"]) for line in out.splitlines())
        return dict(zip(labels, numbers, strict=True))

    async def down(self) -> None:
        """Stop it cleanly, which closes its audit log."""
        if self._up is not None and self._up.alive:
            code = await self._up.stop()
            if code:
                raise DemoError(f"`sealmq up` ended with {code}", self._up.last_words())

    def _check(self, in_time: bool) -> None:
        if self._up is None or not self._up.alive or not in_time:
            words = self._up.last_words() if self._up is not None else ""
            raise DemoError("the site does not come up", words)


def _without_policy(text: str) -> str:
    # Whether the text has a [policy] table already is the template's affair.
    lines = [line for line in text.splitlines() if not line.startswith("enforce")]
    if "[policy]" not in lines:
        return text + "\n[policy]\nenforce = false\n"
    lines.insert(lines.index("[policy]") + 1, "enforce = false")
    return "\n".join(lines) + "\n"
