"""`sealmq pub` and `sub` against a peer that misbehaves: exit codes, one line, no traceback."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import sealmq_forks
from client_peer import Peer, play, until
from sealmq.cli.main import main
from sealmq.mqtt import build
from sealmq_spec.purposes import access


@dataclass
class Done:
    """How a program ended."""

    code: int | None
    out: bytes
    err: str


class Program:
    """A `sealmq` command with an enrolment for the peer."""

    def __init__(self, peer: Peer, folder: Path) -> None:
        self.peer = peer
        self.file = folder / "app.sealmq.json"
        self.file.write_text(json.dumps(peer.enrolment()))
        self.file.chmod(0o600)

    async def start(self, kind: str, *flags: str) -> asyncio.subprocess.Process:
        return await self.begin(kind, "--enrolment", str(self.file), *flags)

    async def begin(self, *given: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        # What a test set up by PYTHONPATH holds for the program as well.
        env = dict(os.environ)
        program = sealmq_forks.on_path(env) / "sealmq"
        return await asyncio.create_subprocess_exec(
            program, *given, stdin=pipe, stdout=pipe, stderr=pipe, env=env
        )

    async def run(self, kind: str, *flags: str, stdin: bytes = b"") -> Done:
        return await end(await self.start(kind, *flags), stdin)


async def end(process: asyncio.subprocess.Process, stdin: bytes | None = None) -> Done:
    async with asyncio.timeout(30):
        out, err = await process.communicate(stdin)
    text = err.decode()
    assert "Traceback" not in text
    return Done(process.returncode, out, text)


def test_lines_with_a_refused_one_among_them(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.refuse["t"] = (5, "labels", "no\x1b[31m")
        program = Program(peer, tmp_path)
        done = await program.run("pub", "-t", "t", "-l", stdin=b"1\n2\n")
        assert done.code == 12
        line = "sealmq: publish to t refused by rule labels: no\\x1b[31m\n"
        assert done.err == line * 2
        done = await program.run("pub", "-t", "u", "-l", "-q", "2", stdin=b"1\n\n3")
        assert (done.code, done.err) == (0, "")
        assert [p.payload for p in peer.published] == [b"1", b"", b"3"]
        done = await program.run("pub", "-t", "u", "-l", "--json", stdin=b"1\n\n")
        rows = [{"topic": "u", "qos": 0, "retain": False, "bytes": n} for n in (1, 0)]
        wanted = [row | {"line": number} for number, row in enumerate(rows, 1)]
        told = map(json.loads, done.out.splitlines())
        assert sorted(told, key=lambda row: row["line"]) == wanted
        done = await program.run("pub", "-t", "t", "-m", "1", "--json")
        assert (done.code, done.out) == (12, b"")

    play(story)


@pytest.mark.parametrize("kind", ["pub", "sub"])
def test_the_mediators_refusal_to_connect_is_the_exit_code(tmp_path: Path, kind: str) -> None:
    async def story(peer: Peer) -> None:
        flags = ("-t", "t", "-m", "x") if kind == "pub" else ("-t", "t")
        for code in (3, 5):
            peer.knobs.connack = code
            done = await Program(peer, tmp_path).run(kind, *flags)
            assert done.code == code
            [line] = done.err.splitlines()
            assert f"CONNACK {code}" in line

    play(story)


@pytest.mark.parametrize("kind", ["pub", "sub"])
def test_other_return_codes_are_no_exit_codes(tmp_path: Path, kind: str) -> None:
    """1 and 2 mean something else, 4 means nothing."""

    async def story(peer: Peer) -> None:
        flags = ("-t", "t", "-m", "x") if kind == "pub" else ("-t", "t")
        for code in (1, 2, 4):
            peer.knobs.connack = code
            done = await Program(peer, tmp_path).run(kind, *flags)
            assert done.code == 1
            assert f"CONNACK {code}" in done.err

    play(story)


@pytest.mark.parametrize("kind", ["pub", "sub"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_an_enrolment_that_others_can_read_is_refused(tmp_path: Path, kind: str, mode: int) -> None:
    async def story(peer: Peer) -> None:
        program = Program(peer, tmp_path)
        program.file.chmod(mode)
        flags = ("-t", "t", "-m", "x") if kind == "pub" else ("-t", "t", "-C", "1")
        done = await program.run(kind, *flags)
        assert done.code == 1
        said, hint = done.err.splitlines()
        assert f"(mode {mode:04o})" in said
        assert f"chmod 600 {program.file}" in hint
        assert not peer.published
        assert peer.enrolment()["ps"] not in done.err

    play(story)


def test_no_answer_is_27(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = peer.knobs.receipts = False
        program = Program(peer, tmp_path)
        for qos in ("0", "1"):
            done = await program.run("pub", "-t", "t", "-m", "x", "-q", qos, "-W", "3")
            assert done.code == 27
            assert done.err.startswith("sealmq: publish to t: no ")

    play(story)


def test_a_lost_connection_is_told_by_pub(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        process = await Program(peer, tmp_path).start("pub", "-t", "t", "-m", "x", "-q", "1")
        await until(lambda: bool(peer.published))
        peer.link.cut()
        done = await end(process)
        assert done.code == 1
        assert done.err.startswith("sealmq: the ")
        assert len(done.err.splitlines()) == 1

    play(story)


def test_lines_outlive_a_lost_connection(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        process = await Program(peer, tmp_path).start("pub", "-t", "t", "-l", "-q", "1")
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        await until(lambda: len(peer.published) == 1)
        peer.link.cut()
        done = await end(process, b"two\n")
        assert (done.code, done.err) == (0, "")
        assert peer.published[-1].payload == b"two"

    play(story)


def test_stdin_that_never_ends_does_not_keep_pub_alive(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        process = await Program(peer, tmp_path).start("pub", "-t", "t", "-l")
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        await until(lambda: len(peer.published) == 1)
        process.terminate()
        async with asyncio.timeout(30):
            await process.wait()
        process.stdin.close()
        with contextlib.suppress(OSError):
            await process.stdin.wait_closed()

    play(story)


def test_a_line_that_no_message_holds(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        done = await Program(peer, tmp_path).run("pub", "-t", "t", "-l", stdin=b"x" * 1_100_000)
        assert done.code == 1
        assert "1048576" in done.err

    play(story)


def test_sub_prints_what_verifies_and_counts_the_rest(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        process = await Program(peer, tmp_path).start("sub", "-t", "a", "-C", "2", "-d", "--json")
        await until(lambda: bool(peer.links) and "a" in peer.link.filters)
        good = peer.m3("a", b"one")
        for m3 in (good, good, b"plaintext", peer.m3("a", b"\xfftwo", how=1, kind=1)):
            peer.link.deliver("a", m3, retain=m3[1:2] == b"\x21")
        done = await end(process)
        assert done.code == 0
        first, second = (json.loads(line) for line in done.out.splitlines())
        assert (first["payload"], first["label"], first["how"]) == ("one", "low", "live")
        assert (second["payload_hex"], second["how"]) == (b"\xfftwo".hex(), "retained")
        assert "subscribed: a (QoS 0)" in done.err
        assert "Malformed 1, Replay 1" in done.err

    play(story)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("more", [(), ("-R",)])
def test_sub_acknowledges_what_it_has_printed_and_nothing_else(
    tmp_path: Path, qos: int, more: tuple[str, ...]
) -> None:
    """What a session holds that goes on comes to the next `sub`."""

    async def story(peer: Peer) -> None:
        words = ("-t", "a", "-q", str(qos), "-C", "1", *more)
        process = await Program(peer, tmp_path).start("sub", *words)
        await until(lambda: bool(peer.links) and "a" in peer.link.filters)
        link = peer.link
        retained = peer.m3("a", b"old", how=1, kind=1)
        sent = b"".join(
            build.publish(b"a", m3, qos, m3 is retained, False, pid)
            for pid, m3 in enumerate((retained, *(peer.m3("a", b"%d" % n) for n in range(3))), 1)
        )
        link.send(sent)
        done = await end(process)
        assert (done.code, done.out) == (0, b"0\n" if more else b"old\n")
        assert set(link.acked) == ({1, 2} if more else {1})

    play(story)


@pytest.mark.parametrize("words", [("pub", "-m", "1"), ("sub",)])
def test_host_and_port_have_mosquitto_s_letters(tmp_path: Path, words: tuple[str, ...]) -> None:
    async def story(peer: Peer) -> None:
        done = await Program(peer, tmp_path).run(words[0], "-h", "a..b", "-t", "t", *words[1:])
        assert (done.code, done.out) == (1, b"")
        assert done.err == "sealmq: 'a..b' is no name of a host\n"

    play(story)


async def redirected(peer: Peer, folder: Path, how: str, *words: str) -> Done:
    """A command whose streams a shell has redirected so. Its interpreter begins with them."""
    python = sys.executable, "-m", "sealmq.cli"
    given = (*python, words[0], "--enrolment", str(Program(peer, folder).file), *words[1:])
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f'exec "$@" {how}', "sh", *given, stderr=asyncio.subprocess.PIPE
    )
    return await end(process)


@pytest.mark.parametrize(
    ("how", "words", "says"),
    [
        (">&-", ("sub", "-t", "a", "-C", "1"), "standard output is closed"),
        ("<&-", ("pub", "-t", "a", "-l"), "standard input is closed"),
        ("<&-", ("pub", "-t", "a", "-s"), "standard input is closed"),
    ],
)
def test_streams_that_cannot_be_used_are_told(
    tmp_path: Path, how: str, words: tuple[str, ...], says: str
) -> None:
    async def story(peer: Peer) -> None:
        done = await redirected(peer, tmp_path, how, *words)
        assert done.code == 1
        first, *hints = done.err.splitlines()
        assert first == f"sealmq: {says}"
        assert all(line.startswith("hint: ") for line in hints)

    play(story)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pub", "s", "--client", "c", "-t", "a", "-m", "-1e-5"),
         "argument -m/--message: expected one argument\n"
         "hint: sealmq pub --help\none that begins with -: -m=-...\n"),
        (("sub", "s", "--client", "c", "a/#"),
         "unrecognized arguments: a/#\nhint: sealmq sub --help\n"),
        (("pub", "s", "--client", "c", "-h", "broker", "-p", "1883", "-t", "a", "-m", "1"),
         "--state, --host or --port with SITE; they go with --enrolment\n"
         "hint: sealmq pub --help\n"),
        (("pub", "s", "--client", "\udcff", "-t", "a", "-m", "1"),
         "what is not UTF-8 can be no filter and no name\n"),
    ],
)  # fmt: skip
def test_what_people_type_who_know_mosquitto_pub(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) in (1, 2)
    assert capsys.readouterr().err == f"sealmq: {said}"


@pytest.mark.parametrize("by", ["-f", "-s"])
def test_a_message_that_is_too_large_is_not_given_a_size_that_it_has_not(
    tmp_path: Path, by: str
) -> None:
    async def story(peer: Peer) -> None:
        large = bytes(2_000_000)
        (tmp_path / "large").write_bytes(large)
        words = ("-f", str(tmp_path / "large")) if by == "-f" else ("-s",)
        stdin = large if by == "-s" else b""
        done = await Program(peer, tmp_path).run("pub", "-t", "t", *words, stdin=stdin)
        assert done.code == 1
        assert "more than 1048576 bytes" in done.err

    play(story)


def test_a_client_id_that_is_no_text_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sub", "site", "--client", "c", "-t", "a", "-i", "\udcff"]
    assert main(words) == 1
    assert "it has 1 to 64 bytes of UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "filt", "first", "says"),
    [
        (("-t", "@nroth/#"), "@nroth/#", "@", "the site has no peer 'nroth', or imports nothing"),
        (("-t", "a", "--purpose", "x"), access("a", "x"), "!", "leave --purpose out"),
    ],
)
def test_sub_says_what_is_wrong_with_a_filter_that_nobody_has(
    tmp_path: Path, words: tuple[str, ...], filt: str, first: str, says: str
) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.refuse[filt] = (5, "", f"filters that begin with {first} are reserved")
        done = await Program(peer, tmp_path).run("sub", *words)
        assert done.code == 12
        assert says in done.err

    play(story)


def test_an_assessor_ends_with_its_time_as_sub_does(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        words = ("-t", "@b/#", "--range", "0..1", "-C", "1", "-W", "0.5")
        program = Program(peer, tmp_path)
        given = ("--enrolment", str(program.file), *words)
        done = await end(await program.begin("trust", "assess", *given))
        assert (done.code, done.err) == (27, "Timed out\n")

    play(story)


@pytest.mark.parametrize("words", [("pub", "-m", "1"), ("sub",)])
def test_another_user_is_told_who_may_act_as_a_client(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    async def refused(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "sealmq.toml").touch()
    monkeypatch.setattr(asyncio, "open_unix_connection", refused)
    assert main([words[0], str(tmp_path), "--client", "c", "-t", "a", *words[1:]]) == 1
    socket = tmp_path / "run" / "kg" / "kg.sock"
    assert capsys.readouterr().err == (
        f"sealmq: {socket}: permission denied\nhint: run it as the site's owner or as root\n"
    )


@pytest.mark.parametrize("filt", ["#", "b/#", "@b"])
def test_an_assessor_judges_other_sites_topics_alone(
    filt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["trust", "assess", "nowhere", "--client", "c", "-t", filt, "--range", "0..1"]
    assert main(words) == 2
    assert f"-t {filt}; it judges what comes from other sites, @SITE/TOPIC" in (
        capsys.readouterr().err
    )


def test_a_reader_of_the_output_that_goes_away(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        process = await Program(peer, tmp_path).start("sub", "-t", "a")
        await until(lambda: bool(peer.links) and "a" in peer.link.filters)
        assert process.stdout is not None
        process.stdout._transport.close()  # type: ignore[attr-defined]
        for _ in range(3):
            peer.link.deliver("a", peer.m3("a", b"x" * 100))
            await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            assert await process.wait() == 1
        assert process.stderr is not None
        assert await process.stderr.read() == b""

    play(story)


def test_an_enrolment_that_is_none(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        program = Program(peer, tmp_path)
        for text in ("{}", "no json", '{"sealmq": 9}'):
            program.file.write_text(text)
            done = await program.run("pub", "-t", "t", "-m", "x")
            assert done.code == 1
            assert len(done.err.splitlines()) == 1
        done = await program.run("pub", "site", "--client", "x", "-t", "t", "-m", "x")
        assert done.code == 2
        assert "hint: sealmq pub --help" in done.err

    play(story)
