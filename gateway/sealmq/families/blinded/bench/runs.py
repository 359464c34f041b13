"""The paper's runs (section "Performance evaluation"): one publisher, one subscriber, one message
at a time; its latencies by the paper's four times, with and without access control, by the size of
a message and by the number of a policy's rules.

    T1   the publisher begins: what it does before it sends counts (sealing)
    t1   the last byte of the PUBLISH is written
    t2   the last byte of the delivery is read
    T2   the subscriber has the payload: what it does with the packet counts (opening)

Publisher to subscriber is T2 - T1, the broker's is t2 - t1: mediator, Mosquitto, mediator, and the
loopback. Both clients are in this process, as the paper's were on one machine, so one clock says
all; QoS 0. In `blinded` each message comes under an event grant that was not published under
before, so that its policy is matched for it; `blinded-known` are the same grants once more.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from bench_print import Row, row
from load_brokers import HOST
from load_cpu import LoadError
from load_generator import Told
from load_generator import name as client
from load_rounds import load_now
from load_sites import LABEL, Scene, Variant

from sealmq.client.cipher import make
from sealmq.client.core import Core
from sealmq.client.events import Arrived, Event, Fault, Granted, Ready
from sealmq.client.events import Told as Noticed
from sealmq.client.foreign import Reader
from sealmq.client.opening import connect
from sealmq.client.outbox import Outbox
from sealmq.client.randomness import mono_ms, new_salt
from sealmq.kg.local import opened
from sealmq.mqtt import Connack, Decoder, Publish, QoS2Receiver, Suback, build
from sealmq.site.layout import Layout
from sealmq.site.model import Config
from sealmq_spec.const import MAX_PAYLOAD
from sealmq_spec.identity import Identity
from sealmq_spec.session import Session
from sealmq_spec.tlv import EMPTY, pack

from .. import MANIFEST, coded

KB = 1024
SIZES = (KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MAX_PAYLOAD)
"""The largest is what a message may have: a client refuses to seal more."""
RULES = (1, 2, 4, 8, 16, 32, 64)
RUNS = 1000
CASE_S = 12.0
"""How long one case may take: it then has fewer runs."""
QUICK = 5
PLAIN, LABELS, OURS, KNOWN = "plain", "labels", "blinded", "blinded-known"
_WRITER, _READER = client(0), client(1)
_WARM = 20
_PATIENCE_S = 30.0
_READ = 1 << 18
_UNDER_WAY = 16
BINS_MS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram's bins; what is slower is in a last one."""
MORE = "more"
PARTS = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}


class Case(NamedTuple):
    size: int
    rules: int

    @property
    def topic(self) -> str:
        return f"runs/{self.size:07d}/{self.rules:02d}"


CASES = (*(Case(size, 1) for size in SIZES), *(Case(KB, count) for count in RULES[1:]))


def _ident(case: Case, n: int) -> str:
    return f"{case.size:08x}{case.rules:02x}{n:06x}"


def kept(runs: int) -> str:
    """What the key generator keeps: for each case a policy of so many rules, the last of which
    holds, and an event grant for each run."""
    text = f'[customers.{_READER}]\nhas = ["a = 1 & b = 0"]\nwants = ["c = 1"]\n'
    text += '[types.runs]\nhas = ["c = 1"]\n'
    for case in CASES:
        let = ", ".join(f'"a = 1 & b = {n}"' for n in reversed(range(case.rules)))
        text += f'[policies."{case.topic}"]\nlet = [{let}]\n'
        for n in range(runs + _WARM):
            text += f'[[events]]\nid = "{_ident(case, n)}"\nclient = "{_WRITER}"\n'
            text += f'topic = "{case.topic}"\n'
    return text


class _Place(Scene):
    """A site, or a broker alone, without a load generator: the clients are here."""

    def __init__(self, variant: Variant, folder: Path, text: str = "") -> None:
        super().__init__(variant, folder, 2, 0)
        self._text = text

    def begin(self) -> Told:
        self._folder.mkdir(parents=True)
        return self._site() if self.variant.sealed else self._broker()

    def _configure(self, doc: Any) -> None:
        super()._configure(doc)
        doc["topics"] = {case.topic: LABEL for case in CASES}
        if self._text:
            doc["policy"]["order"] = [*MANIFEST.stands_on, MANIFEST.name]

    def _lent(self, layout: Layout, config: Config, key: Path) -> list[tuple[Told, str]]:
        if self._text:
            with opened(layout, config, key) as kg:
                kg.apply(config)
                kg.keep(MANIFEST.name, self._text.encode())
        return super()._lent(layout, config, key)


class _End:
    """One client's connection. `sock`: blocking, with a bound."""

    def __init__(self, told: Told) -> None:
        self.sock = socket.create_connection((HOST, told["port"]), _PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self) -> bytes:
        """Some bytes. LoadError: they do not come."""
        try:
            data = self.sock.recv(_READ)
        except TimeoutError:
            raise LoadError(f"nothing came for {_PATIENCE_S:.0f} s: a message was lost") from None
        if not data:
            raise LoadError("a connection was closed")
        return data

    def until(self, kind: type[Any]) -> None:
        """Read until something of this kind comes."""
        while not any(isinstance(one, kind) for one in self.take(self.read())):
            pass

    def close(self) -> None:
        self.sock.close()

    def subscribe(self, filt: str) -> None:
        raise NotImplementedError

    def publish(self, topic: str, payload: bytes, ident: str) -> bytes:
        """The packet."""
        raise NotImplementedError

    def take(self, data: bytes) -> Sequence[object]:
        """What it means."""
        raise NotImplementedError

    def payloads(self, data: bytes) -> list[bytes]:
        """Of the messages among it."""
        raise NotImplementedError


class _Plain(_End):
    """Of a broker alone."""

    def __init__(self, told: Told, number: int) -> None:
        super().__init__(told)
        self._decoder = Decoder(MAX_PAYLOAD + KB, role="client")
        ids = f"{told['ids']}runs-{number}"
        password = told["password"].encode()
        self.sock.sendall(build.connect(
            ids, clean_session=True, keepalive=0, username=told["user"], password=password
        ))  # fmt: skip
        self.until(Connack)

    def subscribe(self, filt: str) -> None:
        self.sock.sendall(build.subscribe(1, [(filt, 0)]))
        self.until(Suback)

    def publish(self, topic: str, payload: bytes, ident: str) -> bytes:
        return build.publish(topic.encode(), payload, 0, packet_id=0)

    def take(self, data: bytes) -> Sequence[object]:
        return list(self._decoder.feed(data))

    def payloads(self, data: bytes) -> list[bytes]:
        return [one.payload for one in self._decoder.feed(data) if isinstance(one, Publish)]


class _Sealed(_End):
    """Of a site: the host's own client, but for its tasks."""

    def __init__(self, told: Told, number: int) -> None:
        super().__init__(told)
        enrolment, dump = told["lent"][number]
        identity = Identity.from_enrolment(enrolment)
        if not identity.load(bytes.fromhex(dump)):
            raise LoadError("the key generator lent what is no identity")
        session = Session(identity, make, 1, new_salt(1, b""))
        self.refused: Counter[str] = Counter()
        reader = Reader(identity, make, 4)
        self._core = Core(session, reader, Outbox(), QoS2Receiver(), self.refused)
        hello = connect(session, f"runs-{number}", True, 0, None, False, 0, mono_ms())
        self.sock.sendall(hello)
        self.until(Ready)

    def subscribe(self, filt: str) -> None:
        _, packet = self._core.subscribe([(filt, 0)])
        self.sock.sendall(packet)
        self.until(Granted)

    def publish(self, topic: str, payload: bytes, ident: str) -> bytes:
        block = pack([(coded.TLV, bytes.fromhex(ident))]) if ident else EMPTY
        _, packet = self._core.publish(topic.encode(), payload, 0, False, 0, 0, mono_ms(), block)
        return packet

    def take(self, data: bytes) -> Sequence[object]:
        events: list[Event] = self._core.receive(data, mono_ms())
        for event in events:
            if isinstance(event, Fault | Noticed) or self.refused:
                raise LoadError(f"the site refuses: {event}, {dict(self.refused)}")
        out = self._core.take()
        if out:
            self.sock.sendall(out)
        return events

    def payloads(self, data: bytes) -> list[bytes]:
        came = [one.messages for one in self.take(data) if isinstance(one, Arrived)]
        return [message.payload for some in came for message in some]


class Times(NamedTuple):
    """Of one message, in nanoseconds."""

    T1: int
    t1: int
    t2: int
    T2: int


class Pair:
    """Publisher and subscriber. ids: whether they say policy ids."""

    def __init__(self, told: Told, ids: bool) -> None:
        kind = _Sealed if "lent" in told else _Plain
        self._ids = ids
        self.writer, self.reader = kind(told, 0), kind(told, 1)
        self.reader.subscribe("runs/#")

    def close(self) -> None:
        self.writer.close()
        self.reader.close()

    def one(self, case: Case, n: int, payload: bytes) -> Times:
        """One message, and its four times. LoadError: another one came."""
        now, ident = time.perf_counter_ns, _ident(case, n) if self._ids else ""
        first = now()
        packet = self.writer.publish(case.topic, payload, ident)
        self.writer.sock.sendall(packet)
        sent = now()
        got: list[bytes] = []
        came = sent
        while not got:
            data = self.reader.read()
            came = now()
            got = self.reader.payloads(data)
        last = now()
        if got != [payload]:
            raise LoadError(f"{case}: another message came")
        return Times(first, sent, came, last)

    def many(self, case: Case, runs: int, seconds: float, payload: bytes) -> list[Times]:
        """So many, one after the other; fewer when they take longer."""
        for n in range(_WARM):
            self.one(case, n, payload)
        found: list[Times] = []
        end = time.monotonic() + seconds
        while len(found) < runs and (time.monotonic() < end or not found):
            found.append(self.one(case, _WARM + len(found), payload))
        return found

    def stream(self, case: Case, runs: int, payload: bytes) -> float:
        """Messages a second, some of them under way at once: as many as fit in one read."""
        most = max(1, min(_UNDER_WAY, _READ // case.size))
        sent = got = 0
        began = time.perf_counter()
        while got < runs:
            while sent < runs and sent - got < most:
                ident = _ident(case, _WARM + sent) if self._ids else ""
                self.writer.sock.sendall(self.writer.publish(case.topic, payload, ident))
                sent += 1
            got += len(self.reader.payloads(self.reader.read()))
        return runs / (time.perf_counter() - began)


def runs(quick: bool, count: int | None, progress: Callable[[str], None]) -> list[Row]:
    """All cases of all variants."""
    most = QUICK if quick else count or RUNS
    seconds, load = (1.0 if quick else CASE_S), load_now()
    made: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="sealmq-runs-") as name:
        for variant, text in (
            (Variant(PLAIN, broker="mosquitto"), ""),
            (Variant(LABELS), ""),
            (Variant(OURS), kept(most)),
        ):
            with _running(_Place(variant, Path(name) / variant.name, text)) as told:
                pair = Pair(told, bool(text))
                cases = CASES if text else [case for case in CASES if case.rules == 1]
                for case in cases:
                    payload = bytes(case.size)
                    which = variant.name
                    found = pair.many(case, most, seconds, payload)
                    made += _rows(which, case, found, load)
                    if text:
                        which, found = KNOWN, pair.many(case, most, seconds, payload)
                        made += _rows(which, case, found, load)
                    rate = pair.stream(case, len(found), payload)
                    made.append(_row(which, case, "throughput", rate, "messages/s", len(found)))
                    progress(f"{variant.name}, {case.size} B, {case.rules} rules")
                pair.close()
    return made


@contextlib.contextmanager
def _running(place: _Place) -> Iterator[Told]:
    try:
        yield place.begin()
    finally:
        place.stop()


def _row(which: str, case: Case, measure: str, value: float, unit: str, n: int) -> Row:
    made = row(measure, which, round(value, 4), unit, n, case.size)
    made["params"] |= {"stage": "runs", "rules": case.rules}
    return made


def _rows(which: str, case: Case, found: Sequence[Times], load: float) -> list[Row]:
    made = []
    for measure, spans in (
        ("pub_to_sub", [one.T2 - one.T1 for one in found]),
        ("broker", [one.t2 - one.t1 for one in found]),
    ):
        ms = sorted(span / 1e6 for span in spans)
        one = _row(which, case, measure, mean(ms), "ms", len(ms))
        one["params"] |= {"load": load, "least": round(ms[0], 4), "most": round(ms[-1], 4)}
        made.append(one)
        for name in PARTS if case.rules == 1 else ("p50",):
            value = ms[min(len(ms) - 1, int(PARTS[name] * len(ms)))]
            made.append(_row(which, case, f"{measure}_{name}", value, "ms", len(ms)))
        if case == CASES[0]:
            for below, share in _histogram(ms).items():
                one = _row(which, case, f"{measure}_share", share, "part", len(ms))
                one["params"]["below"] = below
                made.append(one)
    return made


def _histogram(ms: Sequence[float]) -> dict[str, float]:
    """Which part is in each bin of BINS_MS, by its upper bound, and above."""
    counts = [0] * (len(BINS_MS) + 1)
    for value in ms:
        counts[next((n for n, top in enumerate(BINS_MS) if value < top), len(BINS_MS))] += 1
    names = [*(f"{top:g} ms" for top in BINS_MS), MORE]
    return {name: count / len(ms) for name, count in zip(names, counts, strict=True)}
