"""Firmware by URL, against a server on loopback that lies, stops, redirects and stalls."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from sealmq_board import fetch
from sealmq_board.errors import BoardError, UsageError

BODY = bytes(range(256)) * 300
DIGEST = hashlib.sha256(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    go_on: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        Handler.asked.append(self.path)
        name = self.path.partition("?")[0].strip("/")
        getattr(self, name.replace("-", "_"), self.missing)()

    def missing(self) -> None:
        self.send_error(404)

    def answer(self, length: int | None, body: bytes, status: int = 200, **more: str) -> None:
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for key, value in more.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def whole(self) -> None:
        self.answer(len(BODY), BODY)

    def no_length(self) -> None:
        self.answer(None, BODY)

    def short(self) -> None:
        self.answer(len(BODY), BODY[:-1])

    def short_no_length(self) -> None:
        self.answer(None, BODY[:-1])

    def turned(self) -> None:
        self.answer(len(BODY), BODY[::-1])

    def moved(self) -> None:
        self.answer(0, b"", 302, Location="/whole?x=1")

    def in_circles(self) -> None:
        self.answer(0, b"", 301, Location="/in-circles")

    def to_the_world(self) -> None:
        self.answer(0, b"", 302, Location="http://192.0.2.1/whole")

    def to_a_file(self) -> None:
        self.answer(0, b"", 302, Location="file:///etc/passwd")

    def nowhere(self) -> None:
        self.answer(0, b"", 302)

    def large(self) -> None:
        self.answer(1 << 40, BODY)

    def endless(self) -> None:
        self.answer(None, b"")
        try:
            while True:
                self.wfile.write(bytes(1 << 20))
        except OSError:
            pass

    def stalled(self) -> None:
        self.answer(len(BODY), BODY[:1000])
        self.wfile.flush()
        Handler.go_on.wait(60)

    def silent(self) -> None:
        Handler.go_on.wait(60)

    def garbage(self) -> None:
        self.wfile.write(b"\0\1\2\r\n\r\n")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Handler.asked.clear()
    Handler.go_on.clear()
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    Handler.go_on.set()
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize("name", ["whole", "no-length", "moved"])
def test_what_has_the_digest_is_kept(server: str, tmp_path: Path, name: str) -> None:
    steps: list[tuple[int, int]] = []
    raw = fetch.load(f"{server}/{name}", DIGEST.upper(), lambda *step: steps.append(step), tmp_path)
    assert raw == BODY
    assert steps[-1][0] == len(BODY)
    assert [path.name for path in tmp_path.iterdir()] == [f"{DIGEST}.bin"]
    asked = len(Handler.asked)
    assert fetch.load(f"{server}/{name}", DIGEST, cache=tmp_path) == BODY
    assert len(Handler.asked) == asked
    # What lies in the cache is not trusted either.
    (tmp_path / f"{DIGEST}.bin").write_bytes(b"other")
    assert fetch.load(f"{server}/{name}", DIGEST, cache=tmp_path) == BODY
    assert len(Handler.asked) > asked


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("turned", "not what was asked for: its SHA-256 is"),
        ("short", "ended after|IncompleteRead"),
        ("short-no-length", "not what was asked for"),
        ("missing", "404"),
        ("in-circles", "redirects more than 3 times"),
        ("to-the-world", "http://192.0.2.1/whole is not fetched"),
        ("to-a-file", "is not fetched"),
        ("nowhere", "redirects more than 3 times"),
        ("large", "at most"),
        ("endless", "more than"),
        ("stalled", "stopped answering"),
        ("silent", "stopped answering"),
        ("garbage", "cannot be fetched"),
    ],
)
def test_what_is_anything_else_is_not(server: str, tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(BoardError, match=text):
        fetch.load(f"{server}/{name}", DIGEST, cache=tmp_path, timeout=3)
    assert list(tmp_path.iterdir()) == []


def test_slow_drops_end_as_well(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drops(self: Handler) -> None:
        self.answer(None, b"")
        try:
            while not Handler.go_on.wait(0.05):
                self.wfile.write(b"x")
        except OSError:
            pass

    monkeypatch.setattr(Handler, "drops", drops, raising=False)
    monkeypatch.setattr(fetch, "_WHOLE", 2)
    with pytest.raises(BoardError, match="too slow"):
        fetch.load(f"{server}/drops", DIGEST, cache=tmp_path, timeout=5)


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="cannot be fetched: Connection refused"):
        fetch.load("http://127.0.0.1:9/x", DIGEST, cache=tmp_path)


@pytest.mark.parametrize(
    "url", ["http://example.org/x", "ftp://127.0.0.1/x", "https://", "file:///x"]
)
def test_only_https_and_this_machine(url: str, tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="is not fetched"):
        fetch.load(url, DIGEST, cache=tmp_path)


def test_a_url_needs_a_digest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs --sha256"):
        fetch.load("https://example.org/x", None, cache=tmp_path)
    with pytest.raises(UsageError, match="64 hexadecimal"):
        fetch.load("https://example.org/x", DIGEST[1:], cache=tmp_path)


def test_a_path_is_checked_where_a_digest_is_given(tmp_path: Path) -> None:
    path = tmp_path / "firmware.bin"
    path.write_bytes(BODY)
    assert fetch.load(str(path), None) == BODY
    assert fetch.load(str(path), DIGEST) == BODY
    with pytest.raises(BoardError, match="not what was asked for"):
        fetch.load(str(path), DIGEST[::-1])
    with pytest.raises(FileNotFoundError):
        fetch.load(str(tmp_path / "none"), DIGEST)


def test_nothing_is_half_in_the_cache(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        fetch.load(f"{server}/whole", DIGEST, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []
