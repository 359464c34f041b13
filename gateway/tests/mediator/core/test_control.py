"""Control packets of a client (SPEC.md 4.3, 4.4, 7.2): commands, names, records, time, roots."""

from __future__ import annotations

import os
from typing import Any

import pytest

from core_world import CONFIG, Peer, Shell, opened
from families.gate import Gate
from families.toy import Toy
from mediator_world import HIGH, LOW, NOW_MS, PANEL, SENSOR, SIBLING
from sealmq.aead import make
from sealmq.audit.events import check
from sealmq.families.api import FamilyRecord, Later, Proposal, Verdict, Who
from sealmq.kgtypes import Answer, KgDenied, KgUnauthentic, KgUnavailable
from sealmq.mediator.core.effects import AskTime, Commit, Lock, Provision, Unlock, Vouched, Yield
from sealmq.mqtt import Disconnect, Pingreq, Pingresp, Publish
from sealmq.store.errors import StoreFull, StoreUnavailable
from sealmq_spec.const import (
    OP_ASK_TIME,
    OP_COMMAND,
    OP_FETCH,
    OP_NAMES,
    OP_NOTICE,
    OP_RECORD,
    OP_REPLY,
    OP_TIME,
)
from sealmq_spec.keys import u24
from sealmq_spec.records import Roots, make_record


def replies(peer: Peer) -> list[tuple[int, bytes]]:
    """(ctr of the question, answer)."""
    return [said for op, said in peer.told if op == OP_REPLY]


def rules(peer: Peer) -> list[str]:
    """Of the notices that the client has."""
    return [said[3] for op, said in peer.told if op == OP_NOTICE]


# --- commands ---


def test_a_command_gets_to_its_family_and_holds_when_it_is_answered() -> None:
    gate = Gate()
    shell = Shell(gate)
    peer = opened(shell)
    peer.send(peer.command("gate", b"shut bill"))
    assert gate.shut == {"bill"}
    assert replies(peer) == [(peer.client.ctr, b"ok")]
    assert shell.store.rows[-1] == FamilyRecord("gate", "bill", b"shut", "sensor")
    (said,) = shell.audits("command")
    assert (said["client"], said["family"], said["detail"]) == ("sensor", "gate", "shut bill")
    assert shell.locked == set()


def test_a_command_that_a_family_refuses_is_named() -> None:
    shell = Shell(Toy())
    peer = opened(shell)
    peer.send(peer.command("toy", b"no number"))
    assert rules(peer) == ["toy.command"]
    assert (shell.locked, shell.audits("command")) == (set(), [])


def test_what_a_client_tells_of_an_attribute_is_stored_and_audited_as_a_change() -> None:
    table = '[attributes.contract]\nsource = "client"\nof = "subscriber"\nby = ["sensor"]\n'
    shell = Shell(Gate(), text=CONFIG + table + 'valid = "1h"\n')
    peer = opened(shell)
    peer.send(peer.command("attributes", b'{"name": "contract", "subject": "panel", "value": 1}'))
    until = NOW_MS + 3_600_000
    assert replies(peer) == [(peer.client.ctr, b'{"until": %d}' % until)]
    assert shell.site.engine.attributes.read("contract", "panel", until - 1).value == 1
    row = shell.store.rows[-1]
    assert isinstance(row, FamilyRecord)
    assert (row.family, row.key, row.client) == ("attributes", "contract\x1fpanel", "sensor")
    (said,) = shell.audits("attribute-changed")
    written, wrong = check(said.pop("event"), said)
    assert wrong == ""
    assert written == {
        "attribute": "contract",
        "client": "sensor",
        "subject": "panel",
        "value": "1",
        "until_ms": until,
    }
    assert shell.audits("command") == []
    peer.send(peer.command("attributes", b'{"name": "contract", "subject": "x", "value": 1}'))
    assert rules(peer) == ["engine.attribute-subject"]
    assert shell.locked == set()


def test_a_command_that_was_overtaken_does_not_overwrite_the_newer_one() -> None:
    """The network may hold one back: inside of the window, and fresh."""
    shell = Shell(Gate())
    peer = opened(shell)
    older = peer.command("gate", b"open bill")
    peer.send(peer.command("gate", b"shut bill"))
    peer.send(older)
    assert len(shell.store.rows) == 2  # the mark and the row
    assert rules(peer) == ["mediator.control.replay"]


@pytest.mark.parametrize("body", [b"", b"\x03to"], ids=["no name", "half a name"])
def test_a_command_without_its_name_is_malformed(body: bytes) -> None:
    shell = Shell(Gate())
    peer = opened(shell)
    peer.send(peer.up(bytes((OP_COMMAND,)) + body))
    assert rules(peer) == ["mediator.control.malformed"]


def test_a_family_s_name_that_is_no_text_is_malformed() -> None:
    peer = opened(Shell(Gate()))
    peer.send(peer.up(bytes((OP_COMMAND, 1, 0xFF)) + b"x"))
    assert rules(peer) == ["mediator.control.malformed"]


class Rows(Gate):
    """Says the client's name of the row that its command names; replaces nothing of another's."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, bytes] = {}
        self.asked = 0

    def apply(self, records: Any) -> Any:
        mine = [r for r in records if isinstance(r, FamilyRecord)]
        self.rows.update((r.key, r.value) for r in mine if r.value is not None)
        return ()

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict:
        self.asked += 1
        key, mine = body.decode(), who.client.encode()
        if self.rows.get(key, mine) != mine:
            return Verdict(False, "gate.shut", "it is another's")
        return Proposal((FamilyRecord(self.name, key, mine),), {"detail": key}, b"ok")


class Slow(Gate):
    """Its answer takes three slices more, and is `last`."""

    def __init__(self, last: Any) -> None:
        super().__init__()
        self.last = last
        self.slices = 0

    def command(self, who: Who, body: bytes, now_ms: int) -> Any:
        return Later(self._go_on)

    def _go_on(self) -> Any:
        self.slices += 1
        if self.slices < 3:
            return None
        if isinstance(self.last, Exception):
            raise self.last
        return self.last


@pytest.mark.parametrize(
    ("last", "rule"),
    [
        (Proposal((), None, b"ok"), None),
        (Verdict(False, "gate.shut", "not yours"), "gate.shut"),
        (ValueError("a defect"), "engine.exception"),
        (Later(lambda: None), "engine.bad-verdict"),
        (Proposal((FamilyRecord("other", "x", b""),)), "engine.bad-proposal"),
    ],
    ids=["answered", "refused", "failed", "for ever", "what is not its own"],
)
def test_a_command_that_takes_long_gives_others_a_turn_between_its_slices(
    last: Any, rule: str | None
) -> None:
    family = Slow(last)
    shell = Shell(family)
    slow, other = opened(shell), opened(shell, PANEL)
    shell.later = {Yield}
    slow.send(slow.command("gate", b"x"))
    for done in range(3):
        assert family.slices == done
        assert (replies(slow), rules(slow)) == ([], [])
        other.send(other.up(bytes((OP_FETCH,)) + bytes(3)))
        assert rules(other), "others are served"
        shell.answer(shell.asked.pop())
    assert family.slices == 3
    slow.take()
    assert rules(slow) == ([] if rule is None else [rule])
    assert [reply for _, reply in replies(slow)] == ([b"ok"] if rule is None else [])
    assert not shell.asked


def test_a_command_of_a_session_that_was_closed_is_worked_on_no_more() -> None:
    family = Slow(Proposal((), None, b"ok"))
    shell = Shell(family)
    slow = opened(shell)
    shell.later = {Yield}
    slow.send(slow.command("gate", b"x"))
    slow.session.close("disabled")
    shell.answer(shell.asked.pop())
    assert family.slices == 0
    assert not shell.asked
    assert shell.locked == set()


def test_what_a_command_was_judged_by_still_holds_when_it_is_stored() -> None:
    """Of two clients one must not replace what the other says, also while that is being written."""
    rows = Rows()
    shell = Shell(rows)
    first, second = opened(shell, SENSOR), opened(shell, PANEL)
    third = opened(shell, SIBLING)
    shell.later = {Commit}
    for peer, row in ((first, b"row"), (second, b"row"), (third, b"elsewhere")):
        peer.send(peer.command("gate", row))
    assert len(shell.asked) == 2, "only another row is written beside it"
    while shell.asked:
        shell.answer(shell.asked.pop())
    for peer in (first, second, third):
        peer.take()
    assert rows.rows == {"row": b"sensor", "elsewhere": b"sibling"}
    assert rules(second) == ["gate.shut"]
    assert [len(replies(peer)) for peer in (first, second, third)] == [1, 0, 1]
    assert shell.locked == set()
    assert rows.asked == 4, "once, and once more for the one that had to wait"


def test_rows_that_were_stored_before_the_lock_was_there_count() -> None:
    """Between two workers a lock is asked for, and what it was judged by may be over by then."""
    rows = Rows()
    shell = Shell(rows)
    peer = opened(shell)
    shell.later = {Lock}
    peer.send(peer.command("gate", b"row"))
    shell.answer()
    assert rows.asked == 1
    shell.site.engine.apply([FamilyRecord("gate", "row", b"panel")])
    shell.answer()
    peer.take()
    assert (rows.asked, rules(peer)) == (2, ["gate.shut"])


def test_a_fault_leaves_no_lock() -> None:
    shell = Shell(Rows())
    peer = opened(shell)
    shell.later = {Commit}
    peer.send(peer.command("gate", b"row"))
    with pytest.raises(RuntimeError, match="a defect"):
        shell.answer(None, RuntimeError("a defect"))
    shell.run()
    assert shell.locked == set()


def test_a_command_waits_until_rows_of_clients_that_are_gone_are_put_right() -> None:
    rows = Rows()
    shell = Shell(rows)
    peer = opened(shell)
    shell.rewriting = True
    peer.send(peer.command("gate", b"row"))
    assert rows.asked == 0, "it is judged by what holds then"
    shell.rewritten()
    peer.take()
    assert replies(peer) == [(peer.client.ctr, b"ok")]


def test_who_leaves_while_its_command_is_stored_leaves_a_record_and_no_lock() -> None:
    shell = Shell(Rows())
    peer = opened(shell)
    shell.later = {Commit}
    peer.send(peer.command("gate", b"row"))
    assert shell.locked == {("gate", "row")}
    peer.session.close("taken over")
    assert shell.locked == {("gate", "row")}, "it is still being written"
    shell.answer()
    assert (shell.locked, len(shell.audits("command"))) == (set(), 1)


def test_who_leaves_while_its_command_waits_changes_nothing() -> None:
    rows = Rows()
    shell = Shell(rows)
    first, second = opened(shell, SENSOR), opened(shell, PANEL)
    shell.later = {Commit}
    first.send(first.command("gate", b"row"))
    second.send(second.command("gate", b"row"))
    second.session.close("taken over")
    shell.answer()
    assert (rows.rows, shell.locked, len(shell.asked)) == ({"row": b"sensor"}, set(), 0)


def test_a_command_that_cannot_be_stored_frees_its_rows() -> None:
    shell = Shell(Rows())
    peer = opened(shell)
    shell.later = {Commit}
    peer.send(peer.command("gate", b"row"))
    shell.answer(None, StoreUnavailable("/secret/path"))
    peer.take()
    assert rules(peer) == ["mediator.command.unavailable"]
    assert "secret" not in peer.told[-1][1][4]
    assert (shell.locked, shell.audits("command")) == (set(), [])


def test_a_command_for_which_there_is_no_room_is_refused_and_told_the_bound() -> None:
    shell = Shell(Gate())
    peer = opened(shell)
    shell.later = {Commit}
    peer.send(peer.command("gate", b"shut bill"))
    shell.answer(None, StoreFull("3 rows at most ([limits] rows)"))
    peer.take()
    assert rules(peer) == ["mediator.command.full"]
    assert peer.told[-1][1][2:] == (5, "mediator.command.full", "3 rows at most ([limits] rows)")
    assert (shell.locked, shell.audits("command")) == (set(), [])


def test_commands_keep_their_order_and_hold_back_what_is_published_after_them() -> None:
    shell = Shell(Rows())
    peer = opened(shell)
    shell.later = {Commit}
    peer.send(peer.command("gate", b"one"))
    peer.send(peer.command("gate", b"two"))
    peer.send(peer.message())
    peer.send(Pingreq())
    assert (len(shell.asked), shell.forwards()) == (1, [])
    assert peer.got == [Pingresp()]
    shell.answer()
    assert (len(shell.asked), shell.forwards()) == (1, [])
    shell.answer()
    peer.take()
    assert len(shell.forwards()) == 1
    assert [ctr for ctr, _ in replies(peer)] == [1, 2]


def test_what_was_counted_of_readers_of_a_topic_is_written_before_its_command() -> None:
    class Topical(Gate):
        def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict:
            return Proposal((), {"topic": "a/#"}, b"ok")

    shell = Shell(Topical())
    peer = opened(shell)
    peer.send(peer.command("gate", b"x"))
    (said,) = shell.audits("command")
    assert (said["topic"], said["parted"]) == ("a/#", True)


# --- other operations ---


def names(peer: Peer, label: int, client: int) -> list[str]:
    """What the mediator says they are called."""
    peer.send(peer.up(bytes((OP_NAMES,)) + u24(label) + u24(client)))
    ctr, rest = replies(peer)[-1]
    assert ctr == peer.client.ctr
    texts = []
    while rest:
        texts.append(rest[1 : 1 + rest[0]].decode())
        rest = rest[1 + rest[0] :]
    return texts


def test_a_reader_is_told_the_names_of_labels_and_clients_at_or_below_its_own() -> None:
    shell = Shell()
    clients, labels = shell.site.ring.clients, shell.site.ring.labels
    above, below = opened(shell, PANEL), opened(shell, SENSOR)
    assert names(above, LOW, SENSOR) == [labels[LOW].name, clients[SENSOR].name]
    assert names(below, LOW, SIBLING) == [labels[LOW].name, clients[SIBLING].name]
    # Nobody learns of whom it could not read, by whatever label it asks.
    assert names(below, HIGH, PANEL) == ["", ""]
    assert names(below, LOW, PANEL) == [labels[LOW].name, ""]
    assert names(above, 9999, 9999) == ["", ""]


@pytest.mark.parametrize("size", [0, 3, 5, 7, 33 * 6])
def test_a_question_for_names_of_another_length_is_malformed(size: int) -> None:
    peer = opened(Shell(), PANEL)
    peer.send(peer.up(bytes((OP_NAMES,)) + bytes(size)))
    assert (replies(peer), rules(peer)) == ([], ["mediator.control.malformed"])


def test_a_reader_gets_the_records_that_lead_to_a_label_below_and_no_others() -> None:
    shell = Shell()
    above, below = opened(shell, PANEL), opened(shell, SENSOR)
    above.send(above.up(bytes((OP_FETCH,)) + u24(LOW)))
    assert (OP_RECORD, shell.world.record) in above.told
    below.send(below.up(bytes((OP_FETCH,)) + u24(HIGH)))
    assert rules(below) == ["mediator.control.denied"]


def with_back_links(shell: Shell, count: int) -> None:
    """The label below has had so many epochs."""
    low = shell.world.low
    links = shell.site.ring.back_links.setdefault(LOW, {})
    for epoch in range(1, count + 1):
        older = Roots(LOW, epoch, low.suite, os.urandom(32), os.urandom(32))
        fresh = os.urandom(8), os.urandom(8), 5, 0, os.urandom(12)
        links[epoch] = make_record(make, shell.world.site, low, older, *fresh)


def test_records_that_are_asked_for_go_out_in_pieces_as_fast_as_they_are_taken() -> None:
    """One read may bring thousands of such questions: their answers held up all clients for
    seconds, and filled memory.
    """
    shell = Shell()
    peer, other = opened(shell, PANEL), opened(shell, SENSOR)
    with_back_links(shell, 64)
    shell.later = {Yield}
    asked = [peer.up(bytes((OP_FETCH,)) + u24(LOW)) for _ in range(3)]
    peer.session.receive(*asked)
    shell.run()
    most = 0
    for turn in range(100):
        before = len(peer.told)
        peer.take()
        most = max(most, len(peer.told) - before)
        if turn == 1:
            peer.session.writable(False)
        if not shell.asked:
            assert peer.session.state == "open"
            peer.session.writable(True)
            shell.run()
            if not shell.asked:
                break
        other.send(Pingreq())
        assert other.got.pop() == Pingresp(), "others are served"
        shell.answer(shell.asked.pop())
        if turn == 1:
            assert not shell.asked, "it waits until the socket takes more"
    assert most <= 16
    assert [op for op, _ in peer.told].count(OP_RECORD) == 3 * 65
    assert not shell.asked


def test_who_ends_while_records_wait_for_its_socket_is_asked_nothing_more() -> None:
    shell = Shell()
    peer = opened(shell, PANEL)
    shell.later = {Yield}
    peer.session.writable(False)
    peer.send(peer.up(bytes((OP_FETCH,)) + u24(LOW)))
    assert not shell.asked
    peer.session.close("gone")
    shell.run()
    assert not shell.asked
    assert not peer.session._tasks
    assert not peer.session.gate


def test_who_goes_without_taking_its_records_goes() -> None:
    """Its socket never takes more; what it sent before still waited for that."""
    shell = Shell()
    peer = opened(shell, PANEL)
    peer.session.writable(False)
    peer.send(peer.up(bytes((OP_FETCH,)) + u24(LOW)))
    peer.send(Disconnect())
    assert peer.session.state == "open"
    peer.session.lost("reset")
    shell.run()
    assert peer.session.state == "closed"
    assert shell.audits("disconnect")[-1]["clean"]


@pytest.mark.parametrize("blob", [None, b"sealed time"])
def test_a_client_is_told_the_time_with_the_key_generator_s_where_that_is_there(
    blob: bytes | None,
) -> None:
    shell = Shell()
    shell.later = {AskTime}
    peer = opened(shell)
    nonce = os.urandom(16)
    peer.send(peer.up(bytes((OP_ASK_TIME,)) + nonce))
    (asked,) = shell.asked
    assert asked.effect.nonce == nonce
    sent: list[bytes] = []
    peer.session.down = sent.append  # type: ignore[method-assign, assignment]
    shell.answer(None, blob)
    assert sent[0][:17] == bytes((OP_TIME,)) + nonce
    assert int.from_bytes(sent[0][17:23], "big") == NOW_MS
    assert (blob or b"") in sent[0]


@pytest.mark.parametrize(
    ("packet", "rule"),
    [
        (Publish("!c1", b"!c1", b"\x14x", 1, False, False, 1), "malformed"),
        (Publish("!c1", b"!c1", b"\x14x", 0, True), "malformed"),
        (Publish("!c1", b"!c1", b"\x99x"), "malformed"),
        (Publish("!c1", b"!c1", b""), "malformed"),
        (Publish("!c1", b"!c1", b"\x14\x20\0\0\1" + bytes(40)), "unsupported"),
        (Publish("!c1", b"!c1", b"\x14" + bytes(20_000)), "toolarge"),
    ],
    ids=["QoS 1", "RETAIN", "first byte", "empty", "suite", "size"],
)
def test_what_is_no_control_packet_is_refused_and_never_acknowledged(
    packet: Publish, rule: str
) -> None:
    peer = opened(Shell())
    peer.send(packet)
    assert rules(peer) == [f"mediator.control.{rule}"]
    assert (peer.got, peer.shell.forwards()) == ([], [])


def test_a_control_packet_that_came_before_is_a_repeat() -> None:
    peer = opened(Shell(), PANEL)
    packet = peer.up(bytes((OP_NAMES,)) + u24(LOW) + u24(SENSOR))
    peer.send(packet)
    peer.send(packet)
    assert len(replies(peer)) == 1
    assert rules(peer) == ["mediator.control.replay"]


def test_an_operation_that_nobody_knows_is_unsupported() -> None:
    peer = opened(Shell())
    peer.send(peer.up(b"\xfe"))
    assert rules(peer) == ["mediator.control.unsupported"]


# --- provisioning ---


def answered(client: int = SENSOR, gen: int = 2) -> Answer:
    return Answer(b"\x1b the answer", client, 1, gen, [])


def test_roots_are_asked_for_beside_what_is_published() -> None:
    shell = Shell()
    peer = opened(shell)
    shell.later = {Provision}
    packet = peer.request()
    peer.send(packet)
    peer.send(peer.message())
    assert len(shell.forwards()) == 1
    (asked,) = shell.asked
    assert asked.effect.request == packet.payload
    sent: list[bytes] = []
    peer.session.write = sent.append  # type: ignore[method-assign, assignment]
    shell.answer(None, answered())
    assert b"the answer" in sent[0]


@pytest.mark.parametrize("client", [SENSOR, PANEL])
def test_an_answer_for_another_client_changes_nothing_for_the_connections_own(client: int) -> None:
    shell = Shell()
    peer = opened(shell)
    shell.later = {Provision}
    peer.send(peer.request())
    held: list[int] = []
    sent: list[bytes] = []

    def note(gen: int) -> bool:
        held.append(gen)
        return False

    peer.session.answered = note  # type: ignore[method-assign]
    peer.session.write = sent.append  # type: ignore[method-assign, assignment]
    shell.answer(None, answered(client))
    assert b"the answer" in sent[0]
    assert held == ([2] if client == SENSOR else [])


def test_one_request_at_a_time_and_five_a_minute() -> None:
    shell = Shell()
    peer = opened(shell)
    shell.later = {Provision}
    peer.send(peer.request())
    peer.send(peer.request())
    assert rules(peer) == ["mediator.control.ratelimited"]
    for _ in range(3):
        shell.answer(None, KgUnavailable("away"))
        peer.send(peer.request())
    shell.answer(None, KgUnavailable("away"))
    peer.send(peer.request())
    assert rules(peer)[-1] == "mediator.control.ratelimited"
    assert not shell.asked
    shell.site.mono_s += 60
    peer.send(peer.request())
    assert len(shell.asked) == 1


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (KgDenied("x"), "denied"),
        (KgUnauthentic("x"), "unauthentic"),
        (KgUnavailable("x"), "unavailable"),
    ],
)
def test_a_refusal_of_the_key_generator_is_told(error: Exception, rule: str) -> None:
    shell = Shell()
    peer = opened(shell)
    shell.later = {Provision}
    peer.send(peer.request())
    shell.answer(None, error)
    peer.take()
    assert rules(peer) == [f"mediator.control.{rule}"]


def test_in_quarantine_a_refusal_ends_the_connection_and_an_answer_vouches() -> None:
    for error in (None, KgUnauthentic("x")):
        shell = Shell()
        shell.later = {Provision}
        peer = Peer(shell, SENSOR)
        peer.client.ident.gen = 0
        peer.send(peer.hello_without_roots())
        peer.send(peer.request())
        written: list[bytes] = []
        peer.session.write = written.append  # type: ignore[method-assign, assignment]
        shell.answer(None, error or answered())
        assert peer.ended is (error is not None)
        assert shell.of(Vouched) == ([] if error else [Vouched(SENSOR)])
        assert len(written) == (0 if error else 1)


def test_a_secret_of_before_a_rotation_is_told_apart() -> None:
    shell = Shell()
    snapshot = shell.world.snapshot()
    snapshot["clients"][0]["ended"] = 1
    snapshot["clients"][0]["links"][0]["gen"] = 2
    peer = opened(shell, PANEL)
    shell.site.ring = type(shell.site.ring)(shell.world.site, 9, snapshot)
    peer.client.ident.client = SENSOR
    shell.later = {Provision}
    peer.send(peer.request())
    peer.client.ident.client = PANEL
    shell.answer(None, KgUnauthentic("x"))
    peer.take()
    assert rules(peer) == ["mediator.control.ended"]


def test_who_left_hears_of_no_answer() -> None:
    shell = Shell()
    peer = opened(shell)
    shell.later = {Provision}
    peer.send(peer.request())
    peer.session.close("lost")
    shell.answer(None, answered())
    assert peer.session.out == []
    assert shell.of(Unlock) == []
