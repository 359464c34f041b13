# The way out of the interpreter: to the process that is the rest of the board (child.py), and to
# the kernel. Nothing that the board's programs import leads here but the modules vb_*.
#
# A real board's drivers are C and cannot be interrupted by Ctrl-C. So the signal is held back in
# here; and `call` is one straight line, since the KeyboardInterrupt that was noted before it is
# raised at the next jump (vb_ctrl_c.py) and must not find one.
import json
import struct
import sys

import ffi
import uctypes
import vb_ctrl_c

_libc = ffi.open(None)
_send = _libc.func("l", "send", "ipLi")
_recv = _libc.func("l", "recv", "ipLi")
_sendmsg = _libc.func("l", "sendmsg", "ipi")
_write = _libc.func("l", "write", "ipL")
_read = _libc.func("l", "read", "ipL")
_exit = _libc.func("v", "_exit", "i")
_sigprocmask = _libc.func("i", "sigprocmask", "ipp")
_sigaction = _libc.func("i", "sigaction", "ipp")
_tcgetattr = _libc.func("i", "tcgetattr", "ip")
_tcsetattr = _libc.func("i", "tcsetattr", "iip")
_mmap = _libc.func("p", "mmap", "pLiiil")
_prctl = _libc.func("i", "prctl", "iLLLL")
_setitimer = _libc.func("i", "setitimer", "ipp")

_fd = int(sys.argv[1])
_NOSIGNAL = 0x4000
_BLOCK, _UNBLOCK = 0, 1
_SIGINT = 2
_SIGUSR1 = 10
_INT = bytearray(128)
struct.pack_into("L", _INT, 0, 1 << (_SIGINT - 1) | 1 << (_SIGUSR1 - 1))
_answer = bytearray(8192)

# What child.py reads in the exit status.
RESET = 100
SOFT = 101
SOFT_RAW = 102
SLEEP = 103
GONE = 104
BROKEN = 105
BROKEN_RAW = 106


# What the host answers to `message` (one letter and its arguments): a status, 0 or below, and what
# lies behind it in `_answer`.
def call(message):
    _sigprocmask(_BLOCK, _INT, 0)
    _send(_fd, message, len(message), _NOSIGNAL)
    n = _recv(_fd, _answer, 8192, 0)
    _sigprocmask(_restored, _INT, 0)
    return _status(n)


def _status(n):
    if n < 4:
        _exit(GONE)
    return struct.unpack_from("<i", _answer)[0], n


# The same, where only the status counts, raised as an OSError.
def ask(message):
    status, n = call(message)
    if status < 0:
        raise OSError(-status)
    return bytes(memoryview(_answer)[4:n])


# Hands the host a copy of one of this process's files (a socket), with a message; no answer.
def hand_over(message, fd):
    size = struct.calcsize("P")
    control = bytearray(4 * size)
    struct.pack_into("Liii", control, 0, size + 12, 1, 1, fd)  # SOL_SOCKET, SCM_RIGHTS
    vector = struct.pack("PL", uctypes.addressof(message), len(message))
    head = struct.pack(
        "PIPLPLii",
        0,
        0,
        uctypes.addressof(vector),
        1,
        uctypes.addressof(control),
        2 * size + 8,
        0,
        0,
    )
    _sendmsg(_fd, head, _NOSIGNAL)


# A message without an answer.
def tell(message):
    _send(_fd, message, len(message), _NOSIGNAL)


# A flash operation: no jump on the way, see above. -EIO where the chip says so.
def flash(message):
    _sigprocmask(_BLOCK, _INT, 0)
    _send(_fd, message, len(message), _NOSIGNAL)
    n = _recv(_fd, _answer, 8192, 0)
    _sigprocmask(_restored, _INT, 0)
    return _OF_LENGTH[n]()


def _said():
    return struct.unpack_from("<i", _answer)[0]


# The host has gone.
def _gone():
    _exit(GONE)


_OF_LENGTH = {4: _said, 0: _gone, -1: _gone}


# What C does on a board and Ctrl-C cannot cut short.
def guarded(what, *arguments):
    global _restored
    _sigprocmask(_BLOCK, _INT, 0)
    before = _restored
    _restored = _BLOCK
    try:
        return what(*arguments)
    finally:
        _restored = before
        _sigprocmask(before, _INT, 0)


def leave(status):
    _exit(status)


_restored = _BLOCK  # whether SIGINT is let through again behind a call
boot = json.loads(ask(b"B"))

# --- Ctrl-C: the host sends SIGINT for it while the terminal has ISIG, else passes the byte.
# SIGUSR1 says nothing but ends a wait that began between the signal and the interrupt.

_tty = bytearray(128)
_saved = bytearray(256)
_ignore = bytearray(256)
_nothing = bytearray(256)
_ADDRESS = (1 << 8 * struct.calcsize("P")) - 1
_LFLAG = 12
_OFLAG = 4
_ISIG = 1
_OPOST = 1


# Raw but for the line ends that the UART's driver makes, and no Ctrl-C yet.
def console():
    _sigprocmask(_BLOCK, _INT, 0)
    _sigaction(_SIGINT, 0, _saved)
    struct.pack_into("P", _nothing, 0, _libc.addr("abs") & _ADDRESS)
    _sigaction(_SIGUSR1, _nothing, 0)
    handler = vb_ctrl_c.handler()
    if handler is not None:
        _saved[:] = bytes(len(_saved))
        struct.pack_into("P", _saved, 0, handler & _ADDRESS)
    struct.pack_into("P", _ignore, 0, 1)
    _tcgetattr(0, _tty)
    struct.pack_into("<IIII", _tty, 0, 0, _OPOST | 4, struct.unpack_from("<I", _tty, 8)[0], 0)
    _tcsetattr(0, 0, _tty)


# Ctrl-C interrupts from now on. One that was not taken by the last program is forgotten.
def interrupts_on():
    global _restored
    _sigaction(_SIGINT, _ignore, 0)
    _sigaction(_SIGINT, _saved, 0)
    _tty[_LFLAG] = _ISIG
    _tcsetattr(0, 0, _tty)
    _restored = _UNBLOCK
    _sigprocmask(_UNBLOCK, _INT, 0)


def interrupts_off():
    global _restored
    _restored = _BLOCK
    _sigprocmask(_BLOCK, _INT, 0)
    _tty[_LFLAG] = 0
    _tcsetattr(0, 0, _tty)
    tell(b"i")


# micropython.kbd_intr: only 3 (Ctrl-C) and -1 are what the board's tools use.
def keyboard(char):
    _tty[_LFLAG] = _ISIG if char == 3 else 0
    _tcsetattr(0, 0, _tty)


# Bytes to the console as they are.
def write_raw(data):
    _tty[_OFLAG] = 4
    _tcsetattr(0, 0, _tty)
    try:
        done = 0
        view = memoryview(data)
        while done < len(view):
            n = _write(1, view[done:], len(view) - done)
            if n > 0:
                done += n
    finally:
        _tty[_OFLAG] = _OPOST | 4
        _tcsetattr(0, 0, _tty)
    return done


# At least one byte of the console, at most len(buf).
def read_some(buf):
    n = _read(0, buf, len(buf))
    while n <= 0:
        if n == 0:
            _exit(GONE)
        n = _read(0, buf, len(buf))
    return n


# --- what the host changes while the board runs: bytes that both see

_LENGTH = 64
live = uctypes.bytearray_at(_mmap(0, 4096, 1, 1, boot["live"], 0), _LENGTH)


# The watchdog is the kernel's: an alarm that ends the process unless it is set anew.
def watchdog(ms):
    _setitimer(0, struct.pack("llll", 0, 0, ms // 1000, ms % 1000 * 1000), 0)


# A board whose host has gone has no power.
_prctl(1, 9, 0, 0, 0)
