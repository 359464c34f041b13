"""A site's announcement: what it says, how it is found, and that lies are only read."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from zeroconf import ServiceInfo

from sealmq.cli import main as cli
from sealmq.mdns import SERVICE, find, process
from sealmq.run import users
from sealmq.run.errors import BadHandOver
from sealmq.site.config import loads
from sealmq.site.errors import ConfigError
from sealmq.site.layout import Layout

HERE = "127.0.0.1"
GIVEN = {"name": "shed", "site": "0a0b0c0d", "host": HERE, "port": 1883, "listen": HERE}
PLAIN = """\
[site]
name = "shed"
id = "0a0b0c0d"
[mediator]
listen = "127.0.0.1:1883"
[policy]
order = ["labels"]
[labels.s]
"""


def told(**other: object) -> process.Told:
    """A site that nobody else announces at the same time."""
    site = secrets.token_hex(4)
    given = {"name": f"shed.{site}", "site": site, "host": HERE, "port": 1883, "listen": HERE}
    return process.Told.of(given | other)


def test_what_is_announced_is_found_and_gone_when_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, stop = told(port=1999), threading.Event()
    running = threading.Thread(target=process.announce, args=(one, stop))
    running.start()
    words = ["find", "--interface", HERE, "--site", one.site.upper(), "--seconds", "1.5"]
    try:
        assert cli.main([*words, "--json"]) == 0
        row = {"site": one.site, "name": f"shed-{one.site}", "host": HERE, "port": 1999}
        assert json.loads(capsys.readouterr().out) == {"found": [row]}
    finally:
        stop.set()
        running.join()
    assert cli.main([*words[:-1], "0.3"]) == 1
    assert f"site {one.site} is not announced here" in capsys.readouterr().err


def test_a_name_in_place_of_an_address_is_announced_as_it_is() -> None:
    info = told(host="gw.example").service()
    assert (info.server, info.addresses) == ("gw.example.", [])
    [found] = find._of(info)
    assert (found.host, found.port) == ("gw.example", 1883)


@pytest.mark.parametrize(
    ("site", "port", "server"),
    [
        ("0a0b0c0", 1883, "h.local."),
        ("0a0b0c0d\n", 1883, "h.local."),
        ("", 1883, "h.local."),
        ("0a0b0c0d", 0, "h.local."),
        ("0a0b0c0d", 1883, "h;reboot.local."),
        ("0a0b0c0d", 1883, "h\x1b[31m.local."),
    ],
)
def test_what_makes_no_sense_is_left_out(site: str, port: int, server: str) -> None:
    info = ServiceInfo(SERVICE, f"x.{SERVICE}", port=port, properties={"site": site}, server=server)
    assert find._of(info) == []


def test_what_a_liar_calls_itself_cannot_steer_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lie = find.Found("0a0b0c0d", "10.0.0.9", 1883, "shed\x1b[2J\n")
    monkeypatch.setattr(find, "find", lambda *_: [lie])
    assert cli.main(["find"]) == 0
    assert capsys.readouterr().out == "shed\\x1b[2J\\n  site 0a0b0c0d  10.0.0.9:1883\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--site", "shed"], 2, "is no site's id"),
        (["--seconds", "0"], 2, "above 0"),
        (["--enrolment", "none.json"], 1, "none.json"),
        (["--interface", "eth0"], 1, "--interface eth0: this host has no such address"),
        (["--interface", "2001:db8::1"], 1, "this host has no such address"),
        (["--interface", "192.0.2.1"], 1, "this host has no such address"),
    ],
)
def test_wrong_usage(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["find", *words]) == code
    assert says in capsys.readouterr().err


def test_without_the_extra_it_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["find"]) == 1
    assert "the extra mdns" in capsys.readouterr().err


def test_it_is_off_unless_the_site_says_so() -> None:
    assert loads(PLAIN).announce is False
    assert loads(PLAIN + "[mdns]\nannounce = true\n").announce is True
    for wrong in ("announce = 1", "announces = true"):
        with pytest.raises(ConfigError):
            loads(PLAIN + f"[mdns]\n{wrong}\n")


def test_what_is_handed_over_has_to_be_whole() -> None:
    with pytest.raises(BadHandOver):
        process.Told.of({"name": "shed"})


def test_its_user_is_in_no_group_that_reads_the_site() -> None:
    assert users.MDNS not in users.IN_GROUP


def test_on_a_full_disk_it_announces_and_says_so_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, seen = Layout.of(tmp_path), list[bool]()
    path = layout.ready("mdns")
    path.mkdir(parents=True)  # nothing can be put there

    def announce(told: process.Told, stop: threading.Event, each: Callable[[], object]) -> None:
        for _ in range(3):
            each()
            seen.append(path.is_file())
            if len(seen) == 2:
                path.rmdir()

    monkeypatch.setattr(process, "announce", announce)
    monkeypatch.setattr(process, "receive", lambda: GIVEN)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert process.main([str(tmp_path)]) == 0
    assert seen == [False, False, True]
    assert not path.exists()


def test_a_user_without_a_name_announces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, say."""

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    layout, said = Layout.of(tmp_path), list[str]()
    layout.run_of("mdns").mkdir(parents=True)

    def announce(told: process.Told, stop: threading.Event, each: Callable[[], object]) -> None:
        each()
        said.append(json.loads(layout.ready("mdns").read_text())["user"])

    monkeypatch.setattr(process, "announce", announce)
    monkeypatch.setattr(process, "receive", lambda: GIVEN)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert process.main([str(tmp_path)]) == 0
    assert said == [str(os.geteuid())]


@pytest.mark.parametrize(
    "trouble", [OSError(97, "Address family not supported by protocol"), RuntimeError("no adapter")]
)
@pytest.mark.parametrize("where", ["begin", "_addresses"])
def test_what_keeps_it_from_announcing_now_is_said_once_and_tried_again(
    trouble: Exception,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An address of IPv6 that is not there yet; a host that does not say which it has."""
    stop, tries = threading.Event(), list[int]()

    def fails(*_: object) -> None:
        tries.append(1)
        if len(tries) == 3:
            stop.set()
        raise trouble

    of = process.Told if where == "begin" else process
    monkeypatch.setattr(of, where, fails)
    monkeypatch.setattr(process, "_LOOK_S", 0.0)
    process.announce(told(), stop)
    assert len(tries) == 3
    assert caplog.text.count("cannot be announced now: ") == 1


def test_a_listener_that_has_a_name_is_announced_where_that_leads() -> None:
    one = told(listen="localhost")
    with contextlib.closing(one.begin()) as running:
        assert running.get_service_info(SERVICE, one.service().name, 0) is not None


def test_the_longest_name_that_a_site_can_have_is_announced() -> None:
    """Beside another one of the same name, which gives it a number: once that one has answered in
    time, half a second, which a busy machine may need for other things.
    """
    name = "n" * 64
    assert loads(PLAIN.replace("shed", name)).site.name == name
    names: list[str] = []
    with contextlib.closing(told(name=name).begin()) as first:
        [alone] = first.registry.async_get_infos_type(SERVICE)
        while len({*names, alone.name}) == 1 and len(names) < 20:
            with contextlib.closing(told(name=name).begin()) as second:
                [found] = second.registry.async_get_infos_type(SERVICE)
            names.append(found.name)
    assert names[-1] == f"{'n' * 58}-2.{SERVICE}"
