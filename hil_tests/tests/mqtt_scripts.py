"""MQTT 3.1.1 as short scripts: who, verb, words. Topics begin with t, which is each script's own.

SAME: what SealMQ does is what Mosquitto does. KEPT: likewise, for brokers that keep sessions.
DIFFERENT: by design it is not; the key is that of a row in gateway/MQTT.md, the lines behind the
script are what SealMQ's clients see.
"""

from __future__ import annotations

from typing import NamedTuple

SAME = {
    # --- connections ---
    "connect": "a connect\na ping\na disconnect",
    "connect-again": "a connect\na disconnect\na connect\na disconnect",
    "keep-alive-0": "a connect ka=0\na ping\na disconnect",
    "silence": "a connect ka=1\na await closed",
    "pings-keep-alive": "a connect ka=2\na ping\na ping\na disconnect",
    "second-connect": "a connect\na raw 100c00044d5154540402003c0000\na await closed",
    "publish-before-connect": "a open\na raw 30050003742f7878\na await closed",
    "reserved-type": "a connect\na raw f000\na await closed",
    "length-too-long": "a connect\na raw 30ffffffff7f\na await closed",
    "qos-3": "a connect\na raw 36070003742f780001\na await closed",
    "subscribe-flags": "a connect\na raw 80080001000374 2f7800\na await closed",
    "subscribe-nothing": "a connect\na raw 82020001\na await closed",
    "subscribe-qos-3": "a connect\na raw 8208000100 03742f7803\na await closed",
    "publish-wildcard": "a connect\na raw 300600 03742f2378\na await closed",
    "pubrel-flags": "a connect\na raw 60020001\na await closed",
    "takeover": """
        a connect
        a sub t/x 1
        b connect id=a2
        b disconnect
        a ping
        """,
    # --- QoS from publisher to subscriber ---
    **{
        f"qos-{pub}-to-{sub}": f"""
        a connect
        b connect
        a sub t/x {sub}
        b pub t/x one {pub}
        b pub t/x two {pub}
        b disconnect
        a disconnect
        """
        for pub in (0, 1, 2)
        for sub in (0, 1, 2)
    },
    "own-message": "a connect\na sub t/x 1\na pub t/x mine 1\na disconnect",
    "empty-payload": "a connect\nb connect\na sub t/x 1\nb pub t/x - 1\nb pub t/x - 0",
    "mebibyte": "a connect\nb connect\na sub t/x 1\nb pub t/x *1048576 1",
    "mebibyte-qos-2": "a connect\nb connect\na sub t/x 2\nb pub t/x *1048576 2",
    "hundred-kilobytes-qos-0": "a connect\nb connect\na sub t/x 0\nb pub t/x *100000 0",
    "many": "a connect\nb connect\na sub t/x 1\n" + "b pub t/x n 1\n" * 40 + "a await got 40",
    "many-under-way": "a connect\nb connect\na sub t/x 1\n"
    + "b send t/x n 1\n" * 30
    + "b await puback 30\na await got 30",
    "many-qos-2-under-way": "a connect\nb connect\na sub t/x 2\n"
    + "b manual\n"
    + "b send t/x n 2\n" * 15
    + "b await pubrec 15\n"
    + "".join(f"b rel {n}\n" for n in range(1, 16))
    + "b await pubcomp 15\na await got 15",
    "two-readers": """
        a connect
        b connect
        c connect
        a sub t/x 0
        b sub t/x 2
        c pub t/x hello 2
        """,
    # --- packet ids and handshakes ---
    "pubrel-twice": """
        a connect
        b connect
        a sub t/x 2
        b manual
        b send t/x once 2
        b await pubrec
        b rel 1
        b await pubcomp
        b rel 1
        b await pubcomp
        """,
    "pubrel-of-nothing": "a connect\na manual\na rel 77\na await pubcomp",
    "qos-2-again-before-pubrel": """
        a connect
        b connect
        a sub t/x 2
        b manual
        b send t/x once 2
        b await pubrec
        b again
        b await pubrec
        b rel 1
        b await pubcomp
        """,
    "id-used-again": """
        a connect
        b connect
        a sub t/x 1
        b pub t/x one 1
        b pub t/x two 2
        b pub t/x three 1
        """,
    "qos-1-and-2-mixed": """
        a connect
        b connect
        a sub t/+ 2
        b pub t/x one 2
        b pub t/y two 1
        b pub t/x three 0
        b pub t/y four 2
        """,
    "puback-of-nothing": "a connect\na raw 40020009\na ping\na disconnect",
    "reader-acknowledges-late": """
        a connect
        b connect
        a sub t/x 1
        a manual
        b pub t/x one 1
        b pub t/x two 1
        a await got 2
        a ack
        a ack
        a auto
        b pub t/x three 1
        """,
    "reader-qos-2-by-hand": """
        a connect
        b connect
        a sub t/x 2
        a manual
        b pub t/x one 2
        a await got
        a ack
        a await pubrel
        """,
    # --- subscriptions ---
    "wildcard-plus": """
        a connect
        b connect
        a sub t/+/z 1
        b pub t/1/z yes 1
        b pub t/1/y no 1
        b pub t/1/2/z no 1
        """,
    "wildcard-hash": """
        a connect
        b connect
        a sub t/# 1
        b pub t parent 1
        b pub t/1 child 1
        b pub t/1/2/3 deep 1
        """,
    "wildcard-both": "a connect\nb connect\na sub t/+/# 1\nb pub t/1 a 1\nb pub t/1/2 b 1",
    "empty-levels": "a connect\nb connect\na sub t//+ 1\nb pub t// a 1\nb pub t//x b 1",
    "overlapping": """
        a connect
        b connect
        a sub t/# 1
        a sub t/x 1
        b pub t/x once 1
        """,
    "case-matters": "a connect\nb connect\na sub t/Up 1\nb pub t/up no 1\nb pub t/Up yes 1",
    "unicode": "a connect\nb connect\na sub t/ü 1\nb pub t/ü größe 1",
    "spaceless-names": "a connect\nb connect\na sub t/SURPLUS 1\nb pub t/SURPLUS + 1",
    "several-filters": """
        a connect
        b connect
        a sub t/x 0 t/y 1 t/z 2
        b pub t/y hi 2
        b pub t/z ho 2
        """,
    "subscribe-again-other-qos": """
        a connect
        b connect
        a sub t/x 0
        a sub t/x 1
        b pub t/x hi 1
        """,
    "unsubscribe": """
        a connect
        b connect
        a sub t/x 1
        b pub t/x one 1
        a await got
        a unsub t/x
        b pub t/x two 1
        """,
    "unsubscribe-several": """
        a connect
        b connect
        a sub t/x 1 t/y 1
        a unsub t/x t/y
        b pub t/x two 1
        b pub t/y two 1
        """,
    "unsubscribe-unknown": "a connect\na unsub t/never\na disconnect",
    "unsubscribe-is-exact": """
        a connect
        b connect
        a sub t/+ 1
        a unsub t/x
        b pub t/x still 1
        """,
    "not-while-away": """
        a connect
        a sub t/x 1
        a disconnect
        b connect
        b pub t/x missed 1
        a connect
        b pub t/x unheard 1
        """,
    # --- retained ---
    "retained": "b connect\nb pub t/x kept 1 r\na connect\na sub t/x 1",
    "retained-qos-0": "b connect\nb pub t/x kept 0 r\na connect\na sub t/x 1",
    "retained-qos-2": "b connect\nb pub t/x kept 2 r\na connect\na sub t/x 2",
    "retained-lower-qos": "b connect\nb pub t/x kept 1 r\na connect\na sub t/x 0",
    "retained-newest": "b connect\nb pub t/x one 1 r\nb pub t/x two 1 r\na connect\na sub t/x 1",
    "retained-live": "a connect\na sub t/x 1\nb connect\nb pub t/x now 1 r",
    "retained-by-wildcard": """
        b connect
        b pub t/x one 1 r
        a connect
        a sub t/+ 1
        """,
    "retained-again-at-each-subscribe": """
        b connect
        b pub t/x kept 1 r
        a connect
        a sub t/x 1
        a sub t/x 1
        """,
    "retained-not-replaced-by-live": """
        b connect
        b pub t/x kept 1 r
        b pub t/x live 1
        a connect
        a sub t/x 1
        """,
    "retained-cleared": """
        b connect
        b pub t/x kept 1 r
        b pub t/x - 1 r
        a connect
        a sub t/x 1
        """,
    "retained-cleared-qos-0": """
        b connect
        b pub t/x kept 0 r
        b pub t/x - 0 r
        a connect
        a sub t/x 1
        """,
    "retained-cleared-and-set": """
        b connect
        b pub t/x one 1 r
        b pub t/x - 1 r
        b pub t/x two 1 r
        a connect
        a sub t/x 1
        """,
    "retained-outlives-its-publisher": """
        b connect
        b pub t/x kept 1 r
        b disconnect
        a connect
        a sub t/# 1
        """,
    "retained-mebibyte": "b connect\nb pub t/x *1048576 1 r\na connect\na sub t/x 1",
    # --- wills ---
    **{
        f"will-qos-{qos}": f"""
        a connect
        a sub t/will 2
        b connect will=t/will:gone:{qos}
        b drop
        a await got
        """
        for qos in (0, 1, 2)
    },
    "will-not-after-disconnect": """
        a connect
        a sub t/will 1
        b connect will=t/will:gone:1
        b disconnect
        c connect
        c pub t/will alive 1
        """,
    "will-after-silence": """
        a connect
        a sub t/will 1
        b connect ka=1 will=t/will:gone:1
        b await closed
        a await got
        """,
    "will-after-garbage": """
        a connect
        a sub t/will 1
        b connect will=t/will:gone:1
        b raw f000
        b await closed
        a await got
        """,
    "will-retained": """
        a connect
        a sub t/will 1
        b connect will=t/will:gone:1:r
        b drop
        a await got
        c connect
        c sub t/will 1
        """,
    "will-replaced": """
        a connect
        a sub t/will 1
        b connect will=t/will:first:1
        b disconnect
        b connect will=t/will:second:1
        b drop
        a await got
        """,
    "will-of-takeover": """
        a connect
        a sub t/will 1
        b connect will=t/will:first:1
        b connect will=t/will:second:1
        a await got
        b drop
        a await got
        """,
}

KEPT = {
    "session-present": """
        a connect keep
        a disconnect
        a connect keep
        a disconnect
        """,
    "session-ended-by-clean": """
        a connect keep
        a disconnect
        a connect
        a disconnect
        a connect keep
        a disconnect
        """,
    "session-keeps-subscriptions": """
        a connect keep
        a sub t/x 1
        a disconnect
        a connect keep
        b connect
        b pub t/x hi 1
        """,
    **{
        f"queued-qos-{pub}-{sub}": f"""
        a connect keep
        a sub t/x {sub}
        a disconnect
        b connect
        b pub t/x one {pub}
        b pub t/x two {pub}
        a connect keep
        """
        for pub, sub in ((1, 1), (2, 2), (2, 1), (1, 2), (1, 0), (0, 1))
    },
    "queued-keeps-order": "a connect keep\na sub t/+ 1\na disconnect\nb connect\n"
    + "".join(f"b pub t/{n % 3} {n} 1\n" for n in range(30))
    + "a connect keep\na await got 30",
    "unsubscribe-in-a-later-connection": """
        a connect keep
        a sub t/x 1
        a disconnect
        a connect keep
        a unsub t/x
        b connect
        b pub t/x no 1
        """,
    "session-clean-forgets-queue": """
        a connect keep
        a sub t/x 1
        a disconnect
        b connect
        b pub t/x lost 1
        a connect
        a disconnect
        a connect keep
        """,
    "delivered-again": """
        a connect keep
        a sub t/x 1
        a manual
        b connect
        b pub t/x one 1
        a await got
        a drop
        a connect keep
        """,
    "delivered-again-qos-2": """
        a connect keep
        a sub t/x 2
        a manual
        b connect
        b pub t/x one 2
        a await got
        a drop
        a connect keep
        """,
    "pubrel-again": """
        a connect keep
        a sub t/x 2
        a manual
        b connect
        b pub t/x one 2
        a await got
        a ack
        a await pubrel
        a drop
        a connect keep
        a await pubrel
        """,
    "publish-again-qos-2": """
        a connect
        a sub t/x 2
        b connect keep
        b manual
        b send t/x once 2
        b await pubrec
        b drop
        b connect keep
        b again
        b await pubrec
        b rel
        b await pubcomp
        """,
    "pubrel-in-a-later-connection": """
        a connect
        a sub t/x 2
        b connect keep
        b manual
        b send t/x once 2
        b await pubrec
        b drop
        b connect keep
        b rel
        b await pubcomp
        """,
    "queued-mebibyte": """
        a connect keep
        a sub t/x 1
        a disconnect
        b connect
        b pub t/x *1048576 1
        a connect keep
        """,
    "will-while-away": """
        a connect keep
        a sub t/will 1
        c connect
        c sub t/will 1
        a disconnect
        b connect will=t/will:gone:1
        b drop
        c await got
        a connect keep
        """,
    "shared-subscription": """
        a connect
        a sub $share/g/t/x 1
        b connect
        b pub t/x one 1
        b pub t/x two 1
        a await got 2
        """,
    "two-sessions-of-one-client": """
        a connect keep id=one
        a sub t/x 1
        a disconnect
        a connect keep id=two
        a disconnect
        b connect
        b pub t/x hi 1
        a connect keep id=one
        """,
}


class Different(NamedTuple):
    """What SealMQ's clients see: `sealed`, lines of "who got …" and "who told …", all of them.

    notices: rules of notices that come, in their order. upstreams: brokers that it is played with.
    """

    script: str
    sealed: str
    notices: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ("embedded", "mosquitto")


_IN = "connack 0 present=0"

_TWO = f"a told {_IN}\na told suback 1 01\nb told {_IN}\n"

DIFFERENT: dict[str, Different] = {
    "credentials": Different(
        "a open\na raw 100d00044d5154540402003c000161\na await connack",
        "a told connack 5 present=0",
    ),
    "protocol-3.1": Different(
        "a open\na raw 100f00064d514973647003 02003c000161\na await connack",
        "a told connack 1 present=0",
    ),
    "client-id": Different("a connect id=", "a told connack 5 present=0"),
    "client-id-length": Different("a connect id=" + "x" * 65, "a told connack 5 present=0"),
    "malformed": Different(
        "a connect\na raw c00100\na either pingresp", f"a told {_IN}\na told closed"
    ),
    "repeated-qos-1": Different(
        "a connect\na sub t/x 1\nb connect\nb pub t/x once 1\nb again\nb await puback",
        "a got t/x once q1 r0 d0\n" + _TWO + "b told puback 1\nb told puback 1",
    ),
    "cleared": Different(
        "a connect\na sub t/x 1\nb connect\nb pub t/x - 1 r", _TWO + "b told puback 1"
    ),
    "retained-order": Different(
        """
        b connect
        b later t/x old 1 r
        b pub t/x new 1 r
        b now
        a connect
        a sub t/x 1
        """,
        "a got t/x new q1 r1 d0\n" + _TWO + "b told puback 2\nb told puback 1",
        ("mediator.publish.stale",),
    ),
    "reserved-topics": Different(
        "a connect\na sub $other/x 1\nb connect\nb send $other/x hi 1\nb settle",
        f"a told {_IN}\na told suback 1 80\nb told {_IN}\nb told puback 1",
        ("labels.subscribe.reserved", "mediator.publish.denied"),
    ),
    "reserved-filters": Different(
        "a connect\na sub !x 1 @x 1 t/x 1",
        f"a told {_IN}\na told suback 1 808001",
        ("mediator.subscribe.denied", "mediator.subscribe.denied"),
    ),
    "topic-length": Different(
        "a connect\na sub t/# 1\nb connect\nb send t/~1100 hi 1\nb settle",
        _TWO + "b told puback 1",
        ("mediator.publish.malformed",),
    ),
    "payload-length": Different(
        "a connect\na sub t/x 1\nb connect\nb pub t/x *1048577 1",
        _TWO + "b told puback 1",
        ("mediator.publish.toolarge",),
    ),
    "no-kept-sessions": Different(
        "a connect keep", "a told connack 5 present=0", upstreams=("embedded",)
    ),
    "no-shared-subscriptions": Different(
        "a connect\na sub $share/g/t/x 1 t/y 1",
        f"a told {_IN}\na told suback 1 8001",
        ("broker.promise.shared-subscription",),
        upstreams=("embedded",),
    ),
}
