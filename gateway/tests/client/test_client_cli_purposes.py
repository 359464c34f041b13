"""`sealmq reserve`, `presubscribe`, `purposes set`, `sub --purpose`: what they say, and the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from client.test_client_cli import Done, Program, end
from client_peer import Peer, play, until
from sealmq.cli import main as cli
from sealmq.families.purposes.texts import Reader
from sealmq_spec import purposes

REFUSED = (5, "purposes.entitled.no-grant", "no grant covers\x1b[31m these wildcards")


async def said(peer: Peer, folder: Path, *words: str) -> Done:
    """`sealmq WORDS`, as the peer's client."""
    return await end(await Program(peer, folder).start(words[0], *words[1:]))


def read(peer: Peer) -> list[tuple[object, ...]]:
    return [Reader().read(body.decode()) for family, body in peer.commands if family == "purposes"]


def test_reserve_and_take_back(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        words = ("--aip", "service", "--aip", "a,b", "--pip", "ads")
        done = await said(peer, tmp_path, "reserve", "-t", "a/#", "-t", "b", *words)
        assert (done.code, done.err) == (0, "")
        assert done.out == (
            b"a/#: for service, a,b, not for ads\nb: for service, a,b, not for ads\n"
        )
        done = await said(peer, tmp_path, "reserve", "-t", "a/#", "--none")
        assert (done.code, done.out) == (0, b"a/#: for nothing\n")
        done = await said(peer, tmp_path, "reserve", "-t", "c", "--aip", "service", "--json")
        told = {"filter": "c", "reserved": {"aip": ["service"], "pip": []}}
        assert (done.code, json.loads(done.out)) == (0, told)
        done = await said(peer, tmp_path, "reserve", "-t", "a/#", "--remove")
        assert done.code == 0
        assert read(peer) == [
            ("reserve", "a/#", ("service", "a,b"), ("ads",)),
            ("reserve", "b", ("service", "a,b"), ("ads",)),
            ("reserve", "a/#", (), ()),
            ("reserve", "c", ("service",), ()),
            ("release", "a/#", (), ()),
        ]

    play(story)


def test_presubscribe_for_itself_for_others_and_take_back(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        done = await said(peer, tmp_path, "presubscribe", "-t", "a/#", "--purpose", "service")
        assert (done.code, done.out) == (0, b"app on a/#: for service\n")
        other = ("presubscribe", "--for", "old", "-t", "a/#")
        assert (await said(peer, tmp_path, *other, "--purpose", "ads")).code == 0
        done = await said(peer, tmp_path, *other, "--remove", "--json")
        told = {"client": "old", "filter": "a/#", "purpose": None}
        assert (done.code, json.loads(done.out)) == (0, told)
        assert read(peer) == [
            ("presub", "app", "a/#", "service"),
            ("presub", "old", "a/#", "ads"),
            ("presub", "old", "a/#", ""),
        ]

    play(story)


def test_nothing_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["purposes", "set", "--enrolment", "/nowhere"]) == 1
    assert "nothing to set" in capsys.readouterr().err


def test_set(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        program = Program(peer, tmp_path)
        words = ("set", "--enrolment", str(program.file))
        done = await run(peer, tmp_path, "purposes", *words, "--mode", "fop", "--strict", "true")
        assert (done.code, done.out) == (0, b"mode: fop\nstrict: true\n")
        done = await run(peer, tmp_path, "purposes", *words, "--mode", "configured")
        assert (done.code, done.out) == (0, b"mode: as sealmq.toml has it\n")
        done = await run(peer, tmp_path, "purposes", *words, "--mode", "hybrid", "--json")
        assert (done.code, json.loads(done.out)) == (0, {"setting": "mode", "value": "hybrid"})
        assert read(peer) == [
            ("set", "mode", "fop", ""),
            ("set", "strict", "true", ""),
            ("set", "mode", "", ""),
            ("set", "mode", "hybrid", ""),
        ]

    play(story)


async def run(peer: Peer, folder: Path, *words: str) -> Done:
    return await end(await Program(peer, folder).begin(*words))


def test_a_refusal_is_12_and_says_why(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.refuse["purposes"] = REFUSED
        for words in (
            ("reserve", "-t", "a/#", "--aip", "x"),
            ("presubscribe", "-t", "a/#", "--purpose", "x"),
        ):
            done = await said(peer, tmp_path, *words)
            assert (done.code, done.out) == (12, b"")
            assert done.err == (
                "sealmq: command for purposes refused by rule purposes.entitled.no-grant: no grant "
                "covers\\x1b[31m these wildcards\n"
            )

    play(story)


@pytest.mark.parametrize(
    "words",
    [
        ("reserve", "--aip", "x"),
        ("reserve", "-t", "a"),
        ("reserve", "-t", "a", "--pip", "x"),
        ("reserve", "-t", "a", "--remove", "--aip", "x"),
        ("reserve", "-t", "a", "--remove", "--none"),
        ("reserve", "-t", "a", "--none", "--aip", "x"),
        ("reserve", "-t", "a", "--aip", "x", "--aip", "x"),
        ("reserve", "-t", "a#", "--aip", "x"),
        ("reserve", "-t", "a", "--aip", ""),
        ("reserve", "-t", "a", "--aip", "x", "-W", "0"),
        ("reserve", "-t", "\udc80", "--aip", "x"),
        ("presubscribe", "-t", "a"),
        ("presubscribe", "--purpose", "x"),
        ("presubscribe", "-t", "a", "--purpose", "x", "--remove"),
        ("presubscribe", "-t", "a", "--purpose", ""),
        ("presubscribe", "-t", "a", "--purpose", "x", "--for", "a/b"),
        ("sub", "-t", "a", "--purpose", ""),
    ],
)
def test_what_cannot_be_meant_is_told_before_anybody_is_asked(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    command, *flags = words
    # Nobody is there: it would be told otherwise.
    assert cli.main([command, "--enrolment", "/nowhere", *flags]) == 1
    said = capsys.readouterr().err
    assert said.startswith("sealmq: ")
    assert "internal error" not in said
    assert "nowhere" not in said


def test_sub_for_a_purpose(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        wire = purposes.access("a/#", "service")
        program = await Program(peer, tmp_path).start(
            "sub", "-t", "a/#", "--purpose", "service", "-C", "1", "-v"
        )
        await until(lambda: bool(peer.links) and wire in peer.link.filters)
        peer.link.deliver("a/b", peer.m3("a/b", b"x"))
        done = await end(program)
        assert (done.code, done.out) == (0, b"a/b x\n")
        why = (5, "purposes.subscribe.no-purpose", "the subscription names no purpose")
        peer.knobs.refuse["a/#"] = why
        done = await said(peer, tmp_path, "sub", "-t", "a/#", "-C", "1")
        assert done.code == 12
        assert done.err.splitlines()[1].startswith("hint: --purpose PURPOSE")

    play(story)
