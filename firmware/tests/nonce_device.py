# Runs in MicroPython: one life of a board, from power on to power off, that keeps a record of all
# that it seals (recording_device.py).
#
# argv: a JSON file. enrolment, record: paths. word: what this life alone publishes. acts: what it
# does. Besides, what its hardware is like: ticks (where they begin) and still (they stand), random
# (what the random source always gives), chip (its number); flash = [kind, image, cut, how], nvs =
# [path, cut, how]; broken: which defence is missing. unseen: no record, so that the ciphers are
# those for which publish has its fast path.
# mypy: ignore-errors
import json
import sys
import time
from binascii import unhexlify

from recording_device import recording
from sealmq_device import Client, entropy, joining, nvs
from sealmq_spec.errors import SealError

with open(sys.argv[1]) as f:
    told = json.loads(f.read())
WORD = told["word"]


# A power cut: no handler runs, nothing is closed.
def power_cut():
    import ffi

    ffi.open(None).func("v", "_exit", "i")(9)


def hardware():
    real = time.ticks_ms
    if "still" in told:
        entropy._ticks_ms = lambda: told["still"]
    elif "ticks" in told:
        off = told["ticks"] - real()
        entropy._ticks_ms = lambda: real() + off & 0x3FFFFFFF
    if "random" in told:
        entropy.urandom = lambda n: bytes((told["random"],)) * n
    if "chip" in told:
        entropy._HARDWARE = unhexlify(told["chip"])


# Boards as they must not be; each breaks a test.
def broken(how):
    if how == "constant salt":
        joining.salt = lambda boot, kg_nonce=b"": b"constant"
    elif how == "no salt":
        # As if the boot counter alone were to keep nonces apart.
        joining.salt = lambda boot, kg_nonce=b"": boot.to_bytes(8, "big")
    elif how == "restored session":
        joining.salt = restored_salt
    elif how == "counter behind":
        Client.publish = counting_behind


def restored_salt(boot, kg_nonce=b""):
    name = told["enrolment"] + ".salt"
    try:
        with open(name, "rb") as f:
            return f.read()
    except OSError:
        with open(name, "wb") as f:
            f.write(b"a secret")
        return b"a secret"


# The counter rises when the message was sent, not when it was sealed.
def counting_behind(c, *args, publish=Client.publish, **kw):
    ctr = c.session.ctr
    try:
        return publish(c, *args, **kw)
    except OSError:
        c.session.ctr = ctr
        raise


def board():
    make = None if told.get("unseen") else recording(told["record"])
    if "flash" in told:
        from flash_device import Flash, mount

        kind, image, cut, how = told["flash"]
        file = open(image, "r+b")
        data = bytearray(file.read())
        flash = Flash(kind, data, cut, how, file, power_cut)
        mount(kind, flash)
        return Client("/flash/sealmq.json", make, timeout=3), flash
    if "nvs" in told:
        import esp32_stand_in

        flash = esp32_stand_in.install(*told["nvs"], power_cut)
        return Client(nvs.NvsStore(), make, timeout=3), flash
    return Client(told["enrolment"], make, timeout=3), None


def do(c, act, n):
    word = WORD + str(n)
    if act == "connect":
        c.connect()
    elif act == "publish":
        c.publish("t/1", word)
        c.publish("t/2", word, qos=1)
    elif act == "burst":
        for i in range(24):
            c.publish("t/3", b"%s%d" % (word.encode(), i), qos=i & 1)
    elif act == "retain":
        c.publish("t/kept", word, retain=True, qos=1, life=20)
    elif act == "will":
        c.set_last_will("t/will", word.encode())
    elif act == "no will":
        c._will = None
    elif act == "subscribe":
        c.subscribe("t/#", 1)
    elif act == "unsubscribe":
        c.unsubscribe("t/#")
    elif act == "ask":
        c._send_control(c.session.ask_time(entropy.nonce(c.session.salt), c.mono()))
        c.ping()
        c.check_msg()
    elif act == "command":
        c._send_control(c.session.up(b"\x81\x01x" + word.encode(), c.mono()))
    elif act == "resend":
        c.resend()
    elif act == "disconnect":
        c.disconnect()
    elif act == "last ctr":
        c.session.ctr = 0xFFFFFB
    elif act == "last conn":
        c.session.conn = 0xFFFFFE
    elif act == "last boot":
        c._boot = 0xFFFFFE
        c.store.put_boot(0xFFFFFE)
    else:
        raise ValueError(act)


hardware()
broken(told.get("broken"))
c, flash = board()
c.set_callback(lambda message: None)
failed = []
for n, act in enumerate(told["acts"]):
    try:
        do(c, act, n)
    except (SealError, OSError) as error:
        failed.append("%s: %s %s" % (act, type(error).__name__, error))
s = c.session
said = {"failed": failed, "boot": s.boot, "ctr": s.ctr, "conn": s.conn, "gen": c.ident.gen}
said["ops"] = flash.ops if flash else 0
said["fast"] = c._quick is not None
print(json.dumps(said))
power_cut()
