"""`sealmq blinded` while the site is down, and what a restore says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from families.blinded.blinded_site import A_X, B_Q1
from sealmq.cli.main import main
from sealmq.site.layout import Layout


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    site, key = tmp_path / "stream", tmp_path / "key" / "site.key"
    assert main(["init", str(site), "--key-file", str(key), "--example", "streaming"]) == 0
    return site


def explained(
    site: Path, capsys: pytest.CaptureFixture[str], client: str, topic: str, *more: str
) -> tuple[int, list[dict[str, object]]]:
    capsys.readouterr()
    words = ["blinded", "explain", str(site), "--client", client, "-t", topic, "--json", *more]
    code = main(words)
    out = capsys.readouterr().out
    return code, json.loads(out)["answers"] if out else []


def test_who_is_explained_to_receive_an_event_has_the_label_too(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (answer,) = explained(stream, capsys, "X", "stream/a/1")
    assert (code, answer["receives"], answer["label"]) == (0, True, True)
    path = Layout.open(stream).config
    line = next(line for line in path.read_text().splitlines() if line.startswith("X "))
    path.write_text(path.read_text().replace(line, line.replace('"heat"', '"bottom"')))
    assert '"bottom"' in path.read_text()
    code, (answer,) = explained(stream, capsys, "X", "stream/a/1")
    assert (code, answer["let"], answer["wanted"]) == (1, True, True)
    assert (answer["receives"], answer["label"]) == (False, False)
    assert main(["blinded", "explain", str(stream), "--client", "X", "-t", "stream/a/1"]) == 1
    assert "its label is not at or above the publisher's" in capsys.readouterr().out


def test_an_event_grant_is_explained_where_it_is_good_and_nowhere_else(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explained(stream, capsys, "X", "stream/a/1/more", "--id", A_X)[0] == 0
    for ident, said in (
        (B_Q1, f"the event grant {B_Q1} is not for stream/a/1"),
        ("0" * 16, "there is no such event grant"),
    ):
        words = ["blinded", "explain", str(stream), "--client", "X", "-t", "stream/a/1"]
        assert main([*words, "--id", ident]) == 1
        assert said in capsys.readouterr().err


def test_what_is_no_text_is_refused_in_words(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for has in ("a = \udcff", f"a in 1..{'9' * 5000}", "a >"):
        words = ["blinded", "grant", str(stream), "--customer", "X", "--has", has]
        assert main(words) == 1
        assert "internal error" not in (err := capsys.readouterr().err)
        assert "mend that folder" not in err
    lines = stream / "lines.jsonl"
    lines.write_text('{"grant": {"customer": "X", "has": ["a = \\udcff"]}}\n')
    assert main(["blinded", "simulate", str(stream), "--events", str(lines)]) == 1
    assert "line 1: the text is no UTF-8" in capsys.readouterr().err
    lines.write_text('{"publish": "stream/\\u001b[31m", "client": "X"}\n')
    assert main(["blinded", "simulate", str(stream), "--events", str(lines)]) == 0
    assert "stream/\\x1b[31m: refused" in capsys.readouterr().out


def test_a_restore_says_that_revocations_since_the_backup_have_to_be_looked_through(
    stream: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key generator's store is of then: who was revoked since has his attributes again."""
    backup = tmp_path / "site.backup"
    assert main(["backup", str(stream), str(backup)]) == 0
    assert main(["blinded", "revoke", str(stream), "--customer", "X"]) == 0
    assert explained(stream, capsys, "X", "stream/a/1")[0] == 1
    assert main(["restore", str(stream), str(backup)]) == 0
    assert f"sealmq blinded show {stream}" in capsys.readouterr().out
    assert explained(stream, capsys, "X", "stream/a/1")[0] == 0
