"""Claims 41 and 42 in a started site of two workers with Mosquitto: what mediators match they
cannot read, and what is changed counts from the next message on.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from sealmq.client import Client, Options  # noqa: TID251 - it is what is tried
from sealmq.client.lent import lent_client  # noqa: TID251 - as `sealmq sub` does
from sealmq_spec.errors import Denied

from handover_cast import until as soon
from running_site import ROOT, Site, publish, ran, sealmq
from test_memory import found_in, spellings

KEPT = ROOT / "gateway/sealmq/families/blinded/templates/streaming/kept.toml"
A_X, A_Y, B_Q1, B_LATE = (
    "a10c7be2915f0d34", "4f92d0617ac8be15", "be07412c5d93fa68", "9c65e8b1f7204ad3",
)  # fmt: skip
EVENTS = {
    A_X: "stream/a/1", A_Y: "stream/a/2", B_Q1: "stream/b/1", B_LATE: "stream/b/3",
    "31d8a6f40b7e92c5": "stream/b/2",
}  # fmt: skip
SEALED = "5ea1ed0000000001"
END = "00000000000000ed"
WORDS = ("individual", "company", "datamining", "billing", "service = audit", "statistics",
         "consumer", "period", "service", "Q1", "Q2")  # fmt: skip
READERS = ("X", "Y", "miner", "biller")


class Stream:
    """The example, its attributes in words that stand nowhere else; and all its clients."""

    readers: tuple[str, ...] = READERS

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder, example="streaming", policy="blinded")
        self.site.edit("[mediator]\n", "[mediator]\nworkers = 2\n")
        self.words = {word: f"w{secrets.token_hex(8)}" for word in WORDS if " " not in word}
        text = self.said(KEPT.read_text(encoding="utf-8"))
        for name in READERS:  # something that everybody gets
            text = text.replace(
                f"[customers.{name}]\nhas = [", f'[customers.{name}]\nhas = ["e = 1", '
            )
        text = text.replace("wants = [", 'wants = ["e = 1", ')
        text += '[types."stream/end"]\nhas = ["e = 1"]\n[policies."stream/end"]\nlet = ["e = 1"]\n'
        text += f'[[events]]\nid = "{END}"\nclient = "jingfang"\ntopic = "stream/end"\n'
        text += f'[[events]]\nid = "{SEALED}"\nclient = "jingfang"\ntopic = "stream/b/1"\n'
        text += self.said('session = "period = Q1"\nsealed = true\n')
        (folder / "kept.toml").write_text(text)
        self._prepare()
        self.site.up("--broker", "mosquitto", forked=False)
        ran("blinded", "put", self.site.path, folder / "kept.toml")
        self.clients: dict[str, Client] = {}
        self.got: dict[str, list[str]] = {name: [] for name in self.readers}
        self._tasks: list[asyncio.Task[None]] = []
        self._count = 0

    def _prepare(self) -> None:
        """What else there is before it starts."""

    def said(self, text: str) -> str:
        for word, marker in self.words.items():
            text = text.replace(word, marker)
        return text

    def changed(self, *words: str) -> None:
        ran("blinded", words[0], self.site.path, *map(self.said, words[1:]))

    async def connect(self) -> None:
        for name in (*self.readers, "jingfang"):
            options = Options(client_id=f"{name}-site")
            client = self.clients[name] = await lent_client(self.site.path, name, options=options)
            await client.connect()
            if name in self.readers:
                await client.subscribe("stream/#", qos=1)
                self._tasks.append(asyncio.create_task(self._follow(name)))

    async def _follow(self, name: str) -> None:
        async for message in self.clients[name].messages():
            self.got[name].append(bytes(message.payload).decode())

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self.clients.values():
            await client.disconnect()

    async def publish(self, ident: str, topic: str, payload: str, client: str = "jingfang") -> None:
        put = {"policy_id": [ident]} if ident else {}
        await self.clients[client].publish(topic, payload, qos=1, put=put)

    async def receivers(self, *idents: str, still: tuple[str, ...] = READERS) -> list[list[str]]:
        """Who gets an event of each; one that all of `still` get comes last."""
        self._count += 1
        for ident in idents:
            topic = EVENTS.get(ident, "stream/b/1")
            await self.publish(ident, topic, f"{ident} {self._count}")
        end = f"end {self._count}"
        await self.publish(END, "stream/end", end)
        await soon(
            lambda: f"{end} at {still}: {self.got}",
            lambda: all(end in self.got[name] for name in still),
        )
        return [
            sorted(name for name, got in self.got.items() if f"{ident} {self._count}" in got)
            for ident in idents
        ]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    made = Stream(tmp_path_factory.mktemp("stream"))
    try:
        yield made
    finally:
        made.site.down()


def test_the_stream_of_the_paper(stream: Stream) -> None:
    asyncio.run(_story(stream))
    _nothing_is_read(stream)


async def _story(stream: Stream) -> None:
    await stream.connect()
    try:
        got = await stream.receivers(*EVENTS)
        assert dict(zip(EVENTS, got, strict=True)) == {
            A_X: ["X"], A_Y: ["Y"], B_Q1: ["miner"], B_LATE: [], "31d8a6f40b7e92c5": [],
        }  # fmt: skip
        for ident, topic, client in (
            ("", "stream/a/1", "jingfang"),  # no id
            (A_X, "stream/a/2", "jingfang"),  # another topic's
            (A_X, "stream/a/1", "Y"),  # another client's
            ("ff" * 8, "stream/a/1", "jingfang"),
        ):
            with pytest.raises(Denied):
                await stream.publish(ident, topic, "never", client)
        # Readers who match have the key of a sealed grant, and open it.
        assert await stream.receivers(SEALED) == [["miner"]]
        # B's policy is billing's now, and from the next message on.
        await asyncio.to_thread(
            stream.changed, "update", "--policy", "stream/b",
            "--let", "type = company & service = billing",
        )  # fmt: skip
        assert await stream.receivers(B_Q1, SEALED) == [["biller"], ["biller"]]
        await asyncio.to_thread(stream.changed, "revoke", "--customer", "X")
        left = ("Y", "miner", "biller")
        assert await stream.receivers(A_X, A_Y, still=left) == [[], ["Y"]]
        assert not any("never" in got for got in stream.got.values())
    finally:
        await stream.leave()


def _nothing_is_read(stream: Stream) -> None:
    """No attribute in memory, stores, logs and audit; the key generator has them, so that a scan
    which finds nothing means something."""
    site = stream.site
    wanted = {word: spellings(marker.encode()) for word, marker in stream.words.items()}
    for role in ("mediator", "broker"):
        assert found_in(site.pid(role), wanted) == set(), role
        for child in Path(f"/proc/{site.pid(role)}/task").glob("*/children"):
            for pid in child.read_text().split():
                assert found_in(int(pid), wanted) == set(), (role, pid)
    assert found_in(site.pid("kg"), wanted)
    for file in site.path.rglob("*"):
        if file.is_file() and not file.is_socket():
            content = file.read_bytes()
            found = [word for word, forms in wanted.items() if any(f in content for f in forms)]
            assert found == [], file
    assert not [marker for marker in stream.words.values() if marker in site.log()]
    shown = ran("blinded", "show", site.path)
    assert all(marker in shown for marker in stream.words.values())


def test_explain_and_the_commands_of_clients_say_what_is_so(stream: Stream) -> None:
    words = ("blinded", "explain", stream.site.path, "--client", "miner", "-t", "stream/b/3")
    done = sealmq(*words, "--json")
    (answer,) = json.loads(done.stdout)["answers"]
    assert (done.returncode, answer["let"], answer["wanted"]) == (1, False, False)
    done = sealmq("pub", stream.site.path, "--client", "jingfang", "-t", "stream/a/2", "-m", "x")
    assert done.returncode != 0
    assert "blinded.publish.no-policy-id" in done.stderr
    publish(stream.site, "jingfang", "stream/a/2", "x", "--policy-id", A_Y)
    ident = ran("blinded", "event", stream.site.path, "--client", "Y", "-t", "stream/a/2").strip()
    publish(stream.site, "Y", "stream/a/2/mine", "x", "--policy-id", ident)
    ran("blinded", "revoke", stream.site.path, "--id", ident)
    done = sealmq("pub", stream.site.path, "--client", "Y", "-t", "stream/a/2/mine", "-m", "x",
                  "--policy-id", ident)  # fmt: skip
    assert "blinded.publish.unknown" in done.stderr
    answers = json.loads(sealmq("doctor", stream.site.path, "--json", timeout=180).stdout)
    assert {row["name"]: row["ok"] for row in answers["tries"] if row["ok"] is False} == {}
    assert "publish without a policy id" in {row["name"] for row in answers["tries"] if row["ok"]}
    done = sealmq("blinded", "grant", stream.site.path, "--customer", "X", "--has", "a >")
    assert done.returncode == 1
    assert "customers.X.has" in done.stderr


def test_the_audit_log_says_which_policy_matched_and_nothing_of_what_it_says(
    stream: Stream,
) -> None:
    """Last: counted records are written when the site ends."""
    site = stream.site
    site.down()
    rows = [row for row in site.audit("delivered") if row["topic"].startswith("stream/")]
    got = {(row["client"], row["policy_id"]) for row in rows}
    assert got >= {("X", A_X), ("miner", B_Q1), ("biller", B_Q1), ("miner", SEALED)}
    denied = {row["policy_id"] for row in site.audit("deliver-denied") if "policy_id" in row}
    assert denied == {*EVENTS, SEALED}
    logs = b"".join(file.read_bytes() for file in site.path.glob("audit/*/*"))
    assert not [word for word in stream.words.values() if word.encode() in logs]
