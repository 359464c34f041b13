"""What runs on a virtual board: boot, REPL, resets, sleep, watchdog, Wi-Fi, power cuts; on both
widths of the interpreter."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealmq_vboard.stubs import missing
from vboard_mp import NETWORK, Line, booted
from vboard_tools import until

JOIN = (
    "import network\nw = network.WLAN(network.STA_IF)\nw.active(True)\n"
    f"w.connect({NETWORK['ssid']!r}, {NETWORK['key']!r})\nassert w.isconnected()\n"
)
both = pytest.mark.parametrize("bits", [pytest.param(64, marks=pytest.mark.full), 32])


@pytest.fixture(scope="module", params=[pytest.param(64, marks=pytest.mark.full), 32])
def repl(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Line]:
    """One board a width, in the raw REPL, for tests that leave it as it was."""
    with booted(tmp_path_factory.mktemp("repl") / "board", request.param) as line:
        line.until(b">>> ")
        line.raw()
        yield line


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


def status(line: Line) -> dict[str, Any]:
    return line.board.ctl({"do": "status"})


# --- boot


@both
def test_boot_then_main_then_the_repl(tmp_path: Path, bits: int) -> None:
    files = {
        "/boot.py": "import sys\nprint('boot', sys.platform, __name__)\nx = 6\n",
        "/main.py": "import helper\nprint('main', helper.double(x))\n",
        "/lib/helper.py": "def double(n):\n    return 2 * n\n",
    }
    with booted(tmp_path / "board", bits, files) as line:
        said = line.until(b">>> ")
    assert "rst:0x1 (POWERON_RESET)" in said
    assert "boot esp32 __main__\r\nmain 12\r\n\r\nMicroPython v1.25.0" in said
    assert "SealMQ virtual board with ESP32" in said


def test_a_boot_that_raises_keeps_main_from_running(tmp_path: Path) -> None:
    files = {"/boot.py": "1/0\n", "/main.py": "print('main')\n"}
    with booted(tmp_path / "board", 64, files) as line:
        said = line.until(b">>> ")
    error = 'Traceback (most recent call last):\r\n  File "boot.py", line 1, in <module>\r\nZero'
    assert error in said
    assert "\r\nmain" not in said


def test_an_erased_partition_gets_a_file_system_and_a_foreign_one_is_left(tmp_path: Path) -> None:
    with booted(tmp_path / "one") as line:
        line.until(b">>> ")
        line.raw()
        assert line.run("import os\nprint(os.listdir())") == "['boot.py']"
    with booted(tmp_path / "two") as line:
        line.until(b">>> ")
        before = bytes(range(256)) * 16
        line.board.ctl({"do": "power", "on": False})
        with (tmp_path / "two" / "flash.bin").open("r+b") as file:
            file.seek(0x200000)
            file.write(before * 2)
        line.board.ctl({"do": "power", "on": True})
        assert "corrupted" in line.until(b">>> ")
        with (tmp_path / "two" / "flash.bin").open("rb") as file:
            file.seek(0x200000)
            assert file.read(8192) == before * 2


@both
def test_the_heap_is_that_of_an_esp32_without_psram(tmp_path: Path, bits: int) -> None:
    with booted(tmp_path / "board", bits, {"/main.py": ""}) as line:
        line.until(b">>> ")
        free = status(line)["child"]["heap_free_at_start"]
        wanted = {32: 160, 64: 320}[bits] * 1024
        assert abs(free - wanted) < 6 * 1024
        line.raw()
        assert line.fails(f"b = bytearray({wanted})").startswith("MemoryError")
        # What lives stays close together: it collects long before all is used.
        line.run("l = []\nfor i in range(60000):\n    b = [i]\n    if i % 100 == 0: l.append(b)")
        line.run(f"b = bytearray({wanted // 4})")


# --- the REPL


def test_the_friendly_repl(tmp_path: Path) -> None:
    with booted(tmp_path / "board") as line:
        line.until(b">>> ")
        for typed, shown in (
            (b"6 * 7\r", "6 * 7\r\n42\r\n>>> "),
            (b"for i in (1, 2):\r    print(i)\r\r", "1\r\n2\r\n>>> "),
            (b"(1 +\r2)\r", "3\r\n>>> "),
            (b"x = 5x\x7f\rx\r", "5\r\n>>> "),
            (b"\x05a = 1\rif a:\r  print('pasted')\r\x04", "pasted\r\n>>> "),
            (b"half a line\x03", "half a line\r\n>>> "),
            (b"\x1b[A\x1b[D8\r", "8\r\n>>> "),
        ):
            line.send(typed)
            line.until(shown.encode())
        line.send(b"1 +\r")
        said = line.until(b"SyntaxError: invalid syntax\r\n>>> ")
        assert "vb_" not in said
        line.send(b"def f():\r  raise KeyError(1)\r\rf()\r")
        said = line.until(b"KeyError: 1\r\n>>> ")
        assert 'File "<stdin>", line 2, in f\r\n' in said
        assert "vb_" not in said


def test_raw_repl_and_raw_paste(repl: Line) -> None:
    repl.send(b"\x05A\x01")
    assert repl.until(b"R\x01\x80\x00\x01")
    code = b"print('%s')" % (b"p" * 500)
    for at in range(0, len(code), 128):
        repl.send(code[at : at + 128])
        if at + 128 <= len(code):
            repl.until(b"\x01")
    repl.send(b"\x04")
    repl.until(b"\x04" + b"p" * 500 + b"\r\n\x04\x04>")
    repl.send(b"\x05X\x01")
    repl.until(b"R\x00")
    repl.send(b"rubbish\x03")
    assert repl.run("print(1)") == "1"
    assert repl.fails("import nothing") == "ImportError: no module named 'nothing'"


def test_line_ends_are_the_uarts_and_bytes_go_as_they_are(repl: Line) -> None:
    repl.begin("import sys\nprint('a')\nsys.stdout.buffer.write(bytes(range(10, 14)))\nprint('b')")
    out, error = repl.end()
    assert (out, error) == ("a\r\n\n\x0b\x0c\rb\r\n", "")


@both
def test_ctrl_c_ends_whatever_runs(tmp_path: Path, bits: int, peer: socket.socket) -> None:
    port = peer.getsockname()[1]
    waits = (
        "while True: pass",
        "import time\ntime.sleep(1000)",
        f"{JOIN}import socket\ns = socket.socket()\ns.connect(('127.0.0.1', {port}))\ns.read(1)",
        "input()",
        # A wait that begins behind the interrupt, and no jump between them.
        "import time\nsum(range(3000000))\ntime.sleep(1000)",
        f"{JOIN}import socket\ns = socket.socket()\ns.connect(('127.0.0.1', {port}))\n"
        "print('now')\nsum(range(3000000))\ns.read(1)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(1000)\nasyncio.run(f())",
    )
    files = {"/main.py": "print('main runs')\nwhile True: pass\n"}
    with booted(tmp_path / "board", bits, files) as line:
        line.until(b"main runs\r\n")
        line.send(b"\x03")
        assert "KeyboardInterrupt: \r\n" in line.until(b">>> ")
        line.raw()
        for code in waits:
            line.begin("print('now')\n" + code)
            line.until(b"now\r\n")
            line.send(b"\x03\x03")  # a second one must not end the interpreter
            error = line.end()[1]
            assert error.endswith("KeyboardInterrupt: \r\n"), error
        # A program may take it as a byte.
        line.begin(
            "import micropython, sys\nmicropython.kbd_intr(-1)\nprint('now')\n"
            "print(ord(sys.stdin.read(1)))\nmicropython.kbd_intr(3)"
        )
        line.until(b"now\r\n")
        line.send(b"\x03")
        assert line.end() == ("3\r\n", "")
        assert status(line)["boots"] == 1


_BUSY = {
    "computes": "n = 0\nwhile True:\n    n = [n, bytearray(99), {n: n}]\n    n = len(n)",
    "collects": "import gc\nl = [[i] for i in range(2000)]\nwhile True:\n    gc.collect()",
    "writes": (
        "while True:\n    with open('f', 'w') as f:\n"
        "        for i in range(40):\n            f.write('x' * 64)"
    ),
    "sleeps": "import time\nwhile True:\n    time.sleep(0)\n    time.sleep(1000)",
    "awaits": (
        "import asyncio\nasync def f():\n    while True:\n        await asyncio.sleep_ms(0)\n"
        "asyncio.run(f())"
    ),
}


def _interrupted_often(folder: Path, bits: int, times: int) -> None:
    """A program is never interrupted where the interpreter cannot bear it: it goes on, with all its
    variables and files."""
    with booted(folder, bits, {"/main.py": ""}) as line:
        line.until(b">>> ")
        line.raw()
        line.run("kept = [str(i) for i in range(100)]\nimport gc, os, time")
        for i in range(times):
            for what, code in _BUSY.items():
                line.begin(f"print('now')\ntime.sleep_us({137 * i})\n{code}")
                line.until(b"now\r\n")
                line.send(b"\x03")
                error = line.end()[1]
                assert error.count("Traceback") == 1, (what, i, error)
                assert error.endswith("KeyboardInterrupt: \r\n"), (what, i, error)
                assert line.run("gc.collect()\nprint(len(kept), kept[99])") == "100 99", (what, i)
        assert line.run("print(sorted(os.listdir()))") == "['f', 'main.py']"
        assert status(line)["boots"] == 1


def test_ctrl_c_breaks_nothing(tmp_path: Path) -> None:
    _interrupted_often(tmp_path / "board", 64, 20)


@pytest.mark.full
@both
def test_ctrl_c_breaks_nothing_often(tmp_path: Path, bits: int) -> None:
    _interrupted_often(tmp_path / "board", bits, 300)


# On a busy machine one that falls between boot.py and main.py can still be lost: limits.py says so.
@pytest.mark.full
def test_ctrl_c_that_comes_too_early_counts(tmp_path: Path) -> None:
    files = {"/boot.py": "print('boot')", "/main.py": "while True: pass"}
    with booted(tmp_path / "board", 64, files) as line:
        line.send(b"\x03")
        line.until(b">>> ")
        line.board.ctl({"do": "reset"})
        line.send(b"\r\x03\r\x01")  # as mpremote connects
        line.until(b"raw REPL; CTRL-B to exit\r\n>")


# --- resets


@both
def test_resets_and_what_they_leave(tmp_path: Path, bits: int) -> None:
    tell = (
        "import machine, time\nr = machine.RTC()\n"
        "print(machine.reset_cause(), r.memory(), time.time() > 1000, time.ticks_ms() < 60000)"
    )
    with booted(tmp_path / "board", bits, {"/main.py": tell}) as line:
        assert "1 b'' False True" in line.until(b">>> ")
        line.raw()
        line.run(
            "import machine\nmachine.RTC().memory(b'kept')\n"
            "machine.RTC().datetime((2026, 1, 1, 0, 0, 0, 0, 0))\nx = 1"
        )
        # A soft reset: everything of the interpreter is new.
        line.send(b"\x04")
        line.until(b"OK\r\nMPY: soft reboot\r\nraw REPL; CTRL-B to exit\r\n>")
        assert line.fails("x") == "NameError: name 'x' isn't defined"
        assert line.run(tell) == "5 b'kept' True True"
        line.send(b"\x02")
        line.until(b">>> ")
        line.send(b"\x04")
        assert "5 b'kept' True True" in line.until(b">>> ")
        # A reset by the program, which cannot keep it from happening.
        line.send(b"import machine\r")
        line.send(b"\x05try:\n  machine.reset()\nfinally:\n  print('caught')\n\x04")
        said = line.until(b"Type")
        assert "rst:0xc (SW_CPU_RESET)" in said
        assert "\r\ncaught" not in said
        assert "2 b'kept' True True" in said
        # The button: as a power on.
        line.until(b">>> ")
        line.board.ctl({"do": "reset"})
        assert "1 b'' False True" in line.until(b">>> ")
        assert status(line)["boots"] == 3


@both
def test_deep_sleep(tmp_path: Path, bits: int) -> None:
    main = (
        "import machine, time\nr = machine.RTC()\nn = len(r.memory())\n"
        "print('wake', n, machine.reset_cause(), machine.wake_reason(), time.time() >= n)\n"
        "r.memory(bytes(n + 1))\n"
        "if n < 2:\n    machine.deepsleep(1000)\nif n == 2:\n    machine.deepsleep()\n"
    )
    with booted(tmp_path / "board", bits, {"/main.py": main}) as line:
        said = line.until(b"wake 2 4 4 True\r\n")
        assert "wake 0 1 0 True" in said
        assert "wake 1 4 4 True" in said
        until(lambda: status(line)["child"]["asleep"])
        line.send(b"nobody hears this\r\x03")
        # It would sleep for ever. Without power it forgets.
        line.board.ctl({"do": "power", "on": False})
        line.board.ctl({"do": "power", "on": True})
        line.until(b"wake 0 1 0 True\r\n")


@both
def test_the_watchdog_bites_who_does_not_feed_it(tmp_path: Path, bits: int) -> None:
    main = (
        "import machine, time\nr = machine.RTC()\nn = len(r.memory())\n"
        "print('cause', n, machine.reset_cause())\nr.memory(bytes(n + 1))\n"
        "if n < 2:\n"
        "    d = machine.WDT(timeout=3000)\n"
        "    for i in range(6):\n        time.sleep_ms(600)\n        d.feed()\n"
        "    print('fed')\n"
        "if n == 1:\n    machine.soft_reset()\n"
        "while n < 3:\n    pass\n"
    )
    with booted(tmp_path / "board", bits, {"/main.py": main}) as line:
        bitten = "\r\n\r\nrst:0x10 (RTCWDT_RTC_RESET)"
        assert f"cause 0 1\r\nfed{bitten}" in line.until(b"cause 1 3\r\n")
        # It outlives a soft reset.
        said = line.until(b"cause 3 3\r\n")
        assert f"fed\r\nMPY: soft reboot\r\ncause 2 5{bitten}" in said
        line.until(b">>> ")


def test_a_program_that_resets_at_once_is_held_back(tmp_path: Path) -> None:
    with booted(tmp_path / "board", 64, {"/main.py": "import machine\nmachine.reset()"}) as line:
        line.until(b"SW_CPU_RESET")
        first, begin = status(line)["boots"], time.monotonic()
        for _ in range(4):
            line.until(b"SW_CPU_RESET")
        line.board.ctl({"do": "power", "on": False})
        boots = status(line)["boots"] - first
        # Each but the first has had its fifth of a second before.
        assert 3 <= boots <= 1 + (time.monotonic() - begin) / 0.2


# --- Wi-Fi and the network


def test_wifi_wants_the_right_network_and_key(repl: Line) -> None:
    told = repl.run(
        "import network, socket\nw = network.WLAN(network.STA_IF)\n"
        "print(w.active(), w.status() == network.STAT_IDLE, w.ifconfig()[0])\n"
        "try:\n    socket.getaddrinfo('127.0.0.1', 1)\nexcept OSError as e:\n    print(e.errno)\n"
        "try:\n    socket.socket().connect(('127.0.0.1', 1))\nexcept OSError as e:\n    print(e)\n"
        "w.active(True)\nw.config(reconnects=0)\n"
        f"w.connect('elsewhere', {NETWORK['key']!r})\n"
        "print(w.isconnected(), w.status() == network.STAT_NO_AP_FOUND)\n"
        f"w.connect({NETWORK['ssid']!r}, 'wrong')\n"
        "print(w.isconnected(), w.status() == network.STAT_WRONG_PASSWORD)\n"
        f"w.connect({NETWORK['ssid']!r}, {NETWORK['key']!r})\n"
        "print(w.isconnected(), w.status() == network.STAT_GOT_IP, w.ifconfig()[0] != '0.0.0.0')\n"
        "print(w.config('ssid'), w.config('mac'))\nw.active(False)\nprint(w.isconnected())\n"
        "w.config(reconnects=-1)"
    )
    assert told.split("\n") == [
        "False True 0.0.0.0",
        "-202",
        "[Errno 113] EHOSTUNREACH",
        "False True",
        "False True",
        "True True True",
        "factory floor b'\\x02\\x00\\x00\\x00\\x00\\x01'",
        "False",
    ]


@both
def test_connections_die_with_wifi_and_the_peer_hears_nothing(
    tmp_path: Path, bits: int, peer: socket.socket
) -> None:
    port = peer.getsockname()[1]
    connect = f"import socket\ns = socket.socket()\ns.connect(('127.0.0.1', {port}))\n"
    with booted(tmp_path / "board", bits, {"/main.py": ""}) as line:
        line.until(b">>> ")
        line.raw()
        line.begin(f"{JOIN}{connect}s.write(b'hello')\nprint(s.read(2))\ns.read(1)")
        first, _ = peer.accept()
        first.settimeout(60)
        assert first.recv(5) == b"hello"
        first.sendall(b"hi")
        line.until(b"b'hi'\r\n")
        line.board.ctl({"do": "wifi", "on": False})
        assert line.end()[1].endswith("OSError: [Errno 103] ECONNABORTED\r\n")
        assert line.fails("s.write(b'more')").startswith("OSError: [Errno 103]")
        assert line.run("print(w.isconnected())\ns.close()") == "False"
        line.board.ctl({"do": "wifi", "on": True})
        # The driver tries again by itself; the old connection stays dead.
        assert line.run(f"print(w.isconnected())\n{connect}s.write(b'again')") == "True"
        second, _ = peer.accept()
        second.settimeout(60)
        assert second.recv(5) == b"again"
        line.board.ctl({"do": "power", "on": False})
        for silent in (first, second):
            silent.settimeout(0.2)
            with pytest.raises(TimeoutError):
                silent.recv(1)
        assert status(line)["child"]["silent_connections"] == 2
        first.close()
        second.close()


def test_a_connection_that_is_closed_is_closed(repl: Line, peer: socket.socket) -> None:
    port = peer.getsockname()[1]
    connect = f"s = socket.socket()\ns.connect(('127.0.0.1', {port}))\n"
    repl.run(f"{JOIN}import socket\n{connect}s.close()\n{connect}w.active(False)\n")
    there, _ = peer.accept()
    there.settimeout(60)
    assert there.recv(1) == b""
    there.close()


def test_sockets_as_on_the_board(repl: Line, peer: socket.socket) -> None:
    port = peer.getsockname()[1]
    repl.begin(
        f"{JOIN}import socket, select, errno, asyncio\n"
        f"a = socket.getaddrinfo('127.0.0.1', {port})[0]\nprint(a)\n"
        "s = socket.socket(*a[:3])\ns.connect(a[-1])\n"
        "b = bytearray(8)\nprint(s.write(b'0123456789', 2, 5), s.readinto(b, 3), b[:3])\n"
        "s.settimeout(0.05)\n"
        "try:\n    s.recv(1)\nexcept OSError as e:\n    print(e.errno == errno.ETIMEDOUT)\n"
        "s.setblocking(False)\nprint(s.read(1))\n"
        "p = select.poll()\np.register(s, select.POLLIN)\nprint(p.poll(10))\n"
        "s.setblocking(True)\ns.sendall(b'end\\n')\nprint(s.readline(), s.recv(10))\ns.close()\n"
        "async def main():\n"
        f"    r, t = await asyncio.open_connection('127.0.0.1', {port})\n"
        "    t.write(b'tasks\\n')\n    await t.drain()\n    await asyncio.sleep_ms(20)\n"
        "    print(await r.readline())\n    t.close()\n"
        "asyncio.run(asyncio.wait_for(main(), 60))\nw.active(False)"
    )
    there, _ = peer.accept()
    there.sendall(b"abc")
    with there.makefile("rb") as lines:
        assert lines.readline() == b"23456end\n"
    there.sendall(b"line\nrest")
    there.close()
    there, _ = peer.accept()
    with there.makefile("rwb") as lines:
        assert lines.readline() == b"tasks\n"
        lines.write(b"answer\n")
    there.close()
    out, error = repl.end()
    assert not error, error
    assert out.replace("\r\n", "\n").split("\n")[:-1] == [
        f"(2, 1, 0, '', ('127.0.0.1', {port}))",
        "5 3 bytearray(b'abc')",
        "True",
        "None",
        "[]",
        "b'line\\n' b'rest'",
        "b'answer\\n'",
    ]


# --- clock, randomness, identity


def test_the_clock_can_be_moved_and_run_wrong(repl: Line) -> None:
    assert repl.run("import time\nprint(time.gmtime(0)[:6], time.time() < 3600)") == (
        "(2000, 1, 1, 0, 0, 0) True"
    )
    repl.run("a, b = time.time(), time.ticks_ms()")
    repl.board.ctl({"do": "clock", "move": 86400})
    moved = "print(time.time() - a >= 86400, time.ticks_diff(time.ticks_ms(), b) < 60000)"
    assert repl.run(moved) == "True True"
    repl.board.ctl({"do": "clock", "move": -86400})
    repl.board.ctl({"do": "clock", "ppm": 9_000_000})  # ten times as fast
    out = repl.run(
        "import machine\na, b = time.ticks_ms(), machine.RTC().datetime()\ntime.sleep_ms(300)\n"
        "print(time.ticks_diff(time.ticks_ms(), a) > 2500, machine.RTC().datetime() > b)"
    )
    repl.board.ctl({"do": "clock", "ppm": 0})
    assert out == "True True"
    assert repl.run("print(time.mktime(time.gmtime(800000000)) == 800000000)") == "True"


def test_randomness_is_bad_until_the_radio_is_on(tmp_path: Path) -> None:
    main = (
        "import os, network\nprint('A', os.urandom(40))\nnetwork.WLAN().active(True)\n"
        "print('B', os.urandom(40))\n"
    )
    found: list[tuple[str, str]] = []
    with booted(tmp_path / "board", 64, {"/main.py": main}) as line:
        for _ in range(2):
            line.until(b"\r\nA ")
            bad = line.until(b"\r\nB ")
            found.append((bad, line.until(b"\r\n")))
            line.until(b">>> ")
            line.board.ctl({"do": "reset"})
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_what_is_missing_says_so(repl: Line) -> None:
    for module, names in missing().items():
        out = repl.run(
            f"import {module} as m\ndir(m)\nn = 0\nfor name in {names!r}:\n"
            "    for use in (lambda o: o(), lambda o: o.thing):\n"
            "        try:\n            use(getattr(m, name))\n"
            f"        except NotImplementedError as e:\n"
            f"            n += '{module}.' + name in str(e)\n"
            "print(n)"
        )
        assert out == str(2 * len(names)), module
    assert repl.fails("import machine\nmachine.nothing") == (
        "AttributeError: 'module' object has no attribute 'nothing'"
    )


# --- the flash


def test_nvs_lies_in_the_flash(repl: Line) -> None:
    assert repl.run(
        "import esp32\nn = esp32.NVS('test')\nn.set_i32('boot', -5)\n"
        "n.set_blob('state', bytes(range(256)) * 20)\nn.commit()\nb = bytearray(6000)\n"
        "print(n.get_i32('boot'), n.get_blob('state', b), b[:5120] == bytes(range(256)) * 20)\n"
        "for f in (lambda: n.get_i32('none'), lambda: n.get_i32('state'),\n"
        "          lambda: n.erase_key('x'), lambda: n.get_blob('state', bytearray(9)),\n"
        "          lambda: n.set_i32('k' * 16, 1)):\n"
        "    try:\n        f()\n    except OSError as e:\n        print(hex(-e.errno), e.args[1])\n"
        "n.erase_key('state')"
    ).split("\n") == [
        "-5 5120 True",
        "0x1102 ESP_ERR_NVS_NOT_FOUND",
        "0x1103 ESP_ERR_NVS_TYPE_MISMATCH",
        "0x1102 ESP_ERR_NVS_NOT_FOUND",
        "0x110c ESP_ERR_NVS_INVALID_LENGTH",
        "0x1109 ESP_ERR_NVS_KEY_TOO_LONG",
    ]


def test_partitions_can_be_looked_at_and_erased(repl: Line) -> None:
    out = repl.run(
        "import esp32\np = esp32.Partition.find(esp32.Partition.TYPE_DATA, label='nvs')[0]\n"
        "print(p.info(), p.ioctl(4, 0), p.ioctl(5, 0))\np.ioctl(6, 3)\nb = bytearray(32)\n"
        "p.writeblocks(3, b'abc', 5)\np.readblocks(3, b)\nprint(b[:9])\np.ioctl(6, 3)"
    )
    assert out.split("\n") == [
        "(1, 2, 36864, 24576, 'nvs', False) 6 4096",
        "bytearray(b'\\xff\\xff\\xff\\xff\\xffabc\\xff')",
    ]


def test_a_worn_sector_is_an_error(tmp_path: Path) -> None:
    with booted(tmp_path / "board", 64, {"/main.py": ""}) as line:
        line.until(b">>> ")
        line.raw()
        for sector in range(514, 1024):
            line.board.ctl({"do": "fault", "sector": sector, "how": "fail"})
        error = line.fails("with open('f', 'wb') as f:\n    f.write(bytes(20000))")
        assert error == "OSError: [Errno 28] ENOSPC" or error.startswith("OSError: [Errno 5] EIO")
        assert line.run("print(open('main.py').read())") == ""


WRITES = (
    "import os\nn = int(open('/count').read())\nprint('count', n)\n"
    "while True:\n"
    "    n += 1\n"
    "    with open('/new', 'w') as f:\n        f.write('%08d' % n * 60)\n"
    "    os.rename('/new', '/data')\n"
    "    with open('/next', 'w') as f:\n        f.write(str(n))\n"
    "    os.rename('/next', '/count')\n"
)
CHECK = (
    "n = int(open('/count').read())\nd = open('/data').read()\n"
    "print(len(d) == 480, int(d[:8]) in (n, n + 1), d == d[:8] * 60)"
)


def cuts(tmp_path: Path, bits: int, after: list[int]) -> None:
    files = {"/main.py": WRITES, "/count": "0", "/data": "00000000" * 60}
    with booted(tmp_path / "board", bits, files) as line:
        line.until(b"count 0\r\n")
        inside = 0
        for n in after:
            line.board.ctl({"do": "cut", "after": n, "inside": True, "seed": n})
            until(lambda: status(line)["mode"] == "off")
            line.board.ctl({"do": "power", "on": True})
            line.until(b"\r\ncount ")
            line.raw()
            assert line.run(CHECK) == "True True True"
            line.board.ctl({"do": "reset"})
            line.until(b"\r\ncount ")
        found = status(line)
        assert len(found["cuts"]) == len(after)
        for cut in found["cuts"]:
            assert (cut["by"], cut["partition"]) == ("program", "vfs")
            inside += 0 < cut["done"] < cut["length"]
        assert inside >= len(after) // 2
        assert found["flash"]["set_bits_refused"] == 0


def test_power_cuts_within_writes_of_littlefs(tmp_path: Path) -> None:
    cuts(tmp_path, 64, [40, 3, 17, 90, 55, 1])


@pytest.mark.full
@both
def test_many_power_cuts(tmp_path: Path, bits: int) -> None:
    cuts(tmp_path, bits, [30 + 7 * n % 101 for n in range(60)])


def test_a_cut_within_nvs(tmp_path: Path) -> None:
    main = (
        "import esp32\nn = esp32.NVS('sealmq')\n"
        "try:\n    b = n.get_i32('boot')\nexcept OSError:\n    b = 0\nprint('boot', b)\n"
        "while True:\n    b += 1\n    n.set_i32('boot', b)\n    n.commit()\n"
    )
    with booted(tmp_path / "board", 64, {"/main.py": main}) as line:
        last = -1
        for n in (30, 31, 32, 33, 34, 200):
            line.until(b"\r\nboot ")
            boot = int(line.until(b"\r\n"))
            assert boot > last
            last = boot
            line.board.ctl({"do": "cut", "after": n, "inside": n % 2 == 1, "seed": n})
            until(lambda: status(line)["mode"] == "off")
            line.board.ctl({"do": "power", "on": True})
        assert {cut["partition"] for cut in status(line)["cuts"]} == {"nvs"}
