"""`sealmq client disable|enable|rotate` and `sealmq rekey`, with the key generator's process and
without it.
"""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kg.helpers import WAIT_S, Device, MadeSite, copy_of, running
from sealmq.cli.main import main
from sealmq.kg.core import Kg
from sealmq.kg.store import KgStore
from sealmq.kglink import Change, KgClient
from sealmq.site import edit

M1 = ["bottom", "m1-ctrl", "m1-temp"]


@pytest.fixture(params=["up", "down"])
def there(request: pytest.FixtureRequest, factory: MadeSite, tmp_path: Path) -> Iterator[MadeSite]:
    """A site whose key generator runs, and one whose does not."""
    site = copy_of(factory, tmp_path)
    if request.param == "down":
        yield site
        return
    with running(site):
        yield site


def sealmq(site: MadeSite, *words: str) -> int:
    at = 1 if words[0] == "rekey" else 2
    return main([*words[:at], str(site.layout.root), *words[at:]])


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return told


def look(site: MadeSite) -> tuple[dict[str, Any], dict[str, int]]:
    """clients by name, and epochs by label, as they are on disk."""
    store = KgStore.open_readonly(site.layout.kg_db)
    try:
        kg = object.__new__(Kg)
        kg._store = store
        clients = {row["name"]: row for row in kg.clients()}
        return clients, {row["name"]: row["epoch"] for row in kg.labels()}
    finally:
        store.close()


def test_disable_and_enable(there: MadeSite, capsys: pytest.CaptureFixture[str]) -> None:
    text = there.layout.config.read_text()
    assert sealmq(there, "client", "disable", "m1-control-panel") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-5] == "m1-control-panel is disabled"
    assert lines[-4] == "new epochs (3); the old ones have ended:"
    assert sorted(line.split() for line in lines[-3:]) == [[name, "2"] for name in M1]
    clients, epochs = look(there)
    assert clients["m1-control-panel"]["disabled"]
    assert {name for name, epoch in epochs.items() if epoch == 2} == set(M1)
    assert there.config.clients["m1-control-panel"].disabled
    # nothing but that line is another one
    now = there.layout.config.read_text().splitlines()
    assert sum(a != b for a, b in zip(text.splitlines(), now, strict=True)) == 1
    # again: nothing more happens
    assert sealmq(there, "client", "disable", "m1-control-panel") == 0
    assert capsys.readouterr().out == "m1-control-panel is disabled already\n"
    assert look(there) == (clients, epochs)
    assert sealmq(there, "client", "enable", "m1-control-panel", "--json") == 0
    assert said(capsys) | {"kseq": 0} == {
        "name": "m1-control-panel", "disabled": False, "kseq": 0, "epochs": [], "left": [],
        "notes": [], "known": True, "confirmed": [], "unconfirmed": [],
    }  # fmt: skip
    assert not look(there)[0]["m1-control-panel"]["disabled"]
    assert sealmq(there, "client", "enable", "m1-control-panel") == 0
    assert "is enabled already" in capsys.readouterr().out


def test_rotate(
    there: MadeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    first = tmp_path / "first.json"
    add = ["client", "add", str(there.layout.root), "m1-control-panel", "--label", "m1-ctrl"]
    assert main([*add, "-o", str(first)]) == 0
    capsys.readouterr()
    assert sealmq(there, "client", "rotate", "m1-control-panel") == 0
    shown = capsys.readouterr()
    path = tmp_path / "m1-control-panel.sealmq.json"
    old, new = json.loads(first.read_text()), json.loads(path.read_text())
    assert old | {"ps": ""} == new | {"ps": ""}
    assert old["ps"] != new["ps"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for secret in (old["ps"], new["ps"]):
        assert secret not in shown.out + shown.err + there.layout.config.read_text()
    assert "new epochs (3)" in shown.out
    assert there.config.clients["m1-control-panel"].rotation == 1
    # a file that is there is found before anything is changed
    before = look(there), there.layout.config.read_text()
    assert sealmq(there, "client", "rotate", "m1-control-panel") == 1
    assert "is there already" in capsys.readouterr().err
    assert sealmq(there, "client", "rotate", "m1-control-panel", "-o", "-") == 2
    assert "is not printed" in capsys.readouterr().err
    assert (look(there), there.layout.config.read_text()) == before
    # with a sealmq.toml that has forgotten the first rotation
    there.edit(", rotation = 1", "")
    words = ("client", "rotate", "m1-control-panel", "-o", "again.json", "--json")
    assert sealmq(there, *words) == 0
    assert sorted(row["label"] for row in said(capsys)["epochs"]) == M1
    assert there.config.clients["m1-control-panel"].rotation == 2
    assert json.loads((tmp_path / "again.json").read_text())["ps"] not in (old["ps"], new["ps"])


def test_rotating_who_is_out_says_so(
    there: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("client", "rotate", "monitor", "-o")
    assert sealmq(there, *words, str(tmp_path / "in.json")) == 0
    assert "disabled" not in capsys.readouterr().out
    assert sealmq(there, "client", "disable", "monitor") == 0
    capsys.readouterr()
    assert sealmq(there, *words, str(tmp_path / "out.json")) == 0
    assert f"sealmq client enable {there.layout.root} monitor" in capsys.readouterr().out


def test_who_was_removed_comes_back_as_another(there: MadeSite, tmp_path: Path) -> None:
    def added(file: str) -> str:
        words = ("client", "add", "monitor", "--label", "monitor", "-o", str(tmp_path / file))
        assert sealmq(there, *words) == 0
        ps: str = json.loads((tmp_path / file).read_text())["ps"]
        return ps

    first = added("first.json")
    text = there.layout.config.read_text()
    there.edit('monitor = { label = "monitor", kind = "app" }\n', "")
    assert sealmq(there, "rekey", "--label", "m1-temp") == 0
    if there.layout.kg_socket.exists():  # rekey alone does not make it read sealmq.toml
        asyncio.run(_reload(there))
    second = added("second.json")
    assert second != first
    assert text.count("rotation") == 0
    assert there.config.clients["monitor"].rotation == 1
    assert added("third.json") == second


async def _reload(site: MadeSite) -> None:
    async with await KgClient.connect(site.layout.kg_socket) as kg:
        await kg.reload()


def test_rekey(there: MadeSite, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("rekey", "--label", "m1-ctrl", "--label", "m2-temp")
    before = look(there)
    assert sealmq(there, *words, "--below", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-5] == "would get new epochs (4); nothing was changed:"
    assert [line.split() for line in lines[-4:]] == [[name, "2"] for name in [*M1, "m2-temp"]]
    assert sealmq(there, *words, "--dry-run", "--json") == 0
    assert [row["label"] for row in said(capsys)["epochs"]] == ["m1-ctrl", "m2-temp"]
    assert look(there) == before
    began = int(time.time())
    assert sealmq(there, *words, "--json") == 0
    rows = said(capsys)["epochs"]
    assert sorted((row["label"], row["epoch"]) for row in rows) == [("m1-ctrl", 2), ("m2-temp", 2)]
    assert all(row["until"] >= began + 60 for row in rows)
    assert sealmq(there, *words, "--below", "--handover", "3600") == 0
    out = capsys.readouterr().out
    assert "new epochs (4); the old ones run until " in out
    assert look(there)[1] == before[1] | {"m1-ctrl": 3, "m1-temp": 2, "m2-temp": 3, "bottom": 2}
    assert sealmq(there, *words, "--handover", "0") == 0
    assert "the old ones have ended" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "what", "hint"),
    [
        (["client", "disable", "monitr"], 1, "no client 'monitr'", "did you mean monitor?"),
        (["client", "enable", "monitr"], 1, "no client 'monitr'", "did you mean monitor?"),
        (["client", "rotate", "monitr"], 1, "no client 'monitr'", "did you mean monitor?"),
        (["client", "disable", "nobody"], 1, "nobody has label none: it is out already", "line"),
        (["client", "enable", "nobody"], 1, "nobody has label none", "another label"),
        (["rekey", "--label", "m1-tmp"], 1, "no label m1-tmp", "did you mean m1-temp?"),
        (["rekey", "--label", "none"], 1, "label none has no keys", "out already"),
        (["rekey", "--label", "top", "--handover", "-1"], 2, "--handover -1", ""),
        (["rekey", "--label", "top", "--handover", "1e3"], 2, "0 to 31622400 seconds", ""),
        (["rekey"], 2, "--label", "sealmq rekey --help"),
        (["client", "rotate", "monitor", "-o", "SITE/x.json"], 1, "inside the site", "-o FILE"),
    ],
)
def test_refused(
    words: list[str], code: int, what: str, hint: str, site: MadeSite,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    site.edit("[topics]", 'nobody = { label = "none" }\n\n[topics]')
    before = look(site), site.layout.config.read_text()
    words = [word.replace("SITE", str(site.layout.root)) for word in words]
    assert sealmq(site, *words) == code
    error = capsys.readouterr().err
    assert what in error
    assert hint in error
    assert "Traceback" not in error
    assert (look(site), site.layout.config.read_text()) == before


def test_the_limit_of_a_day_is_told(
    site: MadeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sealmq.kg.limits.ASKED_A_DAY", 1)
    words = ("rekey", "--label", "m1-temp")
    assert [sealmq(site, *words), sealmq(site, *words)] == [0, 1]
    error = capsys.readouterr().err
    assert "label m1-temp has had 1 new epochs today (UTC), at most 1 are given" in error
    assert "hint: go on tomorrow" in error


def test_what_was_disabled_by_hand_while_it_was_down(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """sealmq.toml was edited while the site was down: the command makes it so, and says so."""
    site.edit('monitor = { label = "monitor"', 'monitor = { disabled = true, label = "monitor"')
    assert sealmq(site, "client", "disable", "monitor") == 0
    assert "new epochs (9)" in capsys.readouterr().out
    assert sealmq(site, "client", "disable", "monitor") == 0
    assert capsys.readouterr().out == "monitor is disabled already\n"


# --- sealmq.toml is wrong -----------------------------------------------------------------------


SYNTAX = ("[labels]", "[labels")
UNKNOWN = ("[labels]", "[lables]")


@pytest.fixture(params=[SYNTAX, UNKNOWN], ids=["syntax", "table"])
def wrong(request: pytest.FixtureRequest, there: MadeSite) -> MadeSite:
    """A site whose policy was taken over, and whose sealmq.toml has a typo since."""
    assert sealmq(there, "rekey", "--label", "m2-temp") == 0
    there.edit(*request.param)
    return there


def put_right(text: str) -> str:
    """Without the typo."""
    return text.replace("[labels\n", "[labels]\n").replace("[lables]", "[labels]")


def says_disabled(site: MadeSite) -> bool:
    """Whether sealmq.toml says it of the monitor."""
    return site.config.clients["monitor"].disabled


def warned(capsys: pytest.CaptureFixture[str]) -> str:
    """What it said, with the warning that names the fault."""
    shown = capsys.readouterr()
    lines = [line for line in shown.err.splitlines() if "warning" in line]
    assert len(lines) == 1, shown.err
    assert "sealmq.toml" in lines[0]
    assert "this goes by the policy in force" in lines[0]
    assert "hint: " in shown.err
    return shown.out


@pytest.mark.parametrize("what", ["peer", "border"])
def test_a_typo_in_the_policy_hides_no_line(
    wrong: MadeSite, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    capsys.readouterr()
    assert sealmq(wrong, what, "list") == 0
    assert warned(capsys).startswith(f"no {what}s; ")


def test_a_typo_in_the_policy_keeps_no_client_in(
    wrong: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And who was put out then stays out when the file is put right."""
    text = wrong.layout.config.read_text()
    capsys.readouterr()
    assert sealmq(wrong, "client", "disable", "monitor") == 0
    assert "monitor is disabled" in warned(capsys)
    assert look(wrong)[0]["monitor"]["disabled"]
    assert wrong.layout.config.read_text() == text
    # put right, without a word of the client
    wrong.layout.config.write_text(put_right(text))
    assert not says_disabled(wrong)
    assert sealmq(wrong, "client", "rotate", "m2-temp-sensor", "-o", str(tmp_path / "x.json")) == 0
    assert "monitor stays disabled" in capsys.readouterr().out
    assert look(wrong)[0]["monitor"]["disabled"]
    # the command writes it down, and only `enable` lets it in
    assert sealmq(wrong, "client", "disable", "monitor") == 0
    assert says_disabled(wrong)
    assert sealmq(wrong, "client", "enable", "monitor") == 0
    assert not look(wrong)[0]["monitor"]["disabled"]


def test_a_client_that_was_put_out_without_the_file_is_let_in_by_enable(
    wrong: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    text = wrong.layout.config.read_text()
    assert sealmq(wrong, "client", "disable", "monitor") == 0
    assert sealmq(wrong, "client", "enable", "monitor") == 1, "that needs the file"
    wrong.layout.config.write_text(put_right(text))
    assert sealmq(wrong, "client", "enable", "monitor") == 0
    capsys.readouterr()
    assert not look(wrong)[0]["monitor"]["disabled"]
    assert sealmq(wrong, "rekey", "--label", "m2-temp", "--json") == 0
    assert said(capsys)["notes"] == []


def test_what_the_key_generator_refuses_keeps_no_client_in_either(
    there: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is right in itself, and asks for what cannot be: another suite for old keys."""
    assert sealmq(there, "rekey", "--label", "m2-temp") == 0
    there.edit("m2-temp-sensor = { label", 'm2-temp-sensor = { suite = "chacha", label')
    capsys.readouterr()
    assert sealmq(there, "client", "disable", "monitor") == 0
    assert "its keys were made for suite ccm" in capsys.readouterr().err
    assert look(there)[0]["monitor"]["disabled"]
    assert there.config.clients["monitor"].disabled


LABEL = ("ctrl-room-temp = []", 'ctrl-room-temp = { over = [], suite = "chacha" }')
"""Right in itself, and refused by the key generator, which has keys of that label."""


@pytest.fixture
def refused(there: MadeSite) -> MadeSite:
    """A site whose sealmq.toml was changed by hand, to what the key generator refuses."""
    assert sealmq(there, "rekey", "--label", "m2-temp") == 0
    there.edit(*LABEL)
    return there


def test_whom_the_key_generator_cannot_remove_yet_is_out_and_the_same_command_removes_it(
    refused: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        capsys.readouterr()
        assert sealmq(refused, "client", "remove", "monitor") == 1
        told = capsys.readouterr().err
        assert "the line of monitor in sealmq.toml is gone" in told
        assert "holds monitor out, and its keys wait" in told
        assert "its keys were made for suite ccm" in told
        assert f"then again: sealmq client remove {refused.layout.root} monitor" in told
        assert "monitor" not in refused.config.clients
        row = look(refused)[0]["monitor"]
        assert (row["disabled"], row["removed"]) == (True, False)
    refused.edit(*reversed(LABEL))
    assert sealmq(refused, "client", "remove", "monitor") == 0
    assert "monitor is removed" in capsys.readouterr().out
    assert look(refused)[0]["monitor"]["removed"]
    assert sealmq(refused, "client", "remove", "monitor") == 1
    assert "there is no client 'monitor'" in capsys.readouterr().err


def test_a_line_that_the_key_generator_has_never_seen_is_taken_out_and_no_more(
    refused: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    refused.edit("[topics]", "late = { label = 'm1-temp' }\n\n[topics]")
    capsys.readouterr()
    assert sealmq(refused, "client", "remove", "late") == 1
    told = capsys.readouterr().err
    assert "the line of late in sealmq.toml is gone" in told
    assert "keys wait" not in told
    assert "late" not in refused.config.clients
    assert "late" not in look(refused)[0]


def test_what_rotate_and_add_have_changed_in_a_file_that_is_refused_is_told(
    refused: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    file = str(tmp_path / "x.json")
    assert sealmq(refused, "client", "rotate", "monitor", "-o", file) == 1
    told = capsys.readouterr().err
    assert "sealmq.toml is changed, but the key generator refuses it" in told
    assert "the old one is good" in told
    assert f"sealmq client disable {refused.layout.root} monitor" in told
    add = ("client", "add", "late", "--label", "m1-temp", "-o", file)
    assert sealmq(refused, *add) == 1
    told = capsys.readouterr().err
    assert "sealmq.toml is changed, but the key generator refuses it" in told
    assert "nobody was added at the key generator" in told
    assert not Path(file).exists()
    refused.edit(*reversed(LABEL))
    assert sealmq(refused, *add) == 0
    assert look(refused)[0]["monitor"]["rotation"] == 1


def with_a_peer(site: MadeSite) -> str:
    words = ["--fingerprint", "SHA256:" + "ab" * 32, "--listen", "127.0.0.1:8884"]
    words += ["--export", "m1-temp"]
    assert main(["peer", "add", str(site.layout.root), "south", *words]) == 0
    return site.config.peers["south"].client_out("m1-temp")


def with_a_border(site: MadeSite) -> str:
    with_a_peer(site)
    site.edit(
        "[topics]",
        '[borders.yard]\nfrom = "m1-ctrl"\nto = "m1-temp"\ntopics = ["a/+"]\ndeclassify = true\n\n'
        "[topics]",
    )
    assert sealmq(site, "client", "enable", "monitor") == 0  # which has the file taken over
    return site.config.borders["yard"].client_in


@pytest.mark.parametrize("made", [with_a_peer, with_a_border])
@pytest.mark.parametrize("file", ["right", "wrong"])
def test_a_client_that_a_table_makes_is_put_out_and_let_in(
    made: Callable[[MadeSite], str],
    file: str,
    there: MadeSite,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has no line of its own that could say so."""
    name = made(there)
    assert sealmq(there, "rekey", "--label", "m2-temp") == 0
    text = there.layout.config.read_text()
    if file == "wrong":
        there.edit(*UNKNOWN)
    assert sealmq(there, "client", "disable", name) == 0
    assert look(there)[0][name]["disabled"]
    there.layout.config.write_text(text)
    capsys.readouterr()
    assert sealmq(there, "rekey", "--label", "m2-temp", "--json") == 0
    assert look(there)[0][name]["disabled"]
    assert sealmq(there, "client", "disable", name) == 0
    assert f"{name} is disabled already" in capsys.readouterr().out
    assert sealmq(there, "client", "enable", name, "--json") == 0
    assert said(capsys)["notes"] == []
    assert not look(there)[0][name]["disabled"]
    assert there.layout.config.read_text() == text


def test_what_only_reads_or_draws_keys_goes_by_the_policy_in_force(
    wrong: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    site = str(wrong.layout.root)
    assert main(["backup", site, str(tmp_path / "site.backup")]) == 0
    warned(capsys)
    assert main(["client", "list", site]) == 0
    assert "m1-temp-sensor" in warned(capsys)
    assert main(["topic", "list", site]) == 0
    warned(capsys)
    assert main(["explain", site, "publish", "--client", "m1-temp-sensor", "-t", "x"]) == 0
    assert "m1-temp-sensor may publish on x" in warned(capsys)
    assert main(["purposes", "report", site, "-t", "#", "--since", "1h"]) == 0
    capsys.readouterr()
    assert sealmq(wrong, "rekey", "--label", "monitor", "--dry-run") == 0
    warned(capsys)
    before = look(wrong)[1]["monitor"]
    assert sealmq(wrong, "rekey", "--label", "monitor") == 0
    warned(capsys)
    assert look(wrong)[1]["monitor"] == before + 1


def test_what_changes_the_policy_needs_it_right(
    wrong: MadeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = look(wrong), wrong.layout.config.read_text()
    file = str(tmp_path / "x.json")
    capsys.readouterr()
    for words in (
        ("client", "add", "new", "--label", "monitor", "-o", file),
        ("client", "rotate", "monitor", "-o", file),
        ("client", "enable", "monitor"),
    ):
        assert sealmq(wrong, *words) == 1
        error = capsys.readouterr().err
        assert "sealmq.toml" in error
        assert "Traceback" not in error
    assert (look(wrong), wrong.layout.config.read_text()) == before


# --- mediators confirm --------------------------------------------------------------------------


def test_who_is_connected_and_says_nothing_is_not_known_to_have_taken_it(
    site: MadeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        async with await KgClient.connect(site.layout.kg_socket) as kg:
            await kg.hello(1, bytes(16))
            words = ("client", "disable", "monitor", "--timeout", "0.2", "--json")
            assert await asyncio.to_thread(sealmq, site, *words) == 27
            told = said(capsys)
            assert (told["known"], told["confirmed"]) == (False, [])
            assert [row["mediator"] for row in told["unconfirmed"]] == [1]
            assert look(site)[0]["monitor"]["disabled"]
            # older keys than these are not enough
            await kg.took(told["kseq"] - 1, "")
            assert await asyncio.to_thread(sealmq, site, *words) == 27
            await kg.took(told["kseq"], "")
            assert await asyncio.to_thread(sealmq, site, *words) == 0
            assert said(capsys)["known"]
        assert await asyncio.to_thread(sealmq, site, *words) == 0, "nobody is left"

    with running(site):
        asyncio.run(story())


@pytest.mark.parametrize("words", [["-W", "-1"], ["-W", "soon"], ["--timeout", "nan"]])
def test_a_time_to_wait_that_is_none_is_refused_before_anything_is_changed(
    words: list[str], site: MadeSite
) -> None:
    before = look(site), site.layout.config.read_text()
    assert sealmq(site, "client", "disable", "monitor", *words) == 2
    assert (look(site), site.layout.config.read_text()) == before


def test_cut_off_behind_the_edit_the_same_command_finishes(
    there: MadeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = edit.set_client_disabled

    def dies(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sealmq.cli.leave.set_client_disabled", dies)
        assert sealmq(there, "client", "disable", "monitor") == 130
    assert there.config.clients["monitor"].disabled
    assert not look(there)[0]["monitor"]["disabled"]
    assert sealmq(there, "client", "disable", "monitor") == 0
    assert "new epochs (9)" in capsys.readouterr().out
    assert look(there)[0]["monitor"]["disabled"]


def test_cut_off_between_the_line_and_the_keys_the_same_command_removes(
    there: MadeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = edit.remove_client

    def dies(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sealmq.cli.leave.remove_client", dies)
        assert sealmq(there, "client", "remove", "monitor") == 130
    assert "monitor" not in there.config.clients
    assert not look(there)[0]["monitor"]["removed"]
    capsys.readouterr()
    assert sealmq(there, "client", "remove", "monitor") == 0
    assert "new epochs (9)" in capsys.readouterr().out
    assert look(there)[0]["monitor"]["removed"]


def test_mediators_hear_of_it(site: MadeSite) -> None:
    """Each change comes to who watches, with all of it in the next snapshot."""

    async def story() -> None:
        async with await KgClient.connect(site.layout.kg_socket) as kg:
            device = Device(await kg.enrol("monitor"))
            await kg.hello(1, bytes(16))
            device.accept((await kg.answer(device.ask())).packet)
            await kg.confirm(device.ident.client, 1)
            changes = kg.changes()
            kseq = (await kg.snapshot())["kseq"]
            pending = asyncio.ensure_future(anext(changes))
            for words in (
                ("rekey", "--label", "monitor"),
                ("client", "disable", "monitor"),
                ("client", "enable", "monitor"),
            ):
                ends = asyncio.ensure_future(asyncio.to_thread(sealmq, site, *words))
                async with asyncio.timeout(WAIT_S):
                    change: Change = await pending
                assert change.client is None
                whole = await kg.snapshot()
                await kg.took(whole["kseq"], "")
                assert await ends == 0
                assert whole["kseq"] == change.kseq > kseq
                kseq = change.kseq
                pending = asyncio.ensure_future(anext(changes))
                row = next(c for c in whole["clients"] if c["name"] == "monitor")
                label = next(r for r in whole["labels"] if r["name"] == "monitor")
                seen = (row["disabled"], row["ended"], len(row["links"]), label["epoch"])
                assert (
                    seen
                    == {
                        "rekey": (False, 0, 1, 2),
                        "disable": (True, 1, 0, 3),
                        "enable": (False, 1, 0, 3),
                    }[words[0] if words[0] == "rekey" else words[1]]
                )
            pending.cancel()

    with running(site):
        asyncio.run(story())
