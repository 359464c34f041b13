"""Space kept back: who may write with how much room, and when it is given up and made again."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from sealmq.site import reserve
from sealmq.site.layout import Layout, give_back
from sealmq.site.reserve import FILE, FILES, LEAVE, WANT, Reserve


class Disk:
    """So many bytes in all; what the reserve's files take counts."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size, self.taken = folder, size, 0

    def __call__(self, folder: Path) -> int:
        assert folder == self.folder
        held = sum(path.stat().st_size for path in folder.iterdir())
        return max(0, self.size - self.taken - held)


PLENTY = LEAVE + 10 * FILE


def test_it_is_made_where_there_is_plenty_of_room(tmp_path: Path) -> None:
    disk = Disk(tmp_path, PLENTY)
    kept = Reserve(tmp_path, disk)
    kept.fill()
    assert kept.whole
    assert disk(tmp_path) == PLENTY - FILES * FILE
    assert all(path.stat().st_blocks * 512 >= FILE for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_ordinary_writers_stop_before_the_disk_is_full(tmp_path: Path) -> None:
    disk = Disk(tmp_path, LEAVE)
    kept = Reserve(tmp_path, disk)
    kept.ordinary()
    disk.taken = 1
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        kept.ordinary()
    assert list(tmp_path.iterdir()) == []


def test_what_is_urgent_takes_one_file_after_the_other_and_only_for_want_of_room(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path, PLENTY)
    kept = Reserve(tmp_path, disk)
    kept.fill()
    disk.taken = PLENTY - FILES * FILE - WANT
    kept.urgent()
    assert kept.whole, "there was room"
    for left in reversed(range(FILES)):
        disk.taken = PLENTY - len(list(tmp_path.iterdir())) * FILE  # to the last byte
        kept.urgent()
        assert len(list(tmp_path.iterdir())) == left
        assert disk(tmp_path) >= WANT
        assert not kept.whole
    disk.taken = PLENTY
    kept.urgent()  # nothing is left: whoever writes will see
    disk.taken = 0
    kept.ordinary()
    assert kept.whole


def test_half_a_reserve_is_made_whole_by_the_next_process(tmp_path: Path) -> None:
    disk = Disk(tmp_path, PLENTY)
    Reserve(tmp_path, disk).fill()
    next(tmp_path.iterdir()).unlink()
    again = Reserve(tmp_path, disk)
    again.urgent()
    assert again.whole
    assert len(list(tmp_path.iterdir())) == FILES


def test_a_folder_that_is_not_there_harms_nobody(tmp_path: Path) -> None:
    kept = Reserve(tmp_path / "none")
    kept.fill()
    kept.urgent()
    assert not kept.whole


def test_the_room_is_that_of_users_without_privileges(tmp_path: Path) -> None:
    assert 0 < reserve.room(tmp_path)


@pytest.mark.parametrize("how", ["symbolic link", "second name", "pipe"])
def test_what_was_planted_in_the_place_of_a_draft_leads_nowhere(tmp_path: Path, how: str) -> None:
    """Root's commands make the files in a role's folder, too."""
    folder, other = tmp_path / "state", tmp_path / "shadow"
    folder.mkdir()
    other.write_text("secret")
    draft = folder / ".reserve-0"
    if how == "symbolic link":
        draft.symlink_to(other)
    elif how == "second name":
        draft.hardlink_to(other)
    else:
        os.mkfifo(draft)
    kept = Reserve(folder)
    making = threading.Thread(target=kept.fill, daemon=True)
    making.start()
    making.join(20)
    assert not making.is_alive()
    assert other.read_text() == "secret"
    assert other.stat().st_size == len("secret")
    kept.fill()
    assert other.stat().st_size == len("secret")


@pytest.mark.skipif(os.geteuid() != 0, reason="nobody but root gives files away")
def test_root_gives_a_role_what_it_has_made_and_no_file_that_was_planted_there(
    tmp_path: Path,
) -> None:
    layout = Layout.of(tmp_path / "site")
    state = layout.state_of("mediator")
    state.mkdir(parents=True)
    os.chown(state, 65534, 65534)
    other = tmp_path / "shadow"
    other.touch()
    (state / "link").symlink_to(other)
    (state / "again").hardlink_to(other)
    (state / "mediator.db").touch()
    give_back(layout)
    assert (state / "mediator.db").stat().st_uid == 65534
    assert other.stat().st_uid == 0
