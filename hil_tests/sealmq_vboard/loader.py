"""The serial loader: the chip's ROM, and the flasher stub that esptool puts into its RAM.

Sans-IO: bytes of the serial line in, bytes out. No code of the chip runs here: whatever is uploaded
to RAM and started within is taken for the flasher stub. What is not implemented is refused with
the loader's own error code, and counted in `refused`.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable

from .chips import Chip
from .flash import SECTOR, Flash, FlashFault, Misuse
from .image import checksum
from .ram import Ram
from .reading import Sending
from .registers import USUAL_SPEED, Missing, Registers
from .slip import Reader, frame
from .writing import Refused, Why, Writing

_REQUEST, _ANSWER = 0, 1
_HEAD = struct.Struct("<BBHI")
_SYNC = 0x08
_SYNC_DATA = b"\x07\x07\x12\x20" + b"\x55" * 32
_SYNC_VALUE = 0x55201207  # the ROM's; the stub answers 0
_MOST_FRAME = 0x10000
_SLOW_READ = 64

_Answer = tuple[int, bytes]  # value in the head; data before the status


class Loader:
    def __init__(self, chip: Chip, flash: Flash, mac: bytes) -> None:
        self.chip = chip
        self.flash = flash
        self.registers = Registers(chip, flash, mac)
        # Commands, registers and flash commands that were asked for and are not modelled.
        self.refused: Counter[str] = Counter()
        # Set when the host wants out, "run" the program in flash or "reset"; the board does it.
        self.leaving: str | None = None
        self.stub = False
        self._greet = False  # the stub has just been started
        self._reader = Reader(_MOST_FRAME)
        self._writing: Writing | None = None
        self._sending: Sending | None = None
        self._ram = Ram()
        self._out: list[bytes] = []

    def reset(self) -> None:
        """As after a reset into download mode. `refused` stays."""
        self.registers.reset()
        self.leaving = None
        self._reader = Reader(_MOST_FRAME)
        self._to_rom()

    def feed(self, data: bytes) -> bytes:
        """Bytes from the host; what goes back to it. PowerLost: the flash's power was cut."""
        for packet in self._reader.feed(data):
            if self.leaving:
                break
            self._packet(packet)
        out = b"".join(self._out)
        self._out.clear()
        return out

    # -- packets

    def _to_rom(self) -> None:
        self.stub = False
        self._writing = None
        self._sending = None
        self._ram = Ram()

    def _packet(self, packet: bytes) -> None:
        if self._sending is not None:
            if len(packet) == 4:
                self._send_on(int.from_bytes(packet, "little"))
                return
            self._sending = None  # the host has given up reading and begins anew
        if len(packet) < _HEAD.size:
            return
        kind, command, length, check = _HEAD.unpack_from(packet)
        data = packet[_HEAD.size :]
        if kind != _REQUEST or length != len(data):
            return  # noise; the host asks again when no answer comes
        if command == _SYNC:
            if data == _SYNC_DATA:
                if not self.stub:
                    self.registers.speed = USUAL_SPEED  # the ROM finds out the host's
                answer = self._answer(_SYNC, 0 if self.stub else _SYNC_VALUE, b"", stub=self.stub)
                self._out.extend([answer] * 8)
            return
        self._out.append(self._do(command, data, check))
        if self._greet:
            self._greet = False
            self._out.append(frame(b"OHAI"))
        self._send_on(0)

    def _do(self, command: int, data: bytes, check: int) -> bytes:
        stub = self.stub  # who answers, whoever it is afterwards
        handler = _BOTH.get(command) or (_STUB if stub else _ROM).get(command)
        try:
            if handler is None:
                self.refused[f"{'stub' if stub else 'ROM'} command {command:#04x}"] += 1
                raise Refused(Why.UNKNOWN)
            value, answer = handler(self, data, check)
            return self._answer(command, value, answer, stub=stub)
        except Refused as error:
            why = error.why
        except Missing as error:
            self.refused[str(error)] += 1
            why = Why.FAILED
        except FlashFault:
            why = Why.WRITE
        except (Misuse, struct.error):
            why = Why.INVALID
        return self._answer(command, 0, b"", why, stub=stub)

    @staticmethod
    def _answer(
        command: int, value: int, data: bytes, why: Why | None = None, *, stub: bool
    ) -> bytes:
        if stub:
            status = bytes([why.value[1] if why else 0, 0])
        else:
            status = bytes([why is not None, why.value[0] if why else 0, 0, 0])
        body = data + status
        return frame(_HEAD.pack(_ANSWER, command, len(body), value) + body)

    def _send_on(self, acknowledged: int) -> None:
        if self._sending is not None:
            out, done = self._sending.more(acknowledged)
            self._out.append(out)
            if done:
                self._sending = None

    # -- registers and RAM

    def _read_reg(self, data: bytes, _: int) -> _Answer:
        (address,) = struct.unpack("<I", data)
        return self.registers.read(address), b""

    def _write_reg(self, data: bytes, _: int) -> _Answer:
        # Groups of address, value, mask and a delay, which takes no time here.
        for address, value, mask, _delay in struct.iter_unpack("<IIII", data):
            if mask:
                self.registers.write(address, value, mask)
        return 0, b""

    def _mem_begin(self, data: bytes, _: int) -> _Answer:
        size, _blocks, _block, at = struct.unpack("<IIII", data)
        self._ram.begin(at, size)
        return 0, b""

    def _mem_data(self, data: bytes, check: int) -> _Answer:
        self._ram.put(self._block(data, check))
        return 0, b""

    def _mem_end(self, data: bytes, _: int) -> _Answer:
        stay, entry = struct.unpack("<II", data)
        if stay:
            return 0, b""
        if not self._ram.holds(entry):
            self.refused[f"code at {entry:#010x}, which was not uploaded"] += 1
            raise Refused(Why.FAILED)
        self.stub = self._greet = True
        self._writing = None
        return 0, b""

    # -- flash

    @staticmethod
    def _block(data: bytes, check: int) -> bytes:
        length, _sequence, _, _ = struct.unpack_from("<IIII", data)
        block = data[16:]
        if length != len(block):
            raise Refused(Why.INVALID)
        if checksum(block) != check & 0xFF:
            raise Refused(Why.CHECKSUM)
        return block

    def _begin(self, data: bytes, packed: bool) -> _Answer:
        size, _blocks, _block, at = struct.unpack_from("<IIII", data)
        if len(data) == 20 and int.from_bytes(data[16:], "little"):
            self.refused["encrypted write"] += 1
            raise Refused(Why.UNKNOWN)
        if len(data) not in (16, 20):
            raise Refused(Why.INVALID)
        self._writing = None
        self._writing = Writing(self.flash, at, size, lazy=self.stub, packed=packed)
        return 0, b""

    def _data(self, data: bytes, check: int, packed: bool) -> _Answer:
        block = self._block(data, check)
        if self._writing is None or self._writing.packed != packed:
            raise Refused(Why.NOT_WRITING)
        self._writing.take(block)
        return 0, b""

    def _end(self, data: bytes, packed: bool) -> _Answer:
        (flag,) = struct.unpack("<I", data)
        if self._writing is None or self._writing.packed != packed:
            raise Refused(Why.NOT_WRITING)
        if self.stub:
            self._writing.finish()
        self._writing = None
        # 1: the stub stays, the ROM runs the program. 0: the stub goes, the ROM resets the chip.
        if not self.stub:
            self.leaving = "run" if flag else "reset"
        elif not flag:
            self._to_rom()
        return 0, b""

    def _md5(self, data: bytes, _: int) -> _Answer:
        at, size, _, _ = struct.unpack("<IIII", data)
        digest = hashlib.md5(self.flash.read(at, size), usedforsecurity=False)
        return 0, digest.digest() if self.stub else digest.hexdigest().encode()

    def _erase_flash(self, data: bytes, _: int) -> _Answer:
        self.flash.erase(0, self.flash.size)
        return 0, b""

    def _erase_region(self, data: bytes, _: int) -> _Answer:
        self.flash.erase(*struct.unpack("<II", data))
        return 0, b""

    def _read_flash(self, data: bytes, _: int) -> _Answer:
        at, length, block, ahead = struct.unpack("<IIII", data)
        if at + length > self.flash.size or not 0 < block <= SECTOR or not 0 < ahead <= 1024:
            raise Refused(Why.READ_LENGTH)
        self._sending = Sending(self.flash, at, length, block, ahead)
        return 0, b""

    def _read_slow(self, data: bytes, _: int) -> _Answer:
        at, length = struct.unpack("<II", data)
        if length > _SLOW_READ:
            raise Refused(Why.READ_LENGTH)
        return 0, self.flash.read(at, length).ljust(_SLOW_READ, b"\0")

    # -- the rest

    def _attach(self, data: bytes, _: int) -> _Answer:
        if int.from_bytes(data[:4], "little"):
            self.refused["flash on pins of one's own"] += 1
            raise Refused(Why.UNKNOWN)
        return 0, b""

    def _set_params(self, data: bytes, _: int) -> _Answer:
        _, size, _, sector, page, _ = struct.unpack("<IIIIII", data)
        if sector != SECTOR or page != 256 or size > 16 * self.flash.size:
            raise Refused(Why.INVALID)
        return 0, b""

    def _speed(self, data: bytes, _: int) -> _Answer:
        new, _old = struct.unpack("<II", data)
        if new:
            self.registers.speed = new
        return 0, b""

    def _security(self, data: bytes, _: int) -> _Answer:
        length = self.chip.security_info
        if not length:
            raise Refused(Why.UNKNOWN)  # this chip's ROM knows no such command either
        # No flag, no encryption, no key: nothing is burnt. Then chip and ROM version, if it has it.
        return 0, struct.pack("<I8xII", 0, self.chip.chip_id, 0)[:length]

    def _run(self, data: bytes, _: int) -> _Answer:
        self.leaving = "run"
        return 0, b""


_Handler = Callable[[Loader, bytes, int], _Answer]
_BOTH: dict[int, _Handler] = {
    0x02: lambda self, data, _: self._begin(data, False),
    0x03: lambda self, data, check: self._data(data, check, False),
    0x04: lambda self, data, _: self._end(data, False),
    0x05: Loader._mem_begin,
    0x06: Loader._mem_end,
    0x07: Loader._mem_data,
    0x09: Loader._write_reg,
    0x0A: Loader._read_reg,
    0x0B: Loader._set_params,
    0x0D: Loader._attach,
    0x0F: Loader._speed,
    0x10: lambda self, data, _: self._begin(data, True),
    0x11: lambda self, data, check: self._data(data, check, True),
    0x12: lambda self, data, _: self._end(data, True),
    0x13: Loader._md5,
    0x14: Loader._security,
}
_ROM: dict[int, _Handler] = {0x0E: Loader._read_slow}
_STUB: dict[int, _Handler] = {
    0xD0: Loader._erase_flash,
    0xD1: Loader._erase_region,
    0xD2: Loader._read_flash,
    0xD3: Loader._run,
}
