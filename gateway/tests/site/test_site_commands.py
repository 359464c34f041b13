"""`sealmq init`, `client add`, `client list`, without a running site."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import re
import resource
import shlex
import socket
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import png
import pyrage
import pytest
import zxingcpp

from kg.helpers import MadeSite, make_site
from sealmq.bridge import told
from sealmq.cli import enrolment as enrolment_file
from sealmq.cli.client import _shown as shown
from sealmq.cli.main import main
from sealmq.families.purposes.settings import read as settings_of
from sealmq.families.records import TopicLabel
from sealmq.kg.core import Kg
from sealmq.site import reach
from sealmq.site.config import Config, load
from sealmq.site.model import Mediator
from sealmq.store import Store
from sealmq_spec.identity import Identity

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens in these tests
FACTORY_LABELS = {
    "m1-temp": (), "m1-ctrl": ("m1-temp",), "m1-arm": ("m1-ctrl",),
    "m2-temp": (), "m2-ctrl": ("m2-temp",), "m2-arm": ("m2-ctrl",),
    "ctrl-room-temp": (), "monitor": ("m1-arm", "m2-arm", "ctrl-room-temp"),
}  # fmt: skip
FACTORY_CLIENTS = {
    "m1-temp-sensor": "m1-temp", "m1-control-panel": "m1-ctrl", "m1-arm-operator": "m1-arm",
    "m2-temp-sensor": "m2-temp", "m2-control-panel": "m2-ctrl", "m2-arm-operator": "m2-arm",
    "control-room-temp-sensor": "ctrl-room-temp", "monitor": "monitor",
}  # fmt: skip
FACTORY_TOPICS = {
    "machine/1/temperature": "m1-temp", "machine/1/arm/height": "m1-ctrl",
    "machine/1/arm/angle": "m1-ctrl", "machine/2/temperature": "m2-temp",
    "machine/2/arm/height": "m2-ctrl", "machine/2/arm/angle": "m2-ctrl",
    "control-room/temperature": "ctrl-room-temp",
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> MadeSite:
    return make_site(tmp_path)


def test_the_factory_is_the_papers(site: MadeSite) -> None:
    config = site.config
    assert {n: label.over for n, label in config.labels.items()} == FACTORY_LABELS
    assert {n: client.label for n, client in config.clients.items()} == FACTORY_CLIENTS
    assert dict(config.topics) == FACTORY_TOPICS
    for topic, label in config.topics.items():
        assert config.dominates("monitor", label), topic
    assert config.dominates("m1-arm", "m1-temp")
    assert not config.dominates("m1-arm", "m2-temp")
    assert not config.dominates("m1-arm", "ctrl-room-temp")


def test_what_init_makes(site: MadeSite, capsys: pytest.CaptureFixture[str]) -> None:
    layout = site.layout
    modes = {
        layout.config: 0o640, layout.state: 0o700, layout.salt: 0o600, layout.kg_db: 0o600,
        layout.kg_db.parent: 0o700, layout.state_of("mediator"): 0o700, layout.run: 0o755,
        site.key_file: 0o600,
    }  # fmt: skip
    for path, mode in modes.items():
        assert stat.S_IMODE(path.stat().st_mode) == mode, path
    assert site.config.site.key_file == site.key_file
    assert layout.config.read_text().count("\n#") > 10
    said = capsys.readouterr()
    assert site.key_file.read_text().strip() not in said.out + said.err
    assert sorted(p.name for p in layout.root.parent.iterdir()) == ["keys", "site"]


def fresh(tmp_path: Path, *words: str) -> Config:
    """What `sealmq init` makes by itself."""
    root = tmp_path / "fresh"
    assert main(["init", str(root), "--key-file", str(tmp_path / "fresh.key"), *words]) == 0
    return load(root / "sealmq.toml")


def test_a_new_site_is_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = fresh(tmp_path)
    assert config.policy.order == ("labels", "purposes")
    settings, purposes, _ = settings_of(config)
    assert (settings.strict, settings.mode, settings.stewards) == (True, "hybrid", frozenset())
    assert not settings.reserve
    assert not purposes
    assert "closed    what nobody has reserved is for nobody" in capsys.readouterr().out


def test_the_factory_has_purposes_that_let_it_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = fresh(tmp_path, "--example", "factory")
    assert {n: c.label for n, c in config.clients.items()} == FACTORY_CLIENTS | {
        "officer": "bottom"
    }
    assert dict(config.topics) == FACTORY_TOPICS
    site = str(tmp_path / "fresh")
    # Every topic is for something; its purposes are all known; each presubscription brings data.
    for topic in FACTORY_TOPICS:
        capsys.readouterr()
        assert main(["purposes", "explain", site, topic, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert {use["allowed"] for use in said["purposes"]} == {True, False}, topic
        assert said["pip"], topic
        assert all(reader["allowed"] for reader in said["readers"]), topic
        assert "monitor" in said["can_open"]


def test_a_site_without_purposes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = fresh(tmp_path, "--policy", "labels", "--json")
    assert config.policy.order == ("labels",)
    assert not config.families
    assert json.loads(capsys.readouterr().out)["policy"] == ["labels"]


def test_init_overwrites_nothing(site: MadeSite, tmp_path: Path) -> None:
    before = site.layout.config.read_text()
    assert main(["init", str(site.layout.root), "--key-file", str(tmp_path / "new.key")]) == 1
    assert site.layout.config.read_text() == before
    assert not (tmp_path / "new.key").exists()
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["init", str(file), "--key-file", str(tmp_path / "new.key")]) == 1
    assert file.read_text() == "mine"


def test_init_takes_an_empty_folder_and_a_key_that_is_there(tmp_path: Path) -> None:
    root, key = tmp_path / "my site #1", tmp_path / "my.key"
    root.mkdir()
    key.write_text("correct horse battery staple\n")
    key.chmod(0o600)
    assert main(["init", str(root), "--key-file", str(key)]) == 0
    assert key.read_text() == "correct horse battery staple\n"
    config = load(root / "sealmq.toml")
    assert config.site.name == "my-site--1"
    assert not config.labels
    assert main(["client", "list", str(root)]) == 0


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--listen", "here"], "--listen: 'here' is no address"),
        (["--key-file", "SITE/key"], "inside the site"),
        (["--key-file", "SITE/../SITE/state/key"], "inside the site"),
        (["--key-file", "weak"], "has 4 bytes"),
        (["--key-file", "open"], "can be read by others"),
    ],
)
def test_init_refuses(
    words: list[str],
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weak").write_text("weak")
    (tmp_path / "weak").chmod(0o600)
    (tmp_path / "open").write_text("long enough, but open to all")
    (tmp_path / "open").chmod(0o644)
    key = [] if "--key-file" in words else ["--key-file", "k"]
    words = [w.replace("SITE", "site") for w in words]
    assert main(["init", "site", *key, *words]) in (1, 2)
    assert what in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["open", "weak"]


@pytest.mark.parametrize(
    ("routed", "own", "told", "why"),
    [
        ("192.168.1.5", ["192.168.1.5"], "192.168.1.5", "(the default route's)"),
        ("10.0.0.7", ["172.17.0.1", "10.0.0.7"], "10.0.0.7", "route's, not 172.17.0.1)"),
        (None, ["192.168.4.1"], "192.168.4.1", "(this host's only one)"),
        (None, ["10.0.0.7", "10.9.0.1"], "10.0.0.7", "no default route, not 10.9.0.1)"),
        (None, [], "127.0.0.1", "nobody elsewhere has it"),
    ],
)
def test_init_for_all_addresses_tells_clients_this_hosts_address(
    routed: str | None,
    own: list[str],
    told: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sealmq.site.reach.by_route", lambda family: routed)
    monkeypatch.setattr("sealmq.site.reach.addresses", lambda family: own)
    words = ["--key-file", str(tmp_path / "k"), "--listen", EVERYWHERE + ":2883"]
    assert main(["init", str(tmp_path / "s"), *words]) == 0
    mediator = load(tmp_path / "s" / "sealmq.toml").mediator
    assert (mediator.host, mediator.port) == (EVERYWHERE, 2883)
    assert (mediator.advertise_host, mediator.advertise_port) == (told, 2883)
    said = capsys.readouterr()
    assert f"clients   connect to {told}:2883" in said.out
    assert f"warning: clients are told {told}:2883 (" in said.err
    assert why in said.err
    assert "set advertise in sealmq.toml" in said.err


def test_init_for_one_address_warns_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--key-file", str(tmp_path / "k"), "--listen", "127.0.0.1:2883", "--json"]
    assert main(["init", str(tmp_path / "s"), *words]) == 0
    said = capsys.readouterr()
    assert not said.err
    assert json.loads(said.out)["advertise"] == "127.0.0.1:2883"


def test_a_site_on_all_addresses_that_tells_clients_loopback_is_warned_of() -> None:
    """As `init` writes it on a host that has no network yet."""
    said = reach.warning(Mediator(host=EVERYWHERE))
    assert said is not None
    assert "127.0.0.1:1883, and only this host gets to 127.0.0.1" in said
    assert reach.warning(Mediator()) is None


def test_a_host_without_ipv6_has_no_such_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr("sealmq.site.reach.socket.socket", refuse)
    assert reach.stray("2001:db8::7", "::") == "this host does not have the address 2001:db8::7"
    assert reach.by_route(socket.AF_INET6) is None


def test_init_with_a_credential_makes_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cred").mkdir()
    (tmp_path / "cred" / "sealmq-key").write_bytes(os.urandom(32))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "cred"))
    assert main(["init", str(tmp_path / "s")]) == 0
    assert load(tmp_path / "s" / "sealmq.toml").site.key_file is None
    assert main(["client", "list", str(tmp_path / "s")]) == 0


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sealmq.cli.init.create", fail)
    assert main(["init", str(tmp_path / "s"), "--key-file", str(tmp_path / "k")]) == 1
    assert list(tmp_path.iterdir()) == []


def test_client_add(
    site: MadeSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    root = str(site.layout.root)
    assert main(["client", "add", root, "new", "--label", "m1-temp", "--json"]) == 0
    path = tmp_path / "new.sealmq.json"
    said = capsys.readouterr()
    told = json.loads(said.out.splitlines()[-1])
    assert told == {
        "name": "new", "number": 9, "label": "m1-temp", "added": True, "file": str(path)
    }  # fmt: skip
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    enrolment = json.loads(path.read_text())
    assert enrolment["ps"] not in said.out + said.err
    assert enrolment | {"ps": ""} == {
        "sealmq": 1, "site": site.config.site.id.hex(), "client": 9, "name": "new", "ps": "",
        "suite": 1, "mediator": {"number": 1, "host": "127.0.0.1", "port": 1883},
    }  # fmt: skip
    assert Identity.from_enrolment(enrolment).client == 9
    assert main(["client", "add", root, "new", "--label", "m1-temp"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["client", "add", root, "new", "--label", "m1-temp", "-o", "again.json"]) == 0
    assert json.loads((tmp_path / "again.json").read_text()) == enrolment


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["x/y", "--label", "m1-temp"], "'x/y' is no name"),
        (["../y", "--label", "m1-temp"], "is no name"),
        (["new", "--label", "m1-tmp"], "no label 'm1-tmp'"),
        (["monitor", "--label", "m1-temp"], "label 'monitor' and not 'm1-temp'"),
        (["new", "--label", "m1-temp", "-o", "SITE/new.json"], "inside the site"),
        (["new", "--label", "m1-temp", "-o", "no/folder/new.json"], "is no folder"),
        (["new", "--label", "m1-temp", "-o", "-"], "is not printed"),
        (["new", "--label", "m1-temp", "--key-file", "other.key"], "does not open"),
        (["new", "--label", "m1-temp", "--key-file", "no.key"], "cannot be read"),
    ],
)
def test_client_add_refuses(
    site: MadeSite,
    words: list[str],
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.key").write_text("another key of this length")
    (tmp_path / "other.key").chmod(0o600)
    before = site.layout.config.read_text()
    words = [word.replace("SITE", str(site.layout.root)) for word in words]
    assert main(["client", "add", str(site.layout.root), *words]) in (1, 2)
    assert what in capsys.readouterr().err
    assert site.layout.config.read_text() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["keys", "other.key", "site"]


@pytest.mark.parametrize("verb", ["add", "rotate"])
@pytest.mark.parametrize("why", ["full", "no such name"])
def test_what_cannot_take_the_file_is_told_before_anything_is_changed(
    verb: str,
    why: str,
    site: MadeSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "stick").mkdir()
    path = tmp_path / "stick" / ("f" if why == "full" else "f" * 254)
    command = ["client", verb, str(site.layout.root), "monitor", "-o", str(path)]
    if verb == "add":
        command[3:4] = ["new", "--label", "m1-temp"]
    before = (site.layout.config.read_bytes(), site.layout.kg_db.read_bytes())
    with monkeypatch.context() as patch:
        if why == "full":
            full_from(1, path.parent, patch)
        assert main(command) == 1
    told = capsys.readouterr().err
    assert f"{path} cannot be written: " in told
    assert "nothing was changed" in told
    assert (site.layout.config.read_bytes(), site.layout.kg_db.read_bytes()) == before
    assert list(path.parent.iterdir()) == []


def test_a_file_that_fails_after_a_rotation_can_be_had_again(
    site: MadeSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "stick").mkdir()
    path = tmp_path / "stick" / "f"
    with monkeypatch.context() as patch:
        full_from(2, path.parent, patch)
        assert main(["client", "rotate", str(site.layout.root), "monitor", "-o", str(path)]) == 1
    told = capsys.readouterr().err
    assert f"is made and counts, but {path} cannot be written: No space left" in told
    assert list(path.parent.iterdir()) == []
    assert site.config.clients["monitor"].rotation == 1
    hint = told.split("sealmq client", 1)[1].replace("FILE", str(path)).split()
    assert main(["client", *hint]) == 0
    assert json.loads(path.read_text())["name"] == "monitor"
    assert site.config.clients["monitor"].rotation == 1


def test_a_stick_without_second_names(
    site: MadeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "stick").mkdir()
    path = tmp_path / "stick" / "f"
    assert main(["client", "rotate", str(site.layout.root), "monitor", "-o", str(path)]) == 0
    assert json.loads(path.read_text())["name"] == "monitor"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def full_from(nth: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The disk of this folder is full from the nth time on that something is to be on it."""
    real, seen = os.fsync, 0

    def fsync(fd: int) -> None:
        nonlocal seen
        if folder in Path(os.readlink(f"/proc/self/fd/{fd}")).parents:
            seen += 1
            if seen >= nth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd)

    patch.setattr(os, "fsync", fsync)


def test_cut_off_anywhere_the_second_run_repairs(
    site: MadeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(site.layout.root)
    command = ["client", "add", root, "new", "--label", "m1-temp", "-o", str(tmp_path / "f")]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    target: Any
    for target, name in ((Kg, "apply"), (Kg, "enrolments"), (enrolment_file, "write_all")):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, die)
            assert main(command) == 130
        assert not (tmp_path / "f").exists()
    assert "new" in site.config.clients
    assert main(command) == 0
    assert json.loads((tmp_path / "f").read_text())["client"] == 9


def test_what_comes_next_is_said_and_can_be_done_as_it_stands(
    site: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a person; a script reads nothing of it (--json, elsewhere)."""
    root, out = str(site.layout.root), tmp_path / "its files"
    out.mkdir()
    rows = tmp_path / "rows.csv"
    rows.write_text("label,name\nm1-temp,hall-1\n")
    one, panel = out / "h.json", out / "p.json"
    code, theirs = out / "p.svg", out / "t.json"
    mark = "SHA256:" + "ab" * 32, "--address", "127.0.0.1:1", "--import", "heat"
    assert main(["peer", "add", root, "north", "--fingerprint", *mark]) == 0
    for words, says in (
        (["h", "--label", "m1-temp", "-o", str(one)],
         f"sealmq board build --enrolment '{one}' --wifi ask -o h.board"),
        (["p", "--label", "m1-temp", "--kind", "app", "-o", str(panel)],
         f"sealmq sub --enrolment '{panel}' -t '#' -v"),
        (["t", "--label", "heat@north", "--kind", "app", "-o", str(theirs)],
         f"sealmq sub --enrolment '{theirs}' -t '@north/#' -v"),
        (["--from", str(rows), "-o", str(out)],
         f"sealmq board flash --csv {rows} --enrolments '{out}' --firmware FILE --port PORT"),
        (["q", "--label", "m1-temp", "--qr", "-o", str(code)],
         f"show {code} to the app's camera, and delete it"),
    ):  # fmt: skip
        capsys.readouterr()
        assert main(["client", "add", root, *words]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"next: {says}"
    assert [json.loads(path.read_text())["suite"] for path in (one, panel)] == [1, 2]


def test_a_peer_that_cannot_be_is_refused_with_what_was_meant(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    root, name, mark = str(site.layout.root), site.config.site.name, "SHA256:" + "ab" * 32
    at = "--listen", "127.0.0.1:1"
    assert main(["peer", "add", root, "north", "--fingerprint", mark, *at]) == 0
    before = site.layout.config.read_bytes()
    for code, words, says, hint in (
        (1, (name, "--fingerprint", "cd" * 32, *at), "this site itself", "another site"),
        (1, ("nroth", "--import", "heat"), "there is no peer 'nroth'",
         "did you mean north? A new one needs --fingerprint, and --listen, --address or --far"),
        (1, ("x", "--fingerprint", "cd" * 32), "there is no peer 'x'", "A new one needs "),
        (2, ("south", "--fingerprint", "SHA256:abcd", *at),
         "--fingerprint: 'SHA256:abcd' is no fingerprint: it has 64 hex digits, not 4\n",
         "`sealmq peer fingerprint SITE` says it"),
        (2, ("south", "--fingerprint", "<abcd>", *at), "not 4 and 2 other characters\n", ""),
    ):  # fmt: skip
        capsys.readouterr()
        assert main(["peer", "add", root, *words]) == code
        err = capsys.readouterr().err
        assert says in err
        assert hint in err
    assert site.layout.config.read_bytes() == before


def test_a_peer_that_stays_as_it_is_and_one_that_comes_back(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    root, mark = str(site.layout.root), "SHA256:" + "ab" * 32
    words = ["peer", "add", root, "north", "--fingerprint", mark, "--address", "n.example:1",
             "--give", "a b/#", "--export", "m1-temp", "--import", "heat:chacha"]  # fmt: skip
    assert main(words) == 0
    before = site.layout.config.read_text()
    for more, says in ((words[4:], "nothing to change"), (["--export", "m2-temp"], "changed")):
        capsys.readouterr()
        assert main([*words[:4], *more]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == says
    assert main(words) == 0
    capsys.readouterr()
    assert main(["peer", "remove", root, "north"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"north is no peer any more; what brings it back: sealmq {shlex.join(words)}"
    assert not [line for line in rest if "{" in line]
    assert main(shlex.split(first.partition(": sealmq ")[2])) == 0
    assert site.layout.config.read_text().split("[peers")[1:] == before.split("[peers")[1:]


def test_what_a_peer_was_said_by_mistake_is_taken_back_by_a_command(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(site.layout.root)
    first = ["peer", "add", root, "north", "--fingerprint", "SHA256:" + "ab" * 32]
    at = ["--listen", "127.0.0.1:1"]
    assert main([*first, *at, "--import", "m1-temp"]) == 0
    capsys.readouterr()
    for more, says in (
        (["--no-import", "--export", "m1-temp"], "changed"),
        (["--no-import"], "nothing to change"),
        (["--no-give"], "changed"),
        (["--no-give"], "nothing to change"),
    ):
        assert main([*first[:4], *more]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == says
    config = load(site.layout.config)
    assert config.peers["north"].imports == ()
    assert config.peers["north"].exports == ("m1-temp",)
    assert config.peers["north"].give == ()
    assert "import" not in site.layout.config.read_text()
    assert main([*first[:4], "--no-import", "--import", "heat"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["peer", "remove", root, "north"]) == 0
    again = capsys.readouterr().out.splitlines()[0].partition(": sealmq ")[2]
    assert shlex.split(again) == [*first, *at, "--export", "m1-temp", "--no-give"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("up", "  up  "),
        ("up; heat does not go there", "  up; heat does not go there  "),
        ("not running", "  not running  "),
        ("Connection refused", "  calling n.example:1: Connection refused  "),
        ("ConnectionResetError", "  n.example:1 answers, but not as a SealMQ line ("),
        ("TLS: WRONG_VERSION_NUMBER", "  n.example:1 answers, but not as a SealMQ line ("),
        ("Connection reset by peer: does it have this site's fingerprint?",
         "  calling n.example:1: Connection reset by peer: does it have "),
    ],
)  # fmt: skip
def test_peer_list_says_where_a_caller_s_trouble_is(
    site: MadeSite,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    shown: str,
) -> None:
    root, mark = str(site.layout.root), "SHA256:" + "ab" * 32
    words = ["--fingerprint", mark, "--address", "n.example:1", "--import", "heat"]
    assert main(["peer", "add", root, "north", *words]) == 0
    said = {"line": line, "since": 1_800_000_000, "waiting": 0, "dropped": {}}
    monkeypatch.setattr(told, "line", lambda *_: said)
    capsys.readouterr()
    assert main(["peer", "list", root]) == 0
    said_ = capsys.readouterr().out
    assert shown in said_
    assert "  2027-01-15 08:00:00Z  " in said_
    assert main(["peer", "list", root, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["peers"]
    assert (row["line"], row["since"]) == (line, 1_800_000_000)


def test_several_clients_are_added_in_one_change(
    site: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = str(site.layout.root), tmp_path / "files"
    out.mkdir()
    rows = tmp_path / "rows.csv"
    rows.write_text("label,name,suite\nm1-temp,hall-1,\nm1-ctrl,hall-2,chacha\n")
    capsys.readouterr()
    words = ["client", "add", root, "--from", str(rows), "-o", str(out), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)["clients"]
    assert [(r["name"], r["number"], r["label"], r["added"]) for r in told] == [
        ("hall-1", 9, "m1-temp", True),
        ("hall-2", 10, "m1-ctrl", True),
    ]
    for row in told:
        file = Path(row["file"])
        assert file == out / f"{row['name']}.sealmq.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert json.loads(file.read_text())["client"] == row["number"]
        file.unlink()
    assert main(words) == 0, "again: their files once more"
    assert [r["added"] for r in json.loads(capsys.readouterr().out)["clients"]] == [False, False]
    # Options may stand anywhere.
    words = ["client", "add", root, "--label", "m1-temp", "hall-3", "-o", str(out), "hall-4"]
    assert main(words) == 0
    assert {file.name for file in out.iterdir()} == {f"hall-{n}.sealmq.json" for n in range(1, 5)}
    assert list(site.config.clients)[-4:] == ["hall-1", "hall-2", "hall-3", "hall-4"]


def test_rows_into_one_archive_that_the_factory_opens(
    site: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """age's own format: `age -d | tar -x` opens it. No secret is on the disk in the clear."""
    rows, out, root = tmp_path / "rows.csv", tmp_path / "rows.tar.age", str(site.layout.root)
    rows.write_text("name,label\n" + "".join(f"hall-{n},m1-temp\n" for n in range(40)))
    factory, other = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
    keys = tmp_path / "factory.txt"
    keys.write_text(f"# the factory's\n\n{factory.to_public()}\n")
    words = ["client", "add", root, "--from", str(rows), "--seal-to", str(keys), "-o", str(out)]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["clients"]
    assert {row["file"] for row in told} == {str(out)}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    with pytest.raises(pyrage.DecryptError):
        pyrage.decrypt(out.read_bytes(), [other])
    opened = io.BytesIO(pyrage.decrypt(out.read_bytes(), [factory]))
    with tarfile.open(fileobj=opened) as tar:
        members = {m.name: (m.mode, json.load(tar.extractfile(m) or opened)) for m in tar}
    assert sorted(members) == sorted(f"hall-{n}.sealmq.json" for n in range(40))
    for row in told:
        mode, enrolment = members[f"{row['name']}.sealmq.json"]
        assert (mode, enrolment["client"]) == (0o600, row["number"])
    secrets = {enrolment["ps"].encode() for _, enrolment in members.values()}
    assert len(secrets) == 40
    on_disk = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not [secret for secret in secrets if secret in on_disk]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (["--seal-to", "age1nothing"], "'age1nothing' is no key of a recipient"),
        (["--seal-to", "ssh-rsa AAAA"], "is no key of a recipient"),
        (["--seal-to", "KEYS"], "--seal-to: a secret key"),
        (["--seal-to", "/nowhere"], "No such file or directory"),
        (["--seal-to", "/dev/null"], "no key stands in it"),
        (["--seal-to", "age1nothing", "--qr"], "--seal-to beside --qr"),
    ],
)
def test_a_recipient_that_is_none_changes_nothing(
    given: list[str], what: str, site: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, before = str(pyrage.x25519.Identity.generate()), site.layout.config.read_text()
    (tmp_path / "keys.txt").write_text(secret)
    words = [word.replace("KEYS", str(tmp_path / "keys.txt")) for word in given]
    words = ["client", "add", str(site.layout.root), "new", "--label", "m1-temp", *words]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert what in error
    assert secret[-20:] not in error
    assert site.layout.config.read_text() == before


def test_an_enrolment_as_a_qr_code(site: MadeSite, tmp_path: Path) -> None:
    """Read by a library that others use in their apps."""
    words = ["client", "add", str(site.layout.root), "panel", "--label", "m1-temp"]
    assert main([*words, "-o", str(tmp_path / "panel.json")]) == 0
    drawn = tmp_path / "panel.png"
    assert main([*words, "--qr", "-o", str(drawn)]) == 0
    assert stat.S_IMODE(drawn.stat().st_mode) == 0o600
    width, height, lines, _ = png.Reader(filename=str(drawn)).read()
    pixels = bytearray(255 * level for line in lines for level in line)
    [code] = zxingcpp.read_barcodes(memoryview(pixels).cast("B", (height, width)))
    assert json.loads(code.text) == json.loads((tmp_path / "panel.json").read_text())
    assert main([*words, "--qr", "-o", str(tmp_path / "panel.svg")]) == 0
    assert (tmp_path / "panel.svg").read_text().lstrip().startswith("<?xml")


def test_more_clients_than_a_process_may_have_files_open(site: MadeSite, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "files"
    out.mkdir()
    rows.write_text("name,label\n" + "".join(f"hall-{n},m1-temp\n" for n in range(300)))
    words = ["client", "add", str(site.layout.root), "--from", str(rows), "-o", str(out)]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # A process of its own: this one has what earlier tests and the fixtures have open, too.
    done = subprocess.run(
        [sys.executable, "-m", "sealmq.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)),
    )
    assert done.returncode == 0, done.stderr
    assert len({json.loads(file.read_text())["ps"] for file in out.iterdir()}) == 300
    text = site.layout.config.read_text()
    assert text.index("hall-299 = ") < text.index("[topics]"), "where clients stand"


def test_a_draft_that_somebody_swaps_gets_no_secret(
    site: MadeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a folder that others may write, too: theirs would be a file that they have open."""
    real, path = Kg.enrolments, tmp_path / "f"
    theirs: list[Path] = []

    def swapped(self: Kg, names: list[str]) -> Any:
        [draft] = tmp_path.glob(".f.*")
        draft.unlink()
        draft.write_text("")
        theirs.append(draft.rename(tmp_path / "theirs"))
        os.link(theirs[0], draft)
        return real(self, names)

    monkeypatch.setattr(Kg, "enrolments", swapped)
    words = ["client", "add", str(site.layout.root), "new", "--label", "m1-temp", "-o", str(path)]
    assert main(words) == 0
    assert json.loads(path.read_text())["name"] == "new"
    assert path.stat().st_nlink == 1
    assert theirs[0].read_bytes() == b""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("name,label\nnew,m1-temp\nother,m1-tmp\n", "no label 'm1-tmp'"),
        ("name,label\nnew,m1-temp\nnew,m1-temp\n", "new is there twice"),
        ("name,label\nnew,m1-temp\n-x,m1-temp\n", "is no name"),
        ("name,label\nnew,m1-temp,x\n", "line 2: not as many fields as columns"),
        ("name,label\nnew\n", "line 2: not as many fields as columns"),
        ("name,label\nnew,\n", "line 2: no name or no label"),
        ("name,lable\nnew,m1-temp\n", "line 1: the columns are name, lable"),
        ("name,label\n", "has no rows"),
        ("", "the columns are none"),
        ("name,label\nmonitor,m1-temp\n", "there already, with label 'monitor'"),
    ],
)
def test_of_rows_with_one_fault_none_is_added(
    text: str, what: str, site: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, before = tmp_path / "rows.csv", site.layout.config.read_text()
    rows.write_text(text)
    root = str(site.layout.root)
    assert main(["client", "add", root, "--from", str(rows), "-o", str(tmp_path)]) in (1, 2)
    error = capsys.readouterr().err
    assert what in error
    assert "Traceback" not in error
    assert site.layout.config.read_text() == before
    assert [path.name for path in tmp_path.glob("*.sealmq.json")] == []


def test_rows_of_a_spreadsheet_are_rows(site: MadeSite, tmp_path: Path) -> None:
    """Which puts a byte order mark in front."""
    rows = tmp_path / "rows.csv"
    rows.write_text("name,label\nnew,m1-temp\n", encoding="utf-8-sig")
    root = str(site.layout.root)
    assert main(["client", "add", root, "--from", str(rows), "-o", str(tmp_path)]) == 0
    assert site.config.clients["new"].label == "m1-temp"


def test_a_steward_is_added_who_is_named_already(site: MadeSite, tmp_path: Path) -> None:
    """What counts is the file as it stands after the edit."""
    text = site.layout.config.read_text()
    text = text.replace('order = ["labels"]', 'order = ["labels", "purposes"]')
    site.layout.config.write_text(text + '\n[families.purposes]\nstewards = ["dpo"]\n')
    words = ["client", "add", str(site.layout.root), "dpo", "--label", "monitor"]
    assert main([*words, "-o", str(tmp_path / "dpo.json")]) == 0
    assert site.config.clients["dpo"].label == "monitor"


def test_a_client_that_is_named_elsewhere_is_not_removed(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = '[[creation]]\nfilter = "a/#"\nclients = ["monitor"]\n'
    site.layout.config.write_text(site.layout.config.read_text() + rule)
    before = site.layout.config.read_text()
    assert main(["client", "remove", str(site.layout.root), "monitor"]) == 1
    error = capsys.readouterr().err
    assert "monitor is named elsewhere in sealmq.toml: creation.0.clients" in error
    assert "sealmq client disable" in error
    assert site.layout.config.read_text() == before


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ('stewards = ["monitor"]', "families.purposes.stewards"),
        (
            '[[families.allowlist.rule]]\nread = ["a"]\nfrom = ["monitor"]',
            "families.allowlist.rule.0.from",
        ),
        ('presubscribe = { monitor = { "#" = "x" } }', "families.purposes.presubscribe.monitor"),
        ('[[families.purposes.grant]]\nfilter = "#"\nclients = ["monitor"]',
         "families.purposes.grant.0.clients"),
    ],
)  # fmt: skip
def test_a_client_that_a_family_s_settings_name_is_not_removed(
    site: MadeSite, capsys: pytest.CaptureFixture[str], more: str, key: str
) -> None:
    text = site.layout.config.read_text()
    text = text.replace('order = ["labels"]', 'order = ["labels", "purposes", "allowlist"]')
    site.layout.config.write_text(f"{text}\n[families.purposes]\n{more}\n")
    assert main(["client", "remove", str(site.layout.root), "monitor"]) == 1
    assert f"monitor is named elsewhere in sealmq.toml: {key}\n" in (
        capsys.readouterr().err.replace(";", "\n")
    )


def test_a_client_that_is_removed_is_gone_and_comes_back_as_another(
    site: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(site.layout.root)
    add = ["client", "add", root, "monitor", "--label", "monitor", "-o"]
    assert main([*add, str(tmp_path / "a")]) == 0
    capsys.readouterr()
    assert main(["client", "remove", root, "monitor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["removed"], told["known"]) == (True, True)
    assert [row["client"] for row in told["left"]] == ["monitor"]
    assert "monitor" not in site.config.clients
    assert main(["client", "remove", root, "monitor"]) == 1
    assert "there is no client 'monitor'" in capsys.readouterr().err
    assert main([*add, str(tmp_path / "b")]) == 0
    old, new = (json.loads((tmp_path / name).read_text())["ps"] for name in "ab")
    assert old != new


def test_a_label_in_use_is_not_removed_without_a_word(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(site.layout.root)
    assert main(["policy", "check", root]) == 0
    assert "nothing in it has changed" in capsys.readouterr().out
    text = site.layout.config.read_text()
    site.layout.config.write_text(re.sub(r"(?m)^m1-temp = .*\n", "", text))
    assert main(["policy", "check", root]) == 1
    error = capsys.readouterr().err
    assert "there is no label 'm1-temp'" in error
    assert "places name it: labels." in error
    # one that only topics have learned
    site.layout.config.write_text(text.replace("[labels]\n", "[labels]\nold = []\n"))
    assert main(["rekey", root, "--label", "old"]) == 0
    site.layout.config.write_text(text)

    async def learned() -> None:
        store = Store.open(site.layout.mediator_db)
        await store.commit([TopicLabel("a/b", "old", "monitor", 1), TopicLabel("c", "x", "y", 1)])
        store.close()

    asyncio.run(learned())
    capsys.readouterr()
    assert main(["policy", "check", root]) == 0
    out = capsys.readouterr().out
    assert "label old is gone, with it labelled topics (1): a/b" in out
    assert main(["policy", "check", root, "--json"]) == 0
    gone = json.loads(capsys.readouterr().out)["labels_gone"]
    assert gone == {"old": {"topics": ["a/b"], "reservations": [], "assertions": []}}
    assert main(["topic", "list", root, "--label", "old", "--json"]) == 0
    assert [t["topic"] for t in json.loads(capsys.readouterr().out)["topics"]] == ["a/b"]
    # whatever command takes it over says so too
    assert main(["rekey", root, "--label", "m1-temp"]) == 0
    assert "label old is gone" in capsys.readouterr().out


def test_a_topic_is_relabelled_while_the_site_is_down(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(site.layout.root)
    assert main(["topic", "relabel", root, "x/y", "m1-temp"]) == 0
    assert site.config.topics["x/y"] == "m1-temp"
    capsys.readouterr()
    assert main(["topic", "relabel", root, "x/y", "m1-ctrl", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["was"], told["label"], told["known"]) == ("m1-temp", "m1-ctrl", True)
    before = site.layout.config.read_text()
    for words, code, what in (
        (["relabel", root, "x/y", "m1-tmp"], 1, "there is no label 'm1-tmp'"),
        (["relabel", root, "x/#", "m1-temp"], 1, "x/#"),
        (["relabel", root, "$SYS/x", "m1-temp"], 1, "the protocol's own"),
        (["relabel", root, "x/y", "none"], 2, "sealmq topic forget"),
        (["forget", root, "x/y"], 1, "the site is not up"),
        (["forget", root, "x/z"], 1, "x/z has no label"),
    ):
        assert main(["topic", *words]) == code, words
        assert what in capsys.readouterr().err
    assert site.layout.config.read_text() == before


def test_a_word_that_is_no_text_is_no_topic(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    before = site.layout.config.read_bytes()
    assert main(["topic", "relabel", str(site.layout.root), "a/\udcff", "m1-temp"]) == 1
    assert "is not UTF-8" in capsys.readouterr().err
    assert site.layout.config.read_bytes() == before


def test_client_list(site: MadeSite, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    site.edit('m2-arm-operator = { label = "m2-arm"', 'late-one = { label = "none"')
    assert main(["client", "list", str(site.layout.root), "--json"]) == 0
    clients = json.loads(capsys.readouterr().out)["clients"]
    assert {c["name"]: c["number"] for c in clients} == {
        name: number for number, name in enumerate(FACTORY_CLIENTS, 1)
    } | {"late-one": None}
    assert clients[0] == {
        "number": 1, "name": "m1-temp-sensor", "label": "m1-temp", "kind": "device",
        "suite": "ccm", "disabled": False, "removed": False, "rotation": 0, "gen": 0, "pending": 0,
        "state": "new", "last_seen_ms": None,
    }  # fmt: skip
    assert main(["client", "list", str(site.layout.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NUMBER", "NAME", "LABEL", "KIND", "STATE"]
    assert lines[-1].split() == ["-", "late-one", "none", "device", "not", "yet", "known"]


@pytest.mark.parametrize(
    ("gen", "pending", "state"),
    # After a change of epochs each that is connected has a generation that it has not proved yet.
    [(0, 0, "new"), (3, 0, "provisioned"), (0, 4, "provisioned")],
)
def test_a_client_is_new_until_it_was_given_keys(gen: int, pending: int, state: str) -> None:
    row = {"suite": 1, "removed": False, "disabled": False, "gen": gen, "pending": pending}
    assert shown(row)["state"] == state


def test_commands_name_what_is_no_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["client", "list"], ["client", "add"]):
        extra = ["x", "--label", "top"] if words[1] == "add" else []
        assert main([*words, str(tmp_path), *extra]) == 1
        said = capsys.readouterr().err
        assert "is no site" in said
        assert "a site is a folder that `sealmq init` has made" in said
