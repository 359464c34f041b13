"""The parts of `sealmq agent` that need no site: discovery, properties, the configuration, the
shared keys. What waits on disk: test_agent_store.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sealmq.agent.account import seat_id
from sealmq.agent.config import BadConfig, read, read_password
from sealmq.agent.discovery import Discovery
from sealmq.agent.run import Agent, _private
from sealmq.agent.wallet import Wallet
from sealmq.agent.wire import Bye, Five, Hello, Opening, Pub, Refusal, Sub, Three
from sealmq.client import How, Message
from sealmq.client.errors import Exposed
from sealmq.families.filters import covers
from sealmq.mqtt import FilterWishes, ProtocolError, build
from sealmq.mqtt import five as v5
from sealmq_spec.errors import Malformed
from sealmq_spec.identity import Identity
from sealmq_spec.records import Roots

# --- discovery -----------------------------------------------------------------------------------

OURS = Discovery(senders={"boiler": ["heat/+/boiler/#"], "all": ["#"]})


def entity(sender: str) -> str:
    return f"homeassistant/sensor/{sender}/x/config"


@pytest.mark.parametrize(
    ("sender", "said"),
    [
        ("boiler", {"state_topic": "heat/1/boiler/t"}),
        ("boiler", {"~": "heat/1/boiler", "stat_t": "~/t", "cmd_t": "heat/1/boiler/~"}),
        ("boiler", {"~": "heat/1/boiler", "cmps": {"a": {"stat_t": "~/t"}}}),
        ("boiler", {"availability": [{"t": "heat/1/boiler/up"}], "name": "door/open"}),
        ("boiler", {"state_topic": None}),
        ("boiler", {}),
        ("all", {"command_topic": "door/open"}),
        ("pump", {"command_topic": "cellar/pump/set"}),
        ("pump", {"device": {"name": "x"}, "components": {"a": {"stat_t": "pump/a"}}}),
    ],
)
def test_a_discovery_message_may_name_its_sender_s_topics(sender: str, said: Any) -> None:
    assert OURS.judge(sender, entity(sender), json.dumps(said).encode()) is None


UNCLEAR = [
    ("boiler", '{"command_topic": "door/open"}'),
    ("boiler", '{"cmd_t": "~/open", "~": "door"}'),
    ("boiler", '{"cmd_t": "heat/1/boiler/~", "~": "../x", "stat_t": "~"}'),
    ("boiler", '{"~": "heat/1/boiler", "cmps": {"a": {"~": "heat/1/boiler", "cmd_t": "~/x"}}}'),
    ("boiler", '{"~": 7, "x": {"~": "heat/1/boiler"}, "command_topic": "door/open/~"}'),
    ("boiler", '{"~": ["heat/1/boiler"], "stat_t": "~/t"}'),
    ("boiler", '{"cmps": {"a": {"b": [{"command_topic": "door/open"}]}}}'),
    ("boiler", '{"command_topic": ["heat/1/boiler/t"]}'),
    ("boiler", '{"command_topic": {"t": "heat/1/boiler/t"}}'),
    ("boiler", '{"state_topic": "heat/#"}'),
    ("boiler", '{"state_topic": "heat/1/boiler/t", "state_topic": "door/open"}'),
    ("boiler", '{"state_topic": "~/x"}'),
    ("boiler", '{"state_topic": 7}'),
    ("boiler", "[" * 4000),
    ("boiler", '["heat/1/boiler/t"]'),
    ("boiler", "not json"),
    ("boiler", '{"name": "%s"}' % ("x" * 128 * 1024)),
    ("pump", '{"command_topic": "cellar/other/set"}'),
    ("pump", '{"state_topic": "pump/+"}'),
    ("", '{"state_topic": "a//b"}'),
]


@pytest.mark.parametrize(("sender", "payload"), UNCLEAR)
@pytest.mark.parametrize("topic", ["%s/config", "device/n/%s/config", "a/b/%s/c/d/config"])
@pytest.mark.parametrize("prefix", ["homeassistant", "a/b"])
def test_a_discovery_message_that_names_others_topics_or_is_unclear_is_refused(
    sender: str, payload: str, topic: str, prefix: str
) -> None:
    judge = Discovery(prefix, OURS.senders).judge
    refusal = judge(sender, f"{prefix}/sensor/{topic % sender}", payload.encode())
    assert refusal is not None
    assert refusal.rule == "agent.discovery"
    assert len(refusal.reason) < 1000


def test_a_key_that_stands_twice_is_read_differently_by_others_and_refused() -> None:
    twice = b'{"command_topic": "door/open", "command_topic": "heat/1/boiler/set"}'
    assert OURS.judge("boiler", entity("boiler"), twice) is not None


def test_many_topics_with_a_base_take_no_longer_than_they_are_long() -> None:
    """Steps are counted, not time: a base for each topic was 10^8 of them."""
    steps = 0

    def owns(*_: object) -> bool:
        nonlocal steps
        steps += 1
        return True

    many: dict[str, Any] = {"~": "heat/1/boiler"}
    many |= {f"{n}_t": "~" for n in range(4000)} | {"x": [{"y": "~"}] * 4000}
    judged = Discovery(senders={"boiler": ["#"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Discovery, "_owns", owns)
        assert judged.judge("boiler", entity("boiler"), json.dumps(many).encode()) is None
    assert steps == 4000


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"stat_t": "heat/1/boiler/t"}'])
def test_an_entity_is_replaced_and_removed_by_its_own_sender(payload: bytes) -> None:
    """Whoever has an entry, too; and where an entry names what a bridge of others' devices has."""
    for topic in ("sensor/boiler/config", "sensor/boiler/t/config", "sensor/t/boiler/config"):
        assert OURS.judge("boiler", f"homeassistant/{topic}", payload) is None
    for topic in ("sensor/pump/t/config", "boiler/pump/config", "boiler/config", "config"):
        assert OURS.judge("boiler", f"homeassistant/{topic}", payload) is not None
    assert OURS.judge("", "homeassistant/sensor//config", payload) is not None
    several = Discovery(senders={"zigbee": ["zigbee/#", "homeassistant/+/0x1/+/config"]})
    assert several.judge("zigbee", "homeassistant/light/0x1/l/config", b"{}") is None
    assert several.judge("zigbee", "homeassistant/light/0x2/l/config", b"{}") is not None


def test_other_messages_are_not_judged() -> None:
    for topic in ("homeassistant/status", "home/x/config", "homeassistant/sensor/x/state"):
        assert OURS.judge("boiler", topic, b'{"command_topic": "door/open"}') is None


@pytest.mark.parametrize(
    ("outer", "inner", "right"),
    [
        ("#", "a/b", True), ("a/#", "a", True), ("a/+", "a/b", True), ("a/+", "a/+", True),
        ("a/b", "a/+", False), ("a/+", "a/#", False), ("a/+", "a", False), ("a", "a/b", False),
        ("a/#", "b/a", False), ("+/b", "a/c", False),
    ],
)  # fmt: skip
def test_a_filter_covers_what_it_says(outer: str, inner: str, right: bool) -> None:
    assert covers(outer, inner) is right


# --- properties ----------------------------------------------------------------------------------


def connect5(properties: bytes = b"\0", flags: int = 2) -> bytes:
    body = b"\0\4MQTT\5" + bytes((flags,)) + b"\0\x3c" + properties + b"\0\2id"
    return build.packet(0x10, body)


def five(properties: bytes = b"\0") -> tuple[Five, Hello]:
    found = Opening().feed(connect5(properties))
    assert found is not None
    dialect, data = found
    assert isinstance(dialect, Five)
    [hello] = dialect.feed(data)
    assert isinstance(hello, Hello)
    return dialect, hello


def publish5(properties: v5.Properties) -> Pub:
    dialect, _ = five()
    [pub] = dialect.feed(v5.publish("a/b", b"x", 1, False, False, 7, properties))
    assert isinstance(pub, Pub)
    return pub


def test_a_property_that_lies_or_has_no_room_is_refused_not_left_out() -> None:
    for properties in (
        {v5.USER: [("sealmq-sender", "somebody")]},
        {v5.USER: [("sealmq-age", "0")]},
        {v5.USER: [("anything", "1")]},
        {v5.CONTENT_TYPE: "text"},
        {v5.RESPONSE_TOPIC: "a"},
    ):
        assert publish5(properties).fault, properties
    assert publish5({v5.EXPIRY: 60}).expiry == 60
    assert publish5({v5.USER: [("put-attribute", "speed=1")]}).put == {"attribute": ["speed=1"]}
    dialect, _ = five()
    twice = v5.put_properties({v5.USER: [("purpose", "a"), ("purpose", "b")]})
    [asked] = dialect.feed(build.packet(0x82, b"\0\1" + twice + b"\0\1a\0"))
    assert isinstance(asked, Sub)
    assert asked.faults[0]
    method = v5.put_properties({v5.AUTH_METHOD: "SCRAM"})
    assert five(method)[1].fault


@pytest.mark.parametrize(("code", "will"), [(0, False), (4, True), (0x80, True)])
def test_a_disconnect_that_is_not_in_order_sends_the_will(code: int, will: bool) -> None:
    dialect, _ = five()
    [bye] = dialect.feed(v5.disconnect(code))
    assert isinstance(bye, Bye)
    assert bye.will is will


def test_what_is_told_of_a_message_is_what_the_message_proves() -> None:
    dialect, _ = five()
    m = Message("a/b", b"x", "control", "boiler", 3, How.RETAINED, 1, True)
    packet = dialect.message(m, 9, 1, False)
    for name, value in (("sender", "boiler"), ("label", "control"), ("age", "3")):
        assert v5.put_properties({v5.USER: [(f"sealmq-{name}", value)]})[1:] in packet
    # A client that takes no more than this gets nothing, rather than a part.
    small, _ = five(v5.put_properties({v5.MAX_PACKET: 40}))
    assert small.message(m, 9, 1, False) == b""


def test_a_refusal_is_told_as_far_as_the_client_s_mqtt_can() -> None:
    no = Refusal("denied", "labels.publish.other-label", "the topic has m1")
    dialect, _ = five()
    assert no.rule.encode() in dialect.ack("PUBACK", 7, no)
    assert dialect.ack("PUBACK", 7, no)[4] == 0x87
    quiet, _ = five(b"\2\x17\0")
    assert no.rule.encode() not in quiet.ack("PUBACK", 7, no)
    asked = Sub(True, 5, (("a", 1), ("b", 1)))
    assert Three().granted(asked, [1, no]) == build.suback(5, [1, 0x80])
    assert not Three().tells
    assert Three().connack(False, Refusal("password", "", ""), "") == b"\x20\2\0\4"


def test_a_client_is_to_come_again_where_the_site_or_the_agent_is_away() -> None:
    """libmosquitto does not after a DISCONNECT, and mosquitto_sub forgets what it holds."""
    dialect, _ = five()
    for kind in ("away", "ending"):
        assert dialect.goodbye(Refusal(kind, "", "later")) == b""
    assert dialect.goodbye(Refusal("taken over", "", "another"))[2] == 0x8E


@pytest.mark.parametrize(
    ("expiry", "most", "window"),
    [(0, None, 20), (60, None, 20), (0, 20, 20), (60, 20, 10), (60, 1, 1), (0, 1, 1)],
)
def test_a_session_that_is_kept_has_half_the_window_that_its_client_takes(
    expiry: int, most: int | None, window: int
) -> None:
    """libmosquitto counts what comes again in another connection twice."""
    said: dict[int, object] = {v5.SESSION_EXPIRY: expiry}
    if most is not None:
        said[v5.RECEIVE_MAX] = most
    assert five(v5.put_properties(said))[1].window == window


def test_options_of_a_subscription_are_taken_and_no_local_of_a_shared_one_is_not() -> None:
    dialect, _ = five()
    for options, wishes in (
        (0x04, FilterWishes(no_local=True, identifier=1)),
        (0x08, FilterWishes(as_published=True, identifier=1)),
        (0x11, FilterWishes(retained=1, identifier=1)),
        (0x22, FilterWishes(retained=2, identifier=1)),
    ):
        body = b"\0\1\2\x0b\1\0\1a" + bytes((options,))
        [asked] = dialect.feed(build.packet(0x82, body))
        assert isinstance(asked, Sub)
        assert (asked.faults, asked.wishes) == ((), (wishes,))
    with pytest.raises(ProtocolError, match="no local"):
        dialect.feed(build.packet(0x82, b"\0\1\0\0\x0a$share/g/a\4"))


OLD = build.connect("id").replace(b"\0\4MQTT\4", b"\0\6MQIsdp\3").replace(b"\x10\x0e", b"\x10\x10")


@pytest.mark.parametrize(
    "data", [b"\x30\0", b"GET / HTTP/1.1", b"\x16\3\1", OLD, b"\x10" + b"\xff" * 5]
)
def test_whoever_speaks_no_mqtt_of_these_versions_is_not_listened_to(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        listened(data)


def listened(data: bytes) -> None:
    found = Opening().feed(data)
    if found is not None:
        found[0].feed(found[1])


# --- the configuration ---------------------------------------------------------------------------


def config(folder: Path, listen: str, rest: str = "", password: bool = True, more: str = "") -> Any:
    secret = folder / "pw"
    secret.write_text("long enough\n")
    secret.chmod(0o600)
    file = folder / "agent.toml"
    word = 'password_file = "pw"\n' if password else ""
    file.write_text(
        f'listen = ["{listen}"]\n{more}\n[users.ha]\nenrolment = "e.json"\n{word}{rest}'
    )
    return read(file)


def test_only_who_may_is_let_in_by_a_configuration(tmp_path: Path) -> None:
    for text in ("./run.sock", str(tmp_path / "run.sock")):
        assert config(tmp_path, text, password=False).doors[0].path == tmp_path / "run.sock"
    assert config(tmp_path, "127.0.0.1:1884").users["ha"].password == b"long enough"
    assert config(tmp_path, "localhost:1884").doors[0].host == "127.0.0.1"
    assert config(tmp_path, "127.0.0.1:1", password=False, more="anonymous = true").anonymous
    tls = 'certificate = "c"\nkey = "k"'
    assert config(tmp_path, "0.0.0.0:1884", more=tls).doors[0].outside
    for listen, password, more in (
        ("127.0.0.1:1884", False, ""),
        ("ws://127.0.0.1:1884", False, ""),
        ("0.0.0.0:1884", True, ""),
        ("[::]:1884", True, ""),
        ("0.0.0.0:1884", False, tls),
        ("0.0.0.0:1884", True, tls + "\nanonymous = true"),
        ("192.168.1.2:1884", True, 'certificate = "c"'),
        ("gateway.example:1884", True, ""),
        ("127.0.0.1", True, ""),
        ("127.0.0.1:1884", True, 'orgins = ["x"]'),
    ):
        with pytest.raises(BadConfig):
            config(tmp_path, listen, password=password, more=more)
    for rest in (
        "client = 7\n",
        'site = "s"\nclient = "c"\n',
        'say = {nothing = "x"}\n',
        '[users.ha.discovery.senders]\nx = ["a#"]\n',
        '[users.b]\nenrolment = "e.json"\npassword_file = "pw"\n',
    ):
        with pytest.raises(BadConfig):
            config(tmp_path, "127.0.0.1:1884", rest)


def test_a_password_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_text("long enough\n")
    file.chmod(0o640)
    with pytest.raises(BadConfig, match="read by others"):
        read_password(file)
    file.chmod(0o600)
    assert read_password(file) == b"long enough"
    file.write_text("short\n")
    with pytest.raises(BadConfig):
        read_password(file)
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(BadConfig):
        read_password(link)
    folder = tmp_path / "spool"
    folder.mkdir(0o755)
    folder.chmod(0o755)
    with pytest.raises(BadConfig):
        _private(folder)


def test_an_enrolment_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text("{}")
    user = config(tmp_path, "127.0.0.1:1884").users["ha"]
    for mode in (0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(Exposed, match=f"{mode:04o}"):
            asyncio.run(Wallet.of(user))
    file.chmod(0o600)
    with pytest.raises(Malformed):
        asyncio.run(Wallet.of(user))


def test_a_user_s_name_and_password_let_in_and_nothing_else_does(tmp_path: Path) -> None:
    two = '[users.plc]\nenrolment = "p.json"\npassword_file = "pw2"\n'
    (tmp_path / "pw2").write_text("another one\n")
    (tmp_path / "pw2").chmod(0o600)
    agent = Agent(config(tmp_path, "127.0.0.1:1884", two))

    class Account:
        def __init__(self, user: Any) -> None:
            self.user = user

    agent._accounts = {n: Account(u) for n, u in agent._config.users.items()}  # type: ignore[misc]
    right = agent.account_of("ha", b"long enough")
    assert right is not None
    assert right.user.name == "ha"
    for user, password in (
        ("ha", None), ("ha", b""), ("ha", b"another one"), ("plc", b"long enough"),
        (None, b"long enough"), ("", b""), ("nobody", b"long enough"), ("nobody", None),
    ):  # fmt: skip
        assert agent.account_of(user, password) is None, (user, password)


# --- keys -----------------------------------------------------------------------------------------


def test_connections_of_one_enrolment_share_its_newest_roots_and_never_a_boot() -> None:
    class File:
        saved: tuple[int, int] = (0, 0)

        def open(self, identity: Identity) -> tuple[int, bytes]:
            return 4, b"n" * 12

        def save(self, identity: Identity, boot: int, kg_nonce: bytes) -> None:
            File.saved = identity.gen, boot

        def close(self) -> None: ...

    def of(gen: int) -> Identity:
        made = Identity(b"site", 7, 1, bytes(range(32)), "x")
        made.gen, made.km = gen, bytes(32)
        made.own = Roots(3, 1, 1, bytes(32), bytes(32))
        return made

    wallet = Wallet(of(3), "h", 1, File(), None)
    assert wallet.open(of(3))[0] == 4
    wallet.save(of(3), 5, b"")
    assert wallet.open(of(3))[0] == 5
    wallet.save(of(4), 5, b"")
    wallet.save(of(3), 6, b"")  # one that lags behind takes nothing back
    assert wallet.identity.gen == 4
    assert File.saved == (4, 6)


def test_local_identifiers_are_told_apart_and_fit_the_site_s() -> None:
    names = ["a", "h.a", "x" * 60, "x" * 61, "ü", "a\x01", "a b"]
    made = [seat_id(name) for name in names]
    assert len(set(made)) == len(names)
    assert all(0 < len(one.encode()) <= 64 and one.isprintable() for one in made)
