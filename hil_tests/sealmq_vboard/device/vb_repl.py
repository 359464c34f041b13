# The REPL of a board: friendly, raw and raw-paste, as mpremote and people use it. Programs run in
# one set of globals, with Ctrl-C; nothing else here can be interrupted.
import io
import os as _host_os

import vb_host
import vb_sys as sys

_IN = bytearray(256)
_WINDOW = 128
_COMPOUND = (
    "if ", "for ", "while ", "def ", "class ", "with ", "try:", "async ", "@", "if(", "while(",
)  # fmt: skip

scope = {"__name__": "__main__"}
_at = _end = 0
_in_raw = False


def _byte():
    global _at, _end
    if _at == _end:
        _at = 0
        _end = vb_host.read_some(_IN)
    _at += 1
    return _IN[_at - 1]


def say(text):
    sys.stdout.write(text)


# A pending KeyboardInterrupt comes out at a jump.
def _settle():
    for _ in (0,):
        pass


# An interpreter that vb_ctrl_c.py does not know takes Ctrl-C in the middle of a garbage collection,
# too, and cannot use its heap then. A new one takes its place; only the variables are gone.
_INTERRUPTED = (KeyboardInterrupt, MemoryError)


def _unless_broken(error):
    if isinstance(error, _INTERRUPTED):
        try:
            bytearray(64)
        except MemoryError:
            vb_host.leave(vb_host.BROKEN_RAW if _in_raw else vb_host.BROKEN)


# Runs it. None, or what it raised; SystemExit: a soft reset.
def run(program, *args):
    try:
        try:
            vb_host.tell(b"R" if _in_raw else b"F")
            vb_host.interrupts_on()
            program(*args)
        finally:
            vb_host.interrupts_off()
            _settle()
    except BaseException as error:
        vb_host.interrupts_off()
        _unless_broken(error)
        return error
    return None


# Without the lines of these files, which a board has not.
def show(error):
    out = io.StringIO()
    sys.print_exception(error, out)
    lines = out.getvalue().split("\n")
    say("\n".join([line for line in lines if "/vb_" not in line or '  File "' not in line]))


def _exec(source, kind):
    exec(compile(source, "<stdin>", kind), scope)


def _file(name):
    execfile(name, scope)


# boot.py or main.py: "done", or not there; "failed" (then main.py is not run); "soft".
def start(name):
    try:
        _host_os.stat(name)
    except OSError:
        return "done"
    error = run(_file, name)
    if error is None:
        return "done"
    if isinstance(error, SystemExit):
        return "soft"
    show(error)
    return "failed"


# --- raw


def _paste():
    say_raw(b"R\x01" + bytes((_WINDOW & 0xFF, _WINDOW >> 8, 1)))
    parts = bytearray()
    left = _WINDOW
    while True:
        c = _byte()
        if c == 3:
            return None
        if c == 4:
            say_raw(b"\x04")
            return parts
        parts.append(c)
        left -= 1
        if not left:
            left = _WINDOW
            say_raw(b"\x01")


say_raw = vb_host.write_raw


# "friendly", or "soft" for a soft reset. broken: in the middle of a program, which was interrupted.
def raw(broken=False):
    global _in_raw
    _in_raw = True
    while True:
        if broken:
            say_raw(b"\x04")
            show(KeyboardInterrupt())
            say_raw(b"\x04")
            broken = False
        else:
            say("raw REPL; CTRL-B to exit\n")
        line = bytearray()
        say(">")
        while True:
            c = _byte()
            if c == 1:
                if line != b"\x05A":
                    if line[:1] == b"\x05":
                        say_raw(b"R\x00")
                        line = bytearray()
                        continue
                    break
                line = _paste()
                if line is not None and _execute(line):
                    return "soft"
                line = bytearray()
                say(">")
            elif c == 2:
                say("\n")
                _in_raw = False
                return "friendly"
            elif c == 3:
                line = bytearray()
            elif c == 4:
                say_raw(b"OK")
                if not line:
                    say("\n")
                    return "soft"
                if _execute(line):
                    return "soft"
                line = bytearray()
                say(">")
            else:
                line.append(c)


def _execute(line):
    try:
        source = str(line, "utf8")
    except (UnicodeError, MemoryError) as error:
        say_raw(b"\x04")
        show(error)
        say_raw(b"\x04")
        return False
    error = run(_exec, source, "exec")
    say_raw(b"\x04")
    if error is not None and not isinstance(error, SystemExit):
        show(error)
    say_raw(b"\x04")
    return isinstance(error, SystemExit)


# --- friendly


def banner():
    say("%s; %s\n" % (sys.version.split("; ")[-1], sys.implementation._machine))
    say('Type "help()" for more information.\n')


# "raw", or "soft".
def friendly():
    say("\n")
    banner()
    while True:
        source = _line(">>> ")
        if source is None:
            continue
        if source in ("raw", "soft"):
            return source
        while _goes_on(source):
            more = _line("... ")
            if more is None:
                source = ""
                break
            if more in ("raw", "soft"):
                return more
            source += "\n" + more
        if not source.strip():
            continue
        error = run(_exec, source, "single")
        if isinstance(error, SystemExit):
            return "soft"
        if error is not None:
            show(error)


# A line with its echo. None: Ctrl-C. Ctrl-A, Ctrl-D and Ctrl-E on an empty one mean what they mean.
def _line(prompt):
    say(prompt)
    line = bytearray()
    while True:
        c = _byte()
        if c == 13:
            say("\n")
            try:
                return str(line, "utf8")
            except UnicodeError:
                return ""
        if c == 3:
            say("\n")
            return None
        if c == 27:
            _escape()
        elif c in (8, 127):
            if line:
                line = line[:-1]
                say("\b \b")
        elif not line and c == 1:
            say("\n")
            return "raw"
        elif not line and c == 2:
            say("\n")
            banner()
            say(prompt)
        elif not line and c == 4:
            say("\n")
            return "soft"
        elif not line and c == 5:
            return _pasted()
        elif c >= 32 or c == 9:
            line.append(c)
            say_raw(bytes((c,)))


# Arrow keys and the like: no line editing here.
def _escape():
    c = _byte()
    if c in b"[O":
        while not 64 <= _byte() < 127:
            pass


def _pasted():
    say("\npaste mode; Ctrl-C to cancel, Ctrl-D to finish\n=== ")
    text = bytearray()
    while True:
        c = _byte()
        if c == 3:
            say("\n")
            return None
        if c == 4:
            say("\n")
            error = run(_exec, str(text, "utf8"), "exec")
            if isinstance(error, SystemExit):
                return "soft"
            if error is not None:
                show(error)
            return ""
        text.append(c)
        if c == 13:
            say("\n=== ")
        else:
            say_raw(bytes((c,)))


# Whether more lines belong to it.
def _goes_on(source):
    depth = 0
    quote = ""
    i = 0
    n = len(source)
    while i < n:
        c = source[i]
        if quote:
            if c == "\\":
                i += 1
            elif source[i : i + len(quote)] == quote:
                i += len(quote) - 1
                quote = ""
        elif c in "'\"":
            quote = c * 3 if source[i : i + 3] == c * 3 else c
            i += len(quote) - 1
        elif c == "#":
            while i < n and source[i] != "\n":
                i += 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        i += 1
    if depth > 0 or len(quote) == 3 or source[-1:] == "\\":
        return True
    return source.startswith(_COMPOUND) and source[-1:] != "\n"
