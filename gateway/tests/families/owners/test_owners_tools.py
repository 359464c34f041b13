"""What lies around the family: sealed attributes that people type, key files, the doctor's part."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sealmq.cli.main import main
from sealmq.doctor.policy import in_policy
from sealmq.families.owners import client, events, signing
from sealmq.families.owners.cli import saying
from sealmq.families.owners.doctor import APP
from sealmq.families.owners.settings import read
from sealmq.site.config import load
from sealmq.site.edit import set_topic
from sealmq.site.layout import Layout
from sealmq_spec.errors import Malformed
from sealmq_spec.identity import Identity


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["speed=57"], {"speed": 57}),
        (["name=Bob", "lit=true"], {"lit": True, "name": "Bob"}),
        (['room="57"'], {"room": "57"}),
        (["text=a=b"], {"text": "a=b"}),
        (["x=1.5"], {"x": "1.5"}),
        (["x="], {"x": ""}),
    ],
)
def test_attributes_as_people_type_them(typed: list[str], said: dict[str, Any]) -> None:
    assert json.loads(client.items(typed)[events.TLV]) == said
    assert client.items([]) == {}


@pytest.mark.parametrize(
    "typed",
    [["speed"], ["=5"], ["a=1", "a=2"], ["a=" + "x" * 256], ["a=" + "[" * 60_000], ["a=\udcff"]],
    ids=range(6),
)
def test_what_is_no_attribute_is_refused_before_it_is_sent(typed: list[str]) -> None:
    with pytest.raises(Malformed):
        client.items(typed)


def test_a_private_key_lies_in_a_file_that_its_user_alone_reads(tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    before = os.umask(0)
    try:
        key = client.new_key(file)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert client.read_key(file) == key
    with pytest.raises(FileExistsError):
        client.new_key(file)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="exists"):
        client.new_key(tmp_path / "link")
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(client.BadKey, match="others can read it"):
            client.read_key(file)
    other = tmp_path / "b.pem"
    other.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    other.chmod(0o600)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for wrong in (other, tmp_path / "pipe"):
        with pytest.raises(client.BadKey):
            client.read_key(wrong)


class _Said:
    """In the place of a connected client: keeps what is said."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.identity = Identity.__new__(Identity)
        self.identity.name, self.identity.site = "Alice", b"\0\0\0\1"
        self.said: list[dict[str, Any]] = []
        self._answers = list(answers)

    async def command(self, family: str, body: bytes, *, within: float | None = None) -> bytes:
        assert family == "owners"
        self.said.append(json.loads(body))
        return json.dumps(self._answers.pop(0)).encode()


def test_the_helper_signs_what_it_asserts_and_asks_until_it_has_all() -> None:
    key = bytes(range(32))
    at: Any = _Said({}, {"assertions": [{"id": "1"}, {"id": "2"}], "left_out": 1},
                    {"assertions": [{"id": "3"}], "left_out": 0})  # fmt: skip
    owners = client.Owners(at, key)
    asyncio.run(owners.say("assert", licensees=["Bob"], actions=["RECEIVE"]))
    [said] = at.said
    assert said.pop("do") == "assert"
    document = {**said, "site": "00000001", "public": signing.public_of(key).hex()}
    document |= {"authorizer": "Alice", "owner": "Alice"}
    assert signing.verify(document).licensees == ("Bob",)
    assert [one["id"] for one in asyncio.run(owners.assertions())] == ["1", "2", "3"]
    assert at.said[-1]["after"] == "2"
    with pytest.raises(Malformed, match="licensed"):
        asyncio.run(owners.say("assert", actions=["RECEIVE"]))
    for said in ({"licensees": ["\udcff"]}, {"condition": 'a == "\udcff"', "licensees": ["Bob"]}):
        with pytest.raises(Malformed, match="Unicode"):
            asyncio.run(owners.say("assert", actions=["RECEIVE"], **said))


def test_a_document_that_is_nested_too_deeply_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grant.json"
    file.write_text("[" * 100_000)
    assert main(["owners", "verify", str(file)]) == 1
    assert "holds no JSON" in capsys.readouterr().err


@pytest.mark.parametrize(("left_out", "to"), [(0, 7), (3, 6)])
def test_openings_that_were_not_shown_are_not_seen(left_out: int, to: int) -> None:
    glass = {"owner": "Alice", "client": "Bob", "until_ms": 9, "reason": "fire", "seen": False}
    shown = [{**glass, "at_ms": at} for at in (5, 7)]
    at: Any = _Said({"openings": shown, "left_out": left_out}, {"seen": 2})
    args = argparse.Namespace(verb="openings", seen=True, json=False)
    assert asyncio.run(saying.openings(client.Owners(at), args)) == 0
    assert at.said == [{"do": "openings"}, {"do": "seen", "to": to}]


@pytest.mark.parametrize("site", [("--example", "campus"), ("--policy", "owners")])
def test_the_doctors_types_and_assertions_are_there_for_a_visit(
    tmp_path: Path, site: tuple[str, ...]
) -> None:
    root, key = tmp_path / "site", tmp_path / "key"
    assert main(["init", str(root), *site, "--key-file", str(key)]) == 0
    layout = Layout.open(root)
    before, theirs = layout.config.read_bytes(), read(load(layout.config))
    for edited in (False, True):
        with in_policy(layout):
            found = read(load(layout.config))
            assert len([one for one in found.types if one.app == APP]) == 3
            ours = [one for one in found.assertions if one.app == APP]
            assert len(ours) == 3
            assert {one.authorizer for one in ours} == {"POLICY"}
            assert found.assertions[: len(theirs.assertions)] == theirs.assertions
            if edited:
                set_topic(layout, "hall/door", "bottom")
        if not edited:
            assert layout.config.read_bytes() == before
    assert "sealmq-doctor" not in layout.config.read_text()
    assert "sealmqDoctor" not in layout.config.read_text()
    after = read(load(layout.config))
    assert (after.types, after.assertions) == (theirs.types, theirs.assertions)
