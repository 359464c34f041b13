"""The key outside the site: where it is looked for, what is refused, what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.helpers import MadeSite, make_site
from sealmq.site import masterkey
from sealmq.site.errors import KeyFileError, NoSite


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> MadeSite:
    return make_site(tmp_path_factory.mktemp("masterkey"), None)


def test_roles_get_different_keys_that_only_depend_on_content_and_salt() -> None:
    a = masterkey.derive(b"sixteen bytes ok", bytes(16))
    assert a == masterkey.derive(b"sixteen bytes ok", bytes(16))
    assert len({a.kg, a.mediator_cache}) == 2
    assert a.kg != masterkey.derive(b"sixteen bytes oK", bytes(16)).kg
    assert a.kg != masterkey.derive(b"sixteen bytes ok", b"1" * 16).kg
    assert len(a.kg) == len(a.mediator_cache) == 32
    assert a.kg.hex() not in repr(a)


def test_a_line_end_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "key"
    contents = set()
    for end in (b"", b"\n", b"\r\n"):
        path.write_bytes(b"a passphrase of many words" + end)
        path.chmod(0o600)
        contents.add(masterkey.read(path))
    assert contents == {b"a passphrase of many words"}


def test_unsafe_or_senseless_key_files(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        masterkey.read(path)
    path.write_bytes(b"fifteen bytes..\n")
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="has 15 bytes"):
        masterkey.read(path)
    path.write_bytes(b"x" * 5000)
    with pytest.raises(KeyFileError, match="bytes, 16 to 4096"):
        masterkey.read(path)
    path.write_bytes(b"a passphrase of many words")
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="read by others") as caught:
        masterkey.read(path)
    assert caught.value.hint == f"chmod 600 {path}"
    assert "passphrase of" not in str(caught.value)
    with pytest.raises(KeyFileError, match="no regular file"):
        masterkey.read(tmp_path)


def test_the_order_of_places(
    site: MadeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, config = site.layout.root, site.config
    assert masterkey.find(config, root) == site.key_file
    other = tmp_path / "other.key"
    assert masterkey.find(config, root, other) == other
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert masterkey.find(config, root, other) == other
    credential = tmp_path / "sealmq-key"
    credential.write_bytes(b"a passphrase of many words")
    credential.chmod(0o440)
    assert masterkey.find(config, root, other) == credential
    assert masterkey.read(credential) == b"a passphrase of many words"


def test_a_key_inside_the_site_is_refused(site: MadeSite, tmp_path: Path) -> None:
    root = site.layout.root
    link = tmp_path / "link"
    link.symlink_to(root / "state" / "salt")
    for path in (root / "key", root / "state" / "kg" / "key", link):
        with pytest.raises(KeyFileError, match="inside the site"):
            masterkey.find(site.config, root, path)


def test_create_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    masterkey.create(path, tmp_path / "site")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    first = path.read_bytes()
    assert len(bytes.fromhex(first.decode())) == 32
    with pytest.raises(KeyFileError, match="there already"):
        masterkey.create(path, tmp_path / "site")
    assert path.read_bytes() == first


def test_without_its_salt_it_is_no_site(site: MadeSite) -> None:
    salt = site.layout.salt.read_bytes()
    site.layout.salt.unlink()
    with pytest.raises(NoSite, match="missing"):
        masterkey.role_keys(site.layout, site.config)
    site.layout.salt.write_bytes(salt[:8])
    with pytest.raises(NoSite, match="8 bytes"):
        masterkey.role_keys(site.layout, site.config)
    site.layout.salt.write_bytes(salt)
    masterkey.role_keys(site.layout, site.config)


def test_a_user_without_a_home_is_told_to_name_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, say."""

    def none(cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("os.geteuid", lambda: 54321)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(Path, "home", classmethod(none))
    with pytest.raises(KeyFileError, match="user 54321 has no home folder") as caught:
        masterkey.default_path("site", bytes(4))
    assert caught.value.hint == "--key-file FILE, outside the site"
