"""What a board says when it gets no session, in words that say what to do; never a traceback."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_port
from running_site import Site, micropython

SCRIPT = Path(__file__).with_name("told_device.py")

every = pytest.mark.parametrize("bits", [pytest.param(64, marks=pytest.mark.full), 32])
both = pytest.mark.parametrize("kind", ["living", "living_aio"])


@pytest.fixture(scope="module")
def another_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with another number and other secrets, running."""
    made = Site(tmp_path_factory.mktemp("another"), policy="purposes")
    made.up()
    yield made
    made.down()


def told(site: Site, folder: Path, kind: str, bits: int, **mediator: Any) -> str:
    """What a client of the site says whose enrolment names another mediator."""
    name = f"board-{kind}-{bits}"
    there = site.clients / name / "sealmq.json"
    enrolment = json.loads((there if there.exists() else site.enrol(name, "m1-temp")).read_text())
    enrolment["mediator"].update(mediator)
    changed = folder / "sealmq.json"
    changed.write_text(json.dumps(enrolment))
    board = micropython(SCRIPT, changed, kind, bits=bits)
    try:
        said, _ = board.communicate(timeout=60)
    finally:
        board.kill()
        board.wait()
    assert "Traceback" not in said
    lines = said.splitlines()
    assert len(lines) == 1, said
    return lines[0]


@both
@every
def test_a_board_says_that_a_name_does_not_resolve(
    shared_site: Site, kind: str, bits: int, tmp_path: Path
) -> None:
    said = told(shared_site, tmp_path, kind, bits, host="gateway.invalid")
    assert said.startswith("down OSError")
    assert f"gateway.invalid:{shared_site.port}: this network does not know the name" in said
    assert "advertise an address and enrol again" in said


@both
@every
def test_a_board_says_that_nobody_listens(
    shared_site: Site, kind: str, bits: int, tmp_path: Path
) -> None:
    port = free_port()
    said = told(shared_site, tmp_path, kind, bits, port=port)
    assert said.startswith("down OSError [Errno 111]")
    assert f"127.0.0.1:{port}: nobody listens there; is the site up" in said
    assert "sealmq status" in said


@both
@every
def test_a_board_says_that_its_enrolment_is_of_another_site(
    shared_site: Site, another_site: Site, kind: str, bits: int, tmp_path: Path
) -> None:
    said = told(shared_site, tmp_path, kind, bits, port=another_site.port)
    assert said.startswith("down OSError")
    assert f"127.0.0.1:{another_site.port}: no keys came for client " in said
    assert "if that is up, bring its newest enrolment" in said


@both
@every
def test_a_board_whose_gateway_does_not_answer_is_asked_whether_it_is_up(
    shared_site: Site, kind: str, bits: int, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = told(shared_site, tmp_path, kind, bits, port=silent.getsockname()[1])
    assert said.startswith("down OSError [Errno 110]")
    assert "if that is up" in said
