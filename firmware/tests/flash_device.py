# Runs in MicroPython: flash chips whose power goes at a chosen operation, with littlefs and FAT on
# them as they are on boards. The file systems are MicroPython's own; the chip is this file.
# mypy: ignore-errors
import vfs

# What a cut leaves of the operation it falls into: nothing, its first eighth or half; or nothing of
# all that was written since the last sync, as behind a cache.
HOW = ("whole", "eighth", "half", "unsynced")
BLOCK = {"lfs2": 4096, "fat": 512}
COUNT = {"lfs2": 16, "fat": 128}


class Cut(BaseException):
    pass


class Flash:
    # dies: the number of the operation at which the power goes, 0 for never. file: an open file
    # that has the same content and keeps it. die: called instead of raising Cut.
    def __init__(self, kind, data, dies=0, how="whole", file=None, die=None):
        self.block = BLOCK[kind]
        self.nor = kind == "lfs2"
        self.data = data
        self.dies = dies
        self.how = how
        self.file = file
        self.die = die
        self.dead = False
        self.ops = 0
        self.erases = 0
        self._undo = []

    # Without power nothing happens any more; the collector closes files then, and may not allocate.
    def readblocks(self, n, buf, off=0):
        if self.dead:
            return
        at = n * self.block + off
        buf[:] = self.data[at : at + len(buf)]

    def writeblocks(self, n, buf, off=0):
        if self.dead:
            return
        at = n * self.block + off
        new = bytes(buf)
        if self.nor:
            # Bits only fall until the block is erased; littlefs counts on nothing else.
            old = self.data[at : at + len(new)]
            both = int.from_bytes(old, "big") & int.from_bytes(new, "big")
            new = both.to_bytes(len(new), "big")
        self._operation(at, new)

    def ioctl(self, op, arg):
        if self.dead:
            return 0
        if op == 3:
            self._undo.clear()
        elif op == 4:
            return len(self.data) // self.block
        elif op == 5:
            return self.block
        elif op == 6:
            if self.nor:
                self._operation(arg * self.block, b"\xff" * self.block)
                self.erases += 1
            return 0

    def _operation(self, at, new):
        self.ops += 1
        if self.ops == self.dies:
            if self.how == "unsynced":
                for before, old in reversed(self._undo):
                    self._put(before, old)
            elif self.how != "whole":
                self._put(at, new[: len(new) // (2 if self.how == "half" else 8)])
            self.dead = True
            if self.die is not None:
                self.die()
            raise Cut()
        if self.dies and self.how == "unsynced":
            self._undo.append((at, bytes(self.data[at : at + len(new)])))
        self._put(at, new)

    def _put(self, at, new):
        self.data[at : at + len(new)] = new
        if self.file is not None:
            self.file.seek(at)
            self.file.write(new)


def blank(kind):
    data = bytearray(b"\xff" * (BLOCK[kind] * COUNT[kind]))
    system(kind).mkfs(Flash(kind, data))
    return data


def system(kind):
    return vfs.VfsLfs2 if kind == "lfs2" else vfs.VfsFat


def mount(kind, flash):
    vfs.mount(system(kind)(flash), "/flash")


def umount():
    vfs.umount("/flash")
