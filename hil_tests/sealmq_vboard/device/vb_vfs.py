# littlefs, out of reach of Ctrl-C. Here its block device is Python, where a KeyboardInterrupt may
# come; on a board littlefs always comes to its end. So each of its calls is made with the signal
# held back.
import io
import os as _host

from vb_host import guarded


class File(io.IOBase):
    def __init__(self, file):
        self._file = file

    def read(self, n=-1):
        return guarded(self._file.read, n)

    # With a length: at most so much.
    def readinto(self, buf, n=None):
        if n is None:
            return guarded(self._file.readinto, buf)
        return guarded(self._file.readinto, buf, n)

    def readline(self, n=-1):
        return guarded(self._file.readline, n)

    def readlines(self):
        return list(self)

    def write(self, *what):
        return guarded(self._file.write, *what)

    def seek(self, *where):
        return guarded(self._file.seek, *where)

    def tell(self):
        return guarded(self._file.tell)

    def flush(self):
        guarded(self._file.flush)

    def close(self):
        guarded(self._file.close)

    def ioctl(self, op, arg):
        if op == 1:
            self.flush()
        elif op == 4:
            self.close()
        else:
            return -1
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __iter__(self):
        return self

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line


# What os.mount takes; paths and errors are littlefs's own.
class VfsLfs2:
    def __init__(self, partition):
        self._fs = fs = _host.VfsLfs2(partition)
        self.mount = fs.mount
        self.umount = fs.umount
        self.getcwd = fs.getcwd
        self.statvfs = fs.statvfs

    def open(self, path, mode):
        return File(guarded(self._fs.open, path, mode))

    def ilistdir(self, path):
        return iter(guarded(lambda: list(self._fs.ilistdir(path))))

    def chdir(self, path):
        guarded(self._fs.chdir, path)

    def mkdir(self, path):
        guarded(self._fs.mkdir, path)

    def remove(self, path):
        guarded(self._fs.remove, path)

    def rename(self, old, new):
        guarded(self._fs.rename, old, new)

    def rmdir(self, path):
        guarded(self._fs.rmdir, path)

    def stat(self, path):
        return guarded(self._fs.stat, path)
