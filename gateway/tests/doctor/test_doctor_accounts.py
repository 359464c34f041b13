"""What `sealmq doctor --broker URL --as FILE` refuses before it connects anywhere."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doctor.brokers import BELOW, accounts_file
from sealmq.broker import issuing
from sealmq.broker.errors import BadAddress, Unreachable
from sealmq.cli import main as cli
from sealmq.doctor.accounts import load
from sealmq.doctor.reach import reach
from sealmq.site.errors import ConfigError


def test_the_file_says_who_may_what(tmp_path: Path) -> None:
    accounts = load(accounts_file(tmp_path))
    ann, bob, ops = accounts.each
    assert accounts.revoke == ann
    assert accounts.topics == tuple(f"{BELOW}{word}" for word in ("ann", "all", "bob"))
    assert (ann.password, ann.sys, ops.sys) == ("pass-word of ann", False, True)
    assert "pass-word" not in repr(accounts)
    # Who looks is another one than who is tried, where there is another one.
    assert accounts.reader(f"{BELOW}ann", ann) == ops
    assert accounts.writer(f"{BELOW}all", ops) == ops
    assert accounts.reader(f"{BELOW}bob", ops) == bob


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ('below = "sealmq-doctor/"', "", "below is missing"),
        ('below = "sealmq-doctor/"', 'below = "sealmq-doctor"', "topics can stand below"),
        ('below = "sealmq-doctor/"', 'below = "#/"', "wildcard"),
        ('below = "sealmq-doctor/"', 'below = "$SYS/"', "topics can stand below"),
        ('revoke = "ann"', 'revoke = "eve"', "there is no account 'eve'"),
        ('revoke = "ann"', "revoke = 1", "revoke is text"),
        ('write = ["sealmq-doctor/bob"]', 'write = ["home/door"]', "is not below"),
        ('write = ["sealmq-doctor/bob"]', 'write = ["sealmq-doctor/"]', "is not below"),
        ('write = ["sealmq-doctor/bob"]', 'write = ["sealmq-doctor/+"]', "wildcard"),
        ('write = ["sealmq-doctor/bob"]', 'writes = ["x"]', "unknown key"),
        ('write = ["sealmq-doctor/bob"]', 'write = ["sealmq-doctor/new"]', "nobody may read"),
        ("sys = true", 'sys = "yes"', "sys is true or false"),
        ("sys = true", 'client_id = "a\\u0007"', "no client id"),
        ('password_file = "bob.password"', 'password_file = "none"', "cannot be read"),
        ('password_file = "bob.password"', "", "a password in one place"),
        ('password_file = "bob.password"', 'password = "very secret"', "others can read this file"),
        ('name = "bob"', 'name = "ann"', "two accounts with one name"),
        ('name = "bob"', 'name = ""', "is no user name"),
        ("[[account]]", "[account]", "no TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_its_own_words(
    was: str, now: str, says: str, tmp_path: Path
) -> None:
    path = accounts_file(tmp_path)
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, now))
    path.chmod(0o644)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "very secret" not in f"{caught.value} {caught.value.hint}"


def test_a_password_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = accounts_file(tmp_path)
    (tmp_path / "bob.password").chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by others"):
        load(path)


def test_one_account_shows_nothing(tmp_path: Path) -> None:
    path = accounts_file(tmp_path)
    path.write_text("".join(path.read_text().partition("[[account]]")[:2]) + '\nname = "ann"\n')
    with pytest.raises(ConfigError, match="1 accounts"):
        load(path)


# --- where it goes ---


def reached(url: str, *addresses: str, **files: Path) -> Any:
    return asyncio.run(reach(url, addresses, **files))


@pytest.fixture
def leads_to(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets every name lead to these addresses."""

    def lead(*addresses: str) -> None:
        rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 1883)) for one in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)

    return lead


def test_this_machine_is_tried_without_more(leads_to: Callable[..., None]) -> None:
    where = reached("mqtt://127.0.0.1")
    assert (where.address, where.port, where.exposed) == ("127.0.0.1", 1883, False)
    assert reached("mqtt://[::1]:1884").address == "::1"
    leads_to("127.0.0.1")
    assert reached("mqtt://here.example").host == "here.example"


def test_each_address_that_is_not_this_machine_s_has_to_be_said(
    leads_to: Callable[..., None],
) -> None:
    leads_to("127.0.0.1", "192.0.2.7", "192.0.2.8")
    with pytest.raises(BadAddress, match="is not this machine") as caught:
        reached("mqtt://broker.example")
    assert "broker.example is 192.0.2.7" in str(caught.value)
    assert "--address 192.0.2.7" in str(caught.value.hint)
    with pytest.raises(BadAddress, match=r"192\.0\.2\.8"):
        reached("mqtt://broker.example", "192.0.2.7")
    leads_to("192.0.2.7")
    where = reached("mqtt://broker.example", "192.0.2.7")
    # What was looked at is what it connects to, whatever the name leads to later.
    assert (where.address, where.exposed) == ("192.0.2.7", True)
    with pytest.raises(BadAddress, match="that is no address"):
        reached("mqtt://broker.example", "broker.example")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mqtt://ann:secret@localhost", "names a user"),
        ("ws://localhost", "not one of ours"),
        ("mqtt://localhost/x", "not one of ours"),
        ("mqtt://localhost:x", "malformed"),
        ("mqtt://", "not one of ours"),
    ],
)
def test_a_url_that_is_none_of_ours(url: str, says: str) -> None:
    with pytest.raises(BadAddress, match=says) as caught:
        reached(url)
    assert "secret" not in str(caught.value)


def test_a_name_that_leads_nowhere() -> None:
    with pytest.raises(Unreachable, match="there is no host"):
        reached("mqtt://nowhere.invalid")


def test_certificates(tmp_path: Path) -> None:
    pair = issuing.client(issuing.new_ca("ca"), "doctor")
    cert, key = tmp_path / "cert", tmp_path / "key"
    cert.write_bytes(pair.cert_pem)
    key.write_bytes(pair.key_pem)
    with pytest.raises(BadAddress, match="which has no TLS"):
        reached("mqtt://localhost", cafile=cert)
    with pytest.raises(BadAddress, match="go together"):
        reached("mqtts://localhost", cert=cert)
    key.chmod(0o644)
    with pytest.raises(BadAddress, match="can be read by others"):
        reached("mqtts://localhost", cert=cert, key=key)
    key.chmod(0o600)
    with pytest.raises(BadAddress, match="not good for TLS"):
        reached("mqtts://localhost", cafile=tmp_path / "none")
    where = reached("mqtts://localhost", cert=cert, key=key)
    assert where.context is not where.bare
    assert where.port == 8883
    without = reached("mqtts://localhost")
    assert without.context is without.bare is not None


# --- the command line ---


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["site", "--broker", "mqtt://localhost", "--as", "x"],
        ["site", "--as", "x"],
        ["--broker", "mqtt://localhost"],
        ["--broker", "mqtt://localhost", "--as", "x", "--seconds", "0"],
        ["--broker", "mqtt://localhost", "--as", "x", "--answer", "nan"],
        ["--broker", "mqtt://localhost", "--as", "x", "--messages", "0"],
        ["--broker", "mqtt://localhost", "--as", "x", "--revoke-by-hand", "--revoke-command", "y"],
        ["--broker", "mqtt://localhost", "--as", "x", "--revoke-command", "'"],
    ],
)
def test_a_command_line_that_is_wrong(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", *words]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("sealmq: ")
    assert "Traceback" not in told.err


def test_nothing_that_can_be_tried_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = accounts_file(tmp_path)
    assert cli.main(["doctor", "--broker", "mqtt://nowhere.invalid", "--as", str(path)]) == 2
    assert cli.main(["doctor", "--broker", "mqtt://127.0.0.1", "--as", str(tmp_path / "none")]) == 2
    assert "gateway/DOCTOR.md has an example" in capsys.readouterr().err
