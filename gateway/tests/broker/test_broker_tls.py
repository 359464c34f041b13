"""The CA of `sealmq broker config`, and the files that a mediator's TLS is made with."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sealmq.broker import issuing
from sealmq.broker.deploy import Plan, write
from sealmq.broker.errors import BadAddress, Closed, Untrusted
from sealmq.broker.external import admitted
from sealmq.broker.target import Target
from sealmq.broker.tls import Files
from sealmq.mediator.links import BrokerAddress, BrokerAway, BrokerLink

NOW = datetime.now(UTC)
YEAR = timedelta(days=365)


def files(made: Path) -> Files:
    folder = made / "mediator"
    return Files(folder / "ca.crt", folder / "mediator.crt", folder / "mediator.key")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    write(Plan(tmp_path / "out", "site"))
    return tmp_path / "out"


def test_keys_are_for_their_owner_only_and_differ(made: Path) -> None:
    keys = sorted(made.rglob("*.key"))
    assert [key.name for key in keys] == ["server.key", "ca.key", "mediator.key"]
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert len({key.read_bytes() for key in keys}) == 3
    for folder in (made, *(key.parent for key in keys)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    # The CA's key goes to neither side.
    secret = (made / "ca/ca.key").read_bytes()
    assert [path for path in made.rglob("*") if path.is_file() and secret in path.read_bytes()] == [
        made / "ca/ca.key"
    ]


def test_the_mediator_s_files_are_good_and_nothing_ends_soon(made: Path) -> None:
    assert files(made).context().verify_mode.name == "CERT_REQUIRED"
    assert files(made).context().check_hostname
    assert files(made).ends() == []


def test_again_the_ca_stays_and_the_certificates_are_new(made: Path) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    again = write(Plan(made, "site", host="broker.example"))
    assert again.reused
    assert again.warnings == []
    same = {path.relative_to(made) for path, data in before.items() if path.read_bytes() == data}
    assert {str(path) for path in same} == {
        "ca/ca.key",
        "ca/ca.crt",
        "broker/ca.crt",
        "broker/acl",
        "mediator/ca.crt",
    }
    files(made).read()


def test_a_ca_that_has_ended_is_not_used_again() -> None:
    old = issuing.new_ca("old", NOW - 11 * YEAR)
    with pytest.raises(BadAddress, match="has ended on") as caught:
        issuing.load_ca(old.cert_pem, old.key_pem, "DIR")
    assert "another --out" in (caught.value.hint or "")


def test_a_ca_that_ends_soon_is_told_and_limits_what_it_certifies() -> None:
    ca = issuing.new_ca("ends soon", NOW - issuing.CA_YEARS * YEAR + timedelta(days=20))
    assert issuing.load_ca(ca.cert_pem, ca.key_pem, "DIR").cert == ca.cert
    assert "the CA ends on" in (issuing.ends_soon(ca) or "")
    assert issuing.ends_soon(issuing.new_ca("new")) is None
    leaf = issuing.client(ca, "mediator").cert
    assert leaf.not_valid_after_utc == ca.cert.not_valid_after_utc


def test_a_mediator_s_certificate_that_ends_soon_is_told(made: Path) -> None:
    later = NOW + timedelta(days=issuing.LEAF_DAYS - 10)
    [said] = files(made).ends(later)
    assert "mediator.crt ends on" in said
    assert "has ended" in files(made).ends(later + timedelta(days=20))[0]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("readable", "can be read by others"),
        ("missing", "cannot be read"),
        ("no pem", "holds no unencrypted key"),
        ("another's", "is not the key of"),
        ("ended", "has ended on"),
        ("no certificate", "holds no certificate"),
        ("a folder", "is no regular file"),
    ],
)
def test_files_that_will_not_do(made: Path, wrong: str, says: str) -> None:
    mine = files(made)
    match wrong:
        case "readable":
            mine.key.chmod(0o640)
        case "missing":
            mine.key.unlink()
        case "no pem":
            mine.key.write_text("no key")
        case "another's":
            mine.key.write_bytes((made / "broker/server.key").read_bytes())
        case "ended":
            ca = issuing.new_ca("old", NOW - 3 * YEAR)
            old = issuing.client(ca, "mediator", NOW - 3 * YEAR)
            mine.cert.write_bytes(old.cert_pem)
            mine.key.write_bytes(old.key_pem)
        case "no certificate":
            mine.ca.write_text("no certificate")
        case "a folder":
            mine.ca.unlink()
            mine.ca.mkdir()
    with pytest.raises(BadAddress, match=says) as caught:
        mine.context()
    assert caught.value.hint
    assert "PRIVATE" not in str(caught.value)


def test_a_key_of_another_user_will_not_do(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = files(made).key
    if os.geteuid() == 0:
        os.chown(key, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(BadAddress, match=f"belongs to user {key.stat().st_uid}"):
        files(made).read()


async def _serve(made: Path, reach: Callable[[Target], Awaitable[None]]) -> None:
    """A TLS server that takes connections and says nothing, with the broker's certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made / "ca/ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(made / "broker/server.crt", made / "broker/server.key")

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await reach(Target("127.0.0.1", port, tls=files(made)))


def test_a_broker_with_a_certificate_for_another_host_is_not_believed(tmp_path: Path) -> None:
    """Neither by the supervisor nor by a mediator; with the right name both come further."""
    for host, believed in (("broker.example", False), ("localhost", True)):
        made = tmp_path / host
        write(Plan(made, "site", host=host))

        async def supervisor(target: Target, believed: bool = believed) -> None:
            with pytest.raises(Closed if believed else Untrusted) as caught:
                await admitted(target)
            assert ("certificate is not accepted" in str(caught.value)) is not believed

        async def mediator(target: Target, believed: bool = believed) -> None:
            tls = target.tls
            assert tls is not None
            there = BrokerAddress(target.host, target.port, ca=tls.ca, cert=tls.cert, key=tls.key)
            link = BrokerLink(lambda packet: None, lambda reason: None)
            with pytest.raises(BrokerAway) as caught:
                await link.open(there, "sealmq/x", True)
            assert ("certificate verify failed" in str(caught.value)) is not believed

        asyncio.run(_serve(made, supervisor))
        asyncio.run(_serve(made, mediator))


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("something else")
    with pytest.raises(BadAddress, match="holds no CA of ours"):
        write(Plan(tmp_path, "site"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("host", ["", "two words", "-x", "a/b", "x" * 300])
def test_a_host_that_is_none_is_refused_and_nothing_written(tmp_path: Path, host: str) -> None:
    with pytest.raises(BadAddress, match="is no host's name"):
        write(Plan(tmp_path / "out", "site", host=host))
    assert not (tmp_path / "out").exists()
