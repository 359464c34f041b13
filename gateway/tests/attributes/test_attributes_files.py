"""A file of attributes: what counts, what is refused and why, and when it is read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sealmq.attributes import files
from sealmq.attributes.files import BadSource, parse
from sealmq.attributes.sources import FileSource, TimeSource
from sealmq.families.attributes import Attribute, pair

UNTIL = 1_800_000_000_000
TOML = b"""\
[bob]
value = "signed"
until = 2027-01-15T09:00:00+01:00
["*"]
value = true
until = 2027-01-15T08:00:00Z
"""
JSON = b"""{"bob": {"value": "signed", "until": "2027-01-15T09:00:00+01:00"},
"*": {"value": true, "until": "2027-01-15T08:00:00Z"}}"""


@pytest.mark.parametrize(("raw", "suffix"), [(TOML, ".toml"), (JSON, ".json")])
def test_values_by_client_each_with_its_validity(raw: bytes, suffix: str) -> None:
    assert parse(raw, suffix, "contract") == {
        "bob": Attribute("contract", "bob", "signed", UNTIL),
        "": Attribute("contract", "", True, UNTIL),
    }


def test_a_validity_of_long_ago_is_one_that_is_over() -> None:
    raw = b"[bob]\nvalue = 1\nuntil = 1960-01-01T00:00:00Z\n"
    assert parse(raw, ".toml", "n")["bob"].until == 1


@pytest.mark.parametrize(
    ("raw", "suffix", "what"),
    [
        (b"[bob", ".toml", "it is not TOML"),
        (b"{", ".json", "it is not JSON"),
        (b"\xff", ".toml", "it is not UTF-8"),
        (b"[]", ".json", "it is no table of clients"),
        (b"[" * 100_000, ".json", "it is not JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", ".json", "it is not JSON"),
        (b"bob = 1", ".toml", "[bob] has other words"),
        (b"[bob]\nvalue = 1", ".toml", "[bob] has other words"),
        (b"[bob]\nvalue = 1\nuntil = 2027-01-01T00:00:00Z\nuntill = 3", ".toml", "other words"),
        (b"[bob]\nvalue = 1.5\nuntil = 2027-01-01T00:00:00Z", ".toml", "no text, number"),
        (b"[bob]\nvalue = [1]\nuntil = 2027-01-01T00:00:00Z", ".toml", "no text, number"),
        (b'[bob]\nvalue = "' + b"x" * 257 + b'"\nuntil = 2027-01-01T00:00:00Z', ".toml", "no text"),
        (b"[bob]\nvalue = 9223372036854775807\nuntil = 2027-01-01T00:00:00Z", ".toml", "too large"),
        (b"[bob]\nvalue = 1\nuntil = 2027-01-01T00:00:00", ".toml", "no time with its zone"),
        (b"[bob]\nvalue = 1\nuntil = 2027-01-01", ".toml", "no time with its zone"),
        (b'{"bob": {"value": 1, "until": "soon"}}', ".json", "no time with its zone"),
        (b'{"bob": {"value": 1, "until": 1800000000}}', ".json", "no time with its zone"),
        (b'[""]\nvalue = 1\nuntil = 2027-01-01T00:00:00Z', ".toml", "a table without a name"),
        (b'{"a": {"value": 1, "until": "2027-01-01T00:00:00Z"}, "a": {}}', ".json", "twice"),
        (b'{"a": {"value": 1, "value": 2, "until": "2027-01-01T00:00:00Z"}}', ".json", "twice"),
    ],
)
def test_content_that_is_wrong_counts_for_nothing(raw: bytes, suffix: str, what: str) -> None:
    with pytest.raises(BadSource) as caught:
        parse(raw, suffix, "contract")
    assert what in str(caught.value)
    assert caught.value.hint


def test_of_a_pair_the_tables_are_owner_and_subscriber() -> None:
    raw = b"[alice.bob]\nvalue = true\nuntil = 2027-01-15T08:00:00Z\n"
    got = parse(raw, ".toml", "n", "pair")
    assert got == {pair("alice", "bob"): Attribute("n", "alice\x1fbob", True, UNTIL)}


@pytest.mark.parametrize(
    ("raw", "of", "what"),
    [
        (TOML, "pair", "[bob] is no pair"),
        (TOML, "subscriber", "[*] is no subscriber"),
        (TOML, "site", "is no site"),
        (b"bob = 1", "pair", "[bob] is no pair"),
        (b'["a\\u001fb"]\nvalue = 1\nuntil = 2027-01-15T08:00:00Z', "owner", "is no owner"),
        (b'["a\\u001fb".c]\nvalue = 1\nuntil = 2027-01-15T08:00:00Z', "pair", "is no pair"),
        (b"[a.b]\nvalue = 1", "pair", "[a.b] has other words"),
        (b'["".b]\nvalue = 1\nuntil = 2027-01-15T08:00:00Z', "pair", "is no pair"),
        (b'["a\\u001fb"]\nvalue = 1\nuntil = 2027-01-15T08:00:00Z', "", "is no client"),
    ],
)
def test_a_file_about_others_than_declared_counts_for_nothing(
    raw: bytes, of: str, what: str
) -> None:
    with pytest.raises(BadSource) as caught:
        parse(raw, ".toml", "n", of)
    assert what in str(caught.value)
    assert str(caught.value).isprintable()
    assert caught.value.hint


def test_a_name_that_a_terminal_would_obey_is_shown_escaped() -> None:
    with pytest.raises(BadSource) as caught:
        parse(b'{"\\u001b[2J": 1}', ".json", "contract")
    assert str(caught.value).isprintable()


# --- real files ---


class Wall:
    """Some time after the files were written."""

    def __init__(self) -> None:
        self.ahead_ns = 60_000_000_000

    def __call__(self) -> int:
        import time

        return time.time_ns() + self.ahead_ns


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "contract.toml"
    path.write_bytes(TOML)
    return path


def test_a_file_is_read_when_it_has_changed_and_not_otherwise(file: Path) -> None:
    source = FileSource("contract", file, Wall())
    first = source.look()
    assert first is not None
    assert set(first) == {"bob", ""}
    assert source.look() is None
    file.write_bytes(TOML.replace(b"signed", b"ended!"))
    second = source.look()
    assert second is not None
    assert second["bob"].value == "ended!"
    assert source.look() is None


def test_another_file_in_its_place_is_read_though_size_and_time_are_the_same(file: Path) -> None:
    source = FileSource("contract", file, Wall())
    source.look()
    was = file.stat()
    other = file.with_name("new.toml")
    other.write_bytes(TOML.replace(b"signed", b"ended!"))
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.rename(file)
    found = source.look()
    assert found is not None
    assert found["bob"].value == "ended!"


def test_a_file_that_was_written_just_now_is_read_once_more(file: Path) -> None:
    wall = Wall()
    wall.ahead_ns = 0
    source = FileSource("contract", file, wall)
    assert source.look() is not None
    assert source.look() is not None
    wall.ahead_ns = 60_000_000_000
    assert source.look() is not None
    assert source.look() is None


def test_a_bad_file_is_said_once_and_a_missing_one_each_time(file: Path) -> None:
    source = FileSource("contract", file, Wall())
    file.write_bytes(b"[bob")
    with pytest.raises(BadSource):
        source.look()
    assert source.look() is None
    file.unlink()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            source.look()
    file.write_bytes(TOML)
    assert source.look() is not None


def test_files_that_everybody_may_write_pipes_folders_and_large_ones_are_refused(
    file: Path, tmp_path: Path
) -> None:
    file.chmod(0o666)
    with pytest.raises(BadSource, match="everybody may write it"):
        files.read(file, "contract")
    file.chmod(0o644)
    file.write_bytes(b"#" * (files.MOST_BYTES + 1))
    with pytest.raises(BadSource, match="more than"):
        files.read(file, "contract")
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(BadSource, match="no file"):
        files.read(pipe, "contract")
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    with pytest.raises((BadSource, IsADirectoryError)):
        files.read(folder, "contract")


# --- time ---


def test_the_zone_is_looked_at_again_within_an_hour_and_when_the_clock_was_set_back() -> None:
    now = [UNTIL * 1_000_000]
    source = TimeSource("time", "Europe/Berlin", lambda: now[0])
    first = source.look()
    assert first is not None
    assert source.look() is None
    now[0] -= 30 * 86_400 * 1_000_000_000
    back = source.look()
    assert back is not None
    assert back[""].value[0][0] < now[0] // 1_000_000
    now[0] += 3_600 * 1_000_000_000
    assert source.look() is not None
