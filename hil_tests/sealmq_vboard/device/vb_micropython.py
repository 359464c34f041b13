# The module `micropython` of a board: Ctrl-C is asked of the console.
import micropython as _host
import vb_host

for _name in (
    "RingIO", "const", "heap_lock", "heap_unlock", "mem_info", "opt_level", "qstr_info", "schedule",
    "stack_use",
):  # fmt: skip
    globals()[_name] = getattr(_host, _name)
kbd_intr = vb_host.keyboard


# The host's interpreter has an exception's memory anyway.
def alloc_emergency_exception_buf(size):
    pass


__name__ = "micropython"
