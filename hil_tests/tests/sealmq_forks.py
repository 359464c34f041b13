"""The command `sealmq` without its start: one process has loaded its modules, and forks for a call.

Loading takes ten times as long as most commands do. A call is a process of its own as ever, with
its arguments, environment, streams, exit code and end; only variables that an interpreter reads at
its start cannot be given (`fits`). So are the processes of a site that was started (`start`), of
which only the command line and the environment that others see in /proc are not their own. A shell
has it as the program `sealmq` of a folder (`on_path`). Run as a program, this file is the process
that forks.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NoReturn

_MAIN = "sealmq.cli.main"
# The programs that `sealmq up` starts, and one that is started by a process with an open store.
_STARTED = frozenset({"sealmq.broker.process", "sealmq.kg.process", "sealmq.mediator.process"})
_WORKER = "sealmq.mediator.worker"
_PROGRAMS = _STARTED | {_WORKER}
# What commands load when they run, beside what their parsers load, and what the programs load.
_LATER = (
    "rich._emoji_codes",
    "rich.console",
    "rich.table",
    "sealmq.broker.deploy",
    "sealmq.broker.embedded",
    "sealmq.broker.gate",
    "sealmq.client",
    "sealmq.doctor.checkup",
    "sealmq.run.status",
    "sealmq.run.up",
    *_PROGRAMS,
)
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "OPENSSL_")
# What instrument/ reads at the start, where PYTHONPATH has it: for these a process that forks is
# started anew. The last one is a folder of modules, which a test may write anew as well.
_INSTRUMENT = ("PYTHONPATH", "SEALMQ_RECORD", "SEALMQ_CLOCK", "SEALMQ_FAMILIES")
# Before any test has changed it: the first call may come from one that has.
_PLAIN = dict(os.environ)
# An answer to stdin has to fit into the pipe.
_PIPE = 65536


class Forks:
    """The process that forks; it ends with this one. env: what it is started with."""

    def __init__(self, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._env = dict(env)
        # Of ours alone: what it keeps there is worth as much as the key files of tests.
        self._folder = Path(tempfile.mkdtemp(prefix="sealmq-forks-"))
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(self.door)
            door.listen()
            fds = theirs.fileno(), door.fileno()
            self._process = _start_from_nothing(
                [sys.executable, "-P", __file__, *map(str, fds), str(self._folder)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=self._env,
            )
        atexit.register(self.end)

    def end(self) -> None:
        """What it has started goes on."""
        atexit.unregister(self.end)
        self._socket.close()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def door(self) -> str:
        """Where others than this process ask."""
        return str(self._folder / _DOOR)

    def on_path(self) -> Path:
        """A folder with a program `sealmq` that does the same."""
        program = self._folder / "bin" / "sealmq"
        if not program.exists():
            program.parent.mkdir()
            program.write_text(_PROGRAM.format(python=sys.executable, door=self.door))
            program.chmod(0o700)
        return program.parent

    def fits(self, env: Mapping[str, str], stdin: bytes | None) -> bool:
        """Whether a start from nothing would do the same."""
        changed = {n for n in {*env, *self._env} if env.get(n) != self._env.get(n)}
        small = stdin is None or len(stdin) <= _PIPE
        return small and not any(name.startswith(_AT_START) for name in changed)

    def run(
        self, words: Sequence[str], stdin: bytes | None, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """As subprocess.run with these."""
        given = os.pipe()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            source = 0 if stdin is None else given[0]
            streams = source, out.fileno(), err.fileno()
            process = self.start(words, streams, env, programs=words[:1] == ["up"])
            os.close(given[0])
            with open(given[1], "wb") as pipe:
                pipe.write(stdin or b"")
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            finally:
                process.close()
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(list(words), code, out.read(), err.read())

    def start(
        self,
        words: Sequence[str],
        streams: tuple[int, int, int],
        env: Mapping[str, str],
        programs: bool = False,
    ) -> Running:
        """As subprocess.Popen with these. programs: those that it starts are forked, too."""
        ours, theirs = os.pipe()
        told = {"words": words, "env": dict(env), "cwd": os.getcwd(), "programs": programs}
        request = json.dumps(told).encode()
        socket.send_fds(self._socket, [request], [*streams, theirs])
        os.close(theirs)
        return Running(words, ours)


class Running:
    """A command that was started. The pipe says the process's number, and how it ended."""

    def __init__(self, words: Sequence[str], told: int) -> None:
        self._words, self._told = words, told
        self._said = b""
        while not self._said:
            self._hear()
        self.pid = int(self._said.split()[0])

    def _hear(self) -> None:
        more = os.read(self._told, 100)
        assert more, "the process that forks for sealmq has ended"
        self._said += more

    def wait(self, timeout: float) -> int:
        """The exit code."""
        end = time.monotonic() + timeout
        while self._said.count(b"\n") < 2:
            # Not select(2): a test may have more than 1,024 files open.
            told = select.poll()
            told.register(self._told, select.POLLIN)
            if not told.poll(1000 * max(0.0, end - time.monotonic())):
                raise subprocess.TimeoutExpired(list(self._words), timeout)
            self._hear()
        self.close()
        return os.waitstatus_to_exitcode(int(self._said.split()[1]))

    def poll(self) -> int | None:
        """The exit code of one that has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Nothing more is to be heard, or nobody asks."""
        if self._told >= 0:
            os.close(self._told)
            self._told = -1


_running: dict[tuple[Any, ...], Forks] = {}


def _forks(env: Mapping[str, str]) -> Forks:
    """One for whatever is not instrumented, and one as it was instrumented last."""
    key: tuple[Any, ...] = ()
    start = _PLAIN
    if env.get("PYTHONPATH") != _PLAIN.get("PYTHONPATH"):
        given = {name: env[name] for name in _INSTRUMENT if name in env}
        files = Path(given.get("SEALMQ_FAMILIES", os.devnull)).rglob("*.py")
        key = (*given.items(), *sorted((str(file), file.stat().st_mtime_ns) for file in files))
        start = {name: value for name, value in _PLAIN.items() if name not in _INSTRUMENT} | given
    if key not in _running:
        for old in [old for old in _running if old and key]:
            _running.pop(old).end()
        _running[key] = Forks(start)
    return _running[key]


def on_path(env: Mapping[str, str]) -> Path:
    """A folder for PATH whose `sealmq` needs no start, for a shell with this environment."""
    return _forks(env).on_path()


def run(
    words: Sequence[str],
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float,
) -> subprocess.CompletedProcess[bytes] | None:
    """`sealmq` with these words run to its end; None when it has to be started from nothing."""
    env = os.environ if env is None else env
    forks = _forks(env)
    return forks.run(words, stdin, env, timeout) if forks.fits(env, stdin) else None


def start(words: Sequence[str], output: IO[Any], programs: bool = True) -> Running | None:
    """`sealmq` with these words, both streams into a file; None as above. programs: those that it
    starts as its own user are forked as well.
    """
    forks = _forks(os.environ)
    if not forks.fits(os.environ, None):
        return None
    with open(os.devnull, "rb") as nothing:
        streams = (nothing.fileno(), output.fileno(), output.fileno())
        return forks.start(words, streams, os.environ, programs)


def popen(command: Sequence[str], **options: Any) -> Any:
    """As subprocess.Popen. `python -P -m MODULE …` with an `env` and a `stderr` is forked, with no
    stdin, and stdout to nobody.
    """
    if list(command[:3]) != [sys.executable, "-P", "-m"] or options.get("preexec_fn") is not None:
        return _start_from_nothing(command, **options)
    return _apart(command, options, _forks(os.environ).door)


_DOOR = "door"
_MOST_FDS = 64
# In the process that forks, and all that come of it: where the door is.
_door = ""
# The program of a shell: it hands over what it was started with, and ends as the command does. It
# loads as little as it can, not even json.
_PROGRAM = """\
#!{python} -IS
import os, signal, socket, sys
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.connect({door!r})
told, theirs = os.pipe()
request = repr((sys.argv[1:], dict(os.environ), os.getcwd(), None)).encode()
socket.send_fds(door, [request], [0, 1, 2, theirs])
os.close(theirs)
said = os.read(told, 100)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(int(said.split()[0]), number))
while said.count(b"\\n") < 2:
    more = os.read(told, 100)
    if not more:
        sys.exit("sealmq: the process that forks has ended")
    said += more
code = os.waitstatus_to_exitcode(int(said.split()[1]))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""

# --- the process that forks -----------------------------------------------------------------------


def _request(ours: socket.socket, door: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What is asked for, with its streams and the pipe; None at the end of who has started us."""
    while True:
        if ours in select.select([ours, door], [], [])[0]:
            data, fds, _, _ = socket.recv_fds(ours, 1 << 20, 4)
            return (json.loads(data), fds) if data else None
        with door.accept()[0] as shell:
            data, fds, _, _ = socket.recv_fds(shell, 1 << 20, _MOST_FDS)
        if data:  # who comes to the door may have been killed there
            words, env, cwd, options = ast.literal_eval(data.decode())
            told = {"words": words, "env": env, "cwd": cwd, "programs": True, "options": options}
            return told, fds


def _next(ours: socket.socket, door: socket.socket) -> tuple[str, list[str]] | None:
    """In the process of a command or program: what it is, and its words. None at the end of the one
    that forks.
    """
    while True:
        asked = _request(ours, door)
        if asked is None:
            return None
        request, fds = asked
        if os.fork():
            for fd in fds:
                os.close(fd)
            _reap()
            continue
        # The one that waits for the command, and tells.
        ours.close()
        door.close()
        pid = os.fork()
        if pid:
            for fd in (*fds[:3], *fds[4:]):
                os.close(fd)
            with contextlib.suppress(BrokenPipeError):  # whoever asked has lost patience
                os.write(fds[3], b"%d\n" % pid)
                os.write(fds[3], b"%d\n" % os.waitpid(pid, 0)[1])
            os._exit(0)
        os.close(fds[3])
        os.chdir(request["cwd"])
        words: list[str] = request["words"]
        if request.get("options"):
            _as_asked(fds[2], fds[4:], request["options"] | {"env": request["env"]})
            return words[0], words[1:]
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(request["env"])
        if request["programs"]:
            subprocess.Popen = _popen  # type: ignore[assignment, misc]
        return str(Path(sys.executable).with_name("sealmq")), words


def _reap() -> None:
    """Takes note of those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


_start_from_nothing = subprocess.Popen


class _Program:
    """What a supervisor asks of a program that it has started as its child."""

    def __init__(self, pid: int, stderr: IO[bytes]) -> None:
        self.pid, self.stderr = pid, stderr

    def wait(self) -> int:
        """The exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Apart(Running):
    """The same of one that is no child."""

    def __init__(self, words: Sequence[str], told: int, stderr: IO[bytes] | None) -> None:
        super().__init__(words, told)
        self.stderr = stderr

    def wait(self, timeout: float = 1e6) -> int:
        return super().wait(timeout)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _apart(command: Sequence[str], options: Mapping[str, Any], door: str) -> Apart:
    """By the process that forks: SQLite does not bear that a process with an open store is forked.
    The program finds its descriptors by their numbers.
    """
    reading, writing = os.pipe()
    told, theirs = os.pipe()
    kept = list(options["pass_fds"])
    wanted = {
        "pass_fds": kept,
        "umask": options.get("umask", -1),
        "start_new_session": options.get("start_new_session", False),
    }
    request = repr((list(command[3:]), dict(options["env"]), os.getcwd(), wanted)).encode()
    piped = options["stderr"] == subprocess.PIPE
    stderr = writing if piped else options["stderr"].fileno()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(door)
        socket.send_fds(asking, [request], [stderr, stderr, stderr, theirs, *kept])
    os.close(writing)
    os.close(theirs)
    heard = os.fdopen(reading, "rb")
    if not piped:
        heard.close()
    return Apart(command, told, heard if piped else None)


def _as_asked(stderr: int, fds: Sequence[int], options: dict[str, Any]) -> None:
    """This process is as `_apart` wants it. All first to where no number is wanted."""
    above = max((0, *options["pass_fds"])) + 1
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in (stderr, *fds)]
    for fd, number in zip(high[1:], options["pass_fds"], strict=True):
        os.dup2(fd, number)
    _as_started(high[0], options | {"preexec_fn": None})


def _popen(command: Sequence[str], **options: Any) -> Any:
    """As subprocess.Popen. The programs of a site are forked, as our user; the rest is started."""
    known = command[:3] == [sys.executable, "-P", "-m"] and command[3] in _PROGRAMS
    if not known or (options["user"], options["group"], options["extra_groups"]) != (None,) * 3:
        return _start_from_nothing(command, **options)
    streams = options["stdin"], options["stdout"], options["stderr"]
    if streams != (subprocess.DEVNULL, subprocess.DEVNULL, subprocess.PIPE):
        raise ValueError(f"{command[3]} has other streams than it is forked with: {streams}")
    if command[3] not in _STARTED:
        if options["preexec_fn"] is not None:
            raise ValueError(f"{command[3]} has something to do before its start")
        return _apart(command, options, _door)
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Program(pid, os.fdopen(reading, "rb"))
    try:
        # What was there belongs to whoever started us. It must not be taken for garbage: files
        # would be closed by numbers that are ours by then.
        gc.freeze()
        _as_started(writing, options)
        _run(command[3], command[4:])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _as_started(stderr: int, options: Mapping[str, Any]) -> None:
    """This process is as subprocess.Popen has a program with these."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDWR)
    for stream, fd in enumerate((null, null, stderr)):
        os.dup2(fd, stream)
    kept = sorted({2, *options["pass_fds"]})
    for fd, following in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.set_inheritable(fd, True)
        os.closerange(fd + 1, following)
    if options["umask"] >= 0:
        os.umask(options["umask"])
    if options["start_new_session"]:
        os.setsid()
    if options["preexec_fn"] is not None:
        options["preexec_fn"]()
    os.environ.clear()
    os.environ.update(options["env"])
    atexit._clear()
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(None)


def _run(program: str, words: Sequence[str]) -> NoReturn:
    """A module or a file as the program of this process, which ends with it."""
    sys.argv = [program, *words]
    try:
        if os.sep not in program:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, int) and threading.active_count() == 1:
            _leave(end.code)
        raise
    raise AssertionError(f"{program} came back")


def _leave(code: int) -> None:
    """The end of the process, but for taking down module after module: each page that they share
    with the process that forks would be copied, which takes longer than most commands. Returns when
    the output cannot be written: that is for the interpreter.
    """
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit(code)


def _remember_keys(folder: Path) -> None:
    """scrypt is to cost a fifth of a second; for the same key and salt, here it does so once."""
    masterkey: Any = importlib.import_module("sealmq.site.masterkey")
    derive = masterkey.derive

    def remembered(content: bytes, salt: bytes) -> Any:
        kept = folder / sha256(salt + content).hexdigest()
        try:
            raw = kept.read_bytes()
        except OSError:
            keys = derive(content, salt)
            with contextlib.suppress(OSError):
                new = kept.with_suffix(f".{os.getpid()}")
                new.touch(0o600)
                new.write_bytes(b"".join(getattr(keys, each.name) for each in fields(keys)))
                new.replace(kept)
            return keys
        return masterkey.RoleKeys(*(raw[at : at + 32] for at in range(0, len(raw), 32)))

    masterkey.derive = remembered


def _serve(ours: int, door: int, folder: Path) -> None:
    importlib.import_module(_MAIN).build()
    for name in _LATER:
        importlib.import_module(name)
    for name in _PROGRAMS:
        del sys.modules[name]  # it is run, not imported
    _remember_keys(folder)
    # What is loaded stays: whoever goes through it copies each page of it.
    gc.collect()
    gc.freeze()
    global _door
    _door = str(folder / _DOOR)
    asked = _next(socket.socket(fileno=ours), socket.socket(fileno=door))
    if asked is not None:
        _run(*asked)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
