# Ctrl-C as a board has it: KeyboardInterrupt comes at the program's next jump or where it waits.
#
# The host's interpreter raises it from its signal handler, wherever it is: in the middle of a
# collection or an allocation too, and cannot use its heap then. So the handler is one of ours,
# which only notes the exception in the interpreter's state, as the boards' own ports do.
#
# The state has no name to be found by, but two words in a row that are known: the variables of
# this module, as locals and as globals. Behind them come the top of the exception handlers, which
# lies on the stack, that of the jump handlers, and the exception to come. Whether that is right is
# tried, once.
import struct

import ffi
import uctypes

_WORD = struct.calcsize("P")
_MASK = (1 << 8 * _WORD) - 1
_TYPE = uctypes.UINT64 if _WORD == 8 else uctypes.UINT32
_LARGEST = 1 << 20

_exception = KeyboardInterrupt()
_exception_at = id(_exception) & _MASK
# Its traceback's first word: else the last one's lines would be shown again.
_traceback = uctypes.struct(_exception_at, {"lines": 2 * _WORD | _TYPE})
_state = None


# In the signal handler: nothing that allocates, jumps or asks the kernel.
def _note():
    _traceback.lines = 0
    _state.coming = _exception_at


# Where the interpreter's variables can lie: its own files' and what is next to them.
def _areas():
    stack = (0, 0)
    areas = []
    of_a_file = False
    with open("/proc/self/maps") as maps:
        for line in maps:
            words = line.split()
            begin, end = [int(word, 16) for word in words[0].split("-")]
            path = words[5] if len(words) > 5 else ""
            if path == "[stack]":
                stack = (begin, end)
            elif words[1].startswith("rw"):
                of_a_file = path.startswith("/") or (not path and of_a_file)
                if of_a_file and end - begin <= _LARGEST:
                    areas.append((begin, end))
            else:
                of_a_file = path.startswith("/")
    return areas, stack


def _candidates(variables):
    areas, stack = _areas()
    known = struct.pack("PP", variables, variables)
    found = []
    for begin, end in areas:
        memory = uctypes.bytearray_at(begin, end - begin)
        at = memory.find(known)
        while at >= 0:
            if at % _WORD == 0 and at + 5 * _WORD <= end - begin:
                top, _, coming = struct.unpack_from("PPP", memory, at + 2 * _WORD)
                if stack[0] < top < stack[1] and not coming:
                    found.append(begin + at)
            at = memory.find(known, at + 1)
    return found


def _comes():
    try:
        _note()
        for _ in (0, 0):
            pass
    except KeyboardInterrupt:
        return True
    _state.coming = 0
    return False


# The handler's address, or None: this interpreter is another one.
def handler():
    global _state
    if len(_found) != 1:
        return None
    _state = uctypes.struct(_found[0], {"coming": 4 * _WORD | _TYPE})
    return _callback.cfun() if _comes() and not _state.coming else None


_callback = ffi.callback("v", _note, "")
# Here and not in a function, where the locals may be another module's.
_found = _candidates(id(globals()) & _MASK)
