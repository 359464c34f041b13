# Runs in MicroPython: cuts the power at each operation of a store's life on littlefs and on FAT and
# looks at what the next start finds. Prints a line for each file system and kind of cut.
# mypy: ignore-errors
import sealmq_device.store
from flash_device import HOW, Cut, Flash, blank, mount, umount
from sealmq_device.store import FileStore

PATH = "/flash/sealmq.json"
ENROLMENT = b'{"sealmq": 1}'
OLD = b"old state" * 16
LIFE = (
    ("boot", 6),
    ("state", b"new state" * 16),
    ("boot", 7),
    ("state", b"newer one" * 16),
    ("boot", 8),
)

kept = []


# No file is ever collected: closing it then would need its chip.
def keep(name, mode):
    kept.append(open(name, mode))
    return kept[-1]


sealmq_device.store.open = keep


# The image of a board that has its enrolment, and where `used`, state and boot counter.
def prepared(kind, used):
    data = blank(kind)
    flash = Flash(kind, data)
    mount(kind, flash)
    with open(PATH, "wb") as f:
        f.write(ENROLMENT)
    if used:
        store = FileStore(PATH)
        store.boot()
        store.put_boot(5)
        store.put_state(OLD)
    flash.dead = True
    umount()
    return data


def do(store, what, value):
    if what == "boot":
        store.put_boot(value)
    else:
        store.put_state(value)


# Gives what was done, and what was being done when the power went.
def live(flash):
    done = []
    now = None
    try:
        store = FileStore(PATH)
        store.boot()
        for now in LIFE:
            do(store, *now)
            done.append(now)
        now = None
    except (Cut, OSError):
        # A file that is closed on the way out says that its chip does not answer.
        if not flash.dead:
            raise
    return done, now


def newest(done, what, before):
    for name, value in done:
        if name == what:
            before = value
    return before


class Findings:
    def __init__(self):
        self.cuts = 0
        # Neither the old one nor the new one.
        self.torn_boots = 0
        self.torn_states = 0
        self.lost = 0  # the enrolment is gone

    # What the next start finds behind a cut; then it goes on.
    def look(self, kind, data, used, done, now):
        self.cuts += 1
        flash = Flash(kind, data)
        try:
            mount(kind, flash)
        except OSError:
            self.lost += 1
            return
        self._look(used, done, now)
        flash.dead = True
        umount()

    def _look(self, used, done, now):
        store = FileStore(PATH)
        try:
            if store.enrolment() != {"sealmq": 1}:
                self.lost += 1
            boot = store.boot()
            state = store.state()
        except (OSError, ValueError):
            self.lost += 1
            return
        boots = [newest(done, "boot", 5 if used else 0)]
        states = [newest(done, "state", OLD if used else b"")]
        if now is not None:
            (boots if now[0] == "boot" else states).append(now[1])
        if boot not in boots:
            self.torn_boots += 1
            if boot:
                raise ValueError("boot %d was never stored" % boot)
        if state not in states:
            self.torn_states += 1
        store.put_boot(0xFFFFFF)
        store.put_state(b"behind it all" * 11)
        store = FileStore(PATH)
        if store.boot() != 0xFFFFFF or store.state() != b"behind it all" * 11:
            raise ValueError("what was stored behind the cut did not stay")


def cut_everywhere(kind, how):
    found = Findings()
    for used in (False, True):
        image = prepared(kind, used)
        data = bytearray(image)
        k = 1
        while True:
            data[:] = image
            flash = Flash(kind, data, k, how)
            mount(kind, flash)
            done, now = live(flash)
            over = not flash.dead
            flash.dead = True
            umount()
            if over:
                break
            found.look(kind, data, used, done, now)
            k += 1
    print(kind, how, found.cuts, found.torn_boots, found.torn_states, found.lost)


def wear():
    data = prepared("lfs2", True)
    flash = Flash("lfs2", data)
    mount("lfs2", flash)
    store = FileStore(PATH)
    store.boot()
    for n in range(1, 1001):
        store.put_boot(n)
    print("wear", flash.ops, flash.erases)
    flash.dead = True


for kind in ("lfs2", "fat"):
    for how in HOW:
        cut_everywhere(kind, how)
wear()
