"""`sealmq trust`: tokens of clients, and ratings between sites. Chen, Vidalis and Yang.

A verb is one row of the table: what it is for, its examples, its options, and what it does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sealmq.cli.errors import FAILED, OK, OperatorError, UsageError
from sealmq.plain import plain

from .. import example, simulate
from ..decide import Rules, handed
from ..example import BadScene, Scene
from ..ratings import SCALE, WEIGHTS, Weights, opinion, rate
from ..tokens import NEIGHBOUR, read_announcement, signed_text
from ..wire import MOST_BYTES, BadRecord
from . import assess, runs

Parser = argparse.ArgumentParser

_EXAMPLES = """\
examples:
  sealmq trust show factory                    tokens of its clients, how it judges others'
  sealmq trust simulate --example paper        the example of the paper, with all its figures
  sealmq trust paths factory --token @b1/boiler   the least trustworthy paths as they are now
  sealmq trust explain factory --token @b1/boiler --from b4 --topic boiler/1
  sealmq trust explain ratings.json            the same in a graph of one's own
  sealmq trust simulate --sites 64 --json      which rules find which kinds of malice, and when
  sealmq trust assess factory --client checker -t '@b1/#' --range 0..50     judge what comes
  sealmq trust report factory                  whom the site relies on less, and why

gateway/TRUST.md goes through all of it.
"""
_FILE = """
FILE is a JSON object (-: standard input). A rating is what the second site thinks of the first:
  {"ratings": [["b1", "b2", 0.6], ["b2", "b6", 0.5]], "issuer": "b1", "signers": ["b1", "b2"],
   "judge": "b6", "accept": 0.5, "sign": 0.6}
Also: "way" (path, neighbour, spki), "measure" (average, weakest), "k" (signers that have to be
enough), "blocked" (neighbours of the judge whose edges leave the graph).
"""


def _shows(p: Parser) -> None:
    p.add_argument("site", metavar="SITE", nargs="?", help="the site's folder")
    p.add_argument(
        "--evidence",
        metavar="R,S",
        help="the opinion and rating of so much evidence for and against, without a site",
    )


def _names(p: Parser) -> None:
    p.add_argument(
        "--token",
        metavar="TOKEN",
        help="of a site that is up: the token's id, or @SITE/CLIENT whose it is",
    )


def _reads(p: Parser) -> None:
    help = "ratings and a token (-: standard input), or a site's folder"
    p.add_argument("file", metavar="FILE|SITE", help=help)
    _names(p)


def _explains(p: Parser) -> None:
    _reads(p)
    p.add_argument(
        "--from",
        dest="by",
        metavar="SITE",
        help="of a site that is up: a message that this neighbour hands over; with --topic",
    )
    p.add_argument("--topic", metavar="TOPIC", help="its topic, as it is at its own site")


def _tokens(p: Parser) -> None:
    help = "an announcement, in hex (-: standard input), or a site's folder"
    p.add_argument("file", metavar="FILE|SITE", help=help)
    _names(p)
    p.add_argument(
        "--public",
        metavar="SITE=HEX",
        action="append",
        default=[],
        help="a site's public key; may be repeated. Without its key a signer counts for nothing",
    )


def _simulates(p: Parser) -> None:
    plan = simulate.Plan()
    p.add_argument("--example", choices=["paper"], help="the paper's six sites instead")
    p.add_argument("--sites", metavar="N", type=int, default=plan.sites, help="how many (64)")
    p.add_argument("--rounds", metavar="N", type=int, default=plan.rounds, help="how many (20)")
    p.add_argument(
        "--messages", metavar="N", type=int, default=plan.messages, help="in a round (32)"
    )
    p.add_argument(
        "--rule",
        metavar="NAME",
        action="append",
        choices=list(simulate.RULES),
        help=f"{', '.join(simulate.RULES)}; may be repeated (default: all)",
    )
    p.add_argument("--seed", metavar="N", type=int, default=1, help="another draw (1)")
    p.add_argument(
        "--by-neighbour",
        action="store_true",
        help="a neighbour stands for all that it hands over (by_issuer = false)",
    )
    p.add_argument("--runs", metavar="N", type=int, help="so many runs, for `sealmq report`")
    p.add_argument("--out", metavar="FILE", help="where their lines go: NAME.jsonl")
    p.add_argument(
        "--kind",
        metavar="NAME",
        action="append",
        choices=list(runs.KINDS),
        help=f"of runs: {', '.join(runs.KINDS)}; may be repeated (default: all)",
    )
    p.add_argument(
        "--share", metavar="SHARE", type=float, default=0.1, help="of sites that are so (0.1)"
    )
    p.add_argument("--jobs", metavar="N", type=int, help="processes (default: one a core)")


class _Verb(NamedTuple):
    help: str
    examples: str
    options: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int]


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq trust VERB"""
    parser = sub.add_parser(
        "trust",
        help="tokens of clients, and ratings between sites",
        description="Whose tokens are accepted, and by which ratings of sites.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, help="what to do")
    for name, verb in _VERBS.items():
        made = verbs.add_parser(
            name,
            help=verb.help,
            description=f"{verb.help[0].upper()}{verb.help[1:]}.",
            epilog=f"examples:\n{verb.examples}",
        )
        verb.options(made)
        made.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Do it."""
    return _VERBS[args.verb].run(args)


def _print(args: argparse.Namespace, answer: Mapping[str, Any], lines: list[str]) -> None:
    if args.json:
        print(json.dumps(answer))
    else:
        print("\n".join(map(plain, lines)))


# --- show ---


def _show(args: argparse.Namespace) -> int:
    if (args.site is None) == (args.evidence is None):
        raise UsageError("show what?", "a site's folder, or --evidence R,S")
    if args.evidence is not None:
        return _show_evidence(args)
    from sealmq.bridge.told import ask, runs
    from sealmq.cli.policy_view import View
    from sealmq.site.layout import Layout

    from ..family import Trust

    layout = Layout.open(args.site)
    found = [one for one in View(layout).engine.order if isinstance(one, Trust)]
    if not found:
        raise OperatorError(
            "this site judges without tokens",
            hint=f'[policy] order = ["labels", "trust"] in {layout.config}',
        )
    said = found[0].settings
    answer = {
        "rules": _rules(said.rules),
        "weights": _weights(said.weights),
        "tokens": {
            client: {"publish": list(token.publish), "subscribe": list(token.subscribe)}
            for client, token in sorted(said.tokens.items())
        },
    }
    lines = [
        f"others' tokens are accepted by {said.rules.way}, {said.rules.measure}: "
        f"θ {said.rules.accept / SCALE:g}, π {said.rules.sign / SCALE:g}, k {said.rules.signers}",
        *(
            f"{client}: publishes {', '.join(token.publish) or 'nothing'}; "
            f"reads {', '.join(token.subscribe) or 'nothing'}"
            for client, token in sorted(said.tokens.items())
        ),
    ]
    if not said.tokens:
        lines.append("no client has a token: [families.trust.tokens.CLIENT]")
    if runs(layout):
        live = answer["live"] = ask(layout, "show")
        lines += _live_lines(live, said.rules)
    _print(args, answer, lines)
    return OK


def _live_lines(live: Mapping[str, Any], rules: Rules) -> list[str]:
    """What the bridge knows just now."""
    lines = [
        f"{name}: {_standing(live['ratings'].get(name), name in live['blocked'], rules)}"
        for name in live["neighbours"]
    ]
    lines += [f"{name}: neighbours say different keys of it" for name in live["doubtful"]]
    good, bad = live["votes"]["good"], live["votes"]["bad"]
    lines.append(f"readers' words since the bridge began: {good} good, {bad} bad")
    lines += [
        f"@{row['issuer']}/{row['client']}: {row['id']}, signed by {', '.join(row['signers'])}"
        for row in live["tokens"]
        if not row["client"].startswith(NEIGHBOUR)
    ]
    if live["count"] > len(live["tokens"]):
        lines.append(f"... and {live['count'] - len(live['tokens'])} more")
    return lines


def _standing(rating: float | None, blocked: bool, rules: Rules) -> str:
    """A neighbour's rating, and what comes of it."""
    if rating is None:
        return "not rated yet" + ", BLOCKED" * blocked
    rated, does = f"rated {rating:g}", handed(rules, round(rating * SCALE))
    theta, pi = rules.accept / SCALE, rules.sign / SCALE
    if blocked:
        return f"{rated}, BLOCKED: nothing is taken over it"
    if not does.deliver:
        return f"{rated}, below θ = {theta:g}: nothing is taken over it"
    if not does.sign:
        return f"{rated}, below π = {pi:g}: what comes over it is taken, and not signed"
    return f"{rated}, at π = {pi:g} or above: what comes over it is taken and signed"


def _asked(args: argparse.Namespace, op: str, **fields: Any) -> dict[str, Any]:
    """What the bridge of the site answers about the token."""
    from sealmq.bridge.told import ask
    from sealmq.site.layout import Layout

    if args.token is None:
        raise UsageError(
            "which token?", "--token @SITE/CLIENT, or its id: `sealmq trust show SITE`"
        )
    return ask(Layout.open(args.file), op, token=args.token, **fields)


def _rules(rules: Rules) -> dict[str, Any]:
    return {
        "way": rules.way, "measure": rules.measure, "k": rules.signers,
        "accept": rules.accept / SCALE, "sign": rules.sign / SCALE,
    }  # fmt: skip


def _weights(weights: Weights) -> dict[str, Any]:
    return {
        "bad": weights.bad, "base": weights.base / SCALE, "cap": weights.cap,
        "half_life_s": weights.half_life_ms // 1000,
        "block": weights.block / SCALE, "free": weights.free / SCALE,
    }  # fmt: skip


def _show_evidence(args: argparse.Namespace) -> int:
    try:
        r, s = (float(word) for word in args.evidence.split(","))
        if not (0 <= r < 1e9 and 0 <= s < 1e9):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{args.evidence!r} is no evidence", "two numbers: --evidence 10,5"
        ) from None
    alpha, beta, gamma, delta = opinion(r, s)
    tau = rate(r, s) / SCALE
    answer = {"alpha": alpha, "beta": beta, "gamma": gamma, "delta": delta, "rating": tau}
    _print(args, answer, [f"α {alpha:.3f}  β {beta:.3f}  γ {gamma:.3f}  δ {delta:g}  τ {tau:.3f}"])
    return OK


# --- paths, explain ---


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read(MOST_BYTES * 64)
    return Path(name).read_text("utf-8")


def _scene(args: argparse.Namespace) -> Scene:
    if Path(args.file).is_dir():
        return example.read(_asked(args, "scene"))
    try:
        return example.read(json.loads(_text(args.file)))
    except BadScene as error:
        raise OperatorError(
            f"{args.file}: {error}", hint=f"sealmq trust {args.verb} --help"
        ) from None
    except ValueError:
        raise OperatorError(
            f"{args.file} holds no JSON", hint="sealmq trust paths --help"
        ) from None


def _paths(args: argparse.Namespace) -> int:
    scene = _scene(args)
    answer = example.answer(scene)
    _print(args, answer, _signer_lines(answer))
    return OK


def _signer_lines(answer: Mapping[str, Any]) -> list[str]:
    lines = []
    for signer, found in answer["signers"].items():
        if found["rating"] is None:
            lines.append(f"{signer}: no path to {answer['judge']}")
            continue
        least = " and ".join(",".join(path) for path in found["path"])
        others = "".join(f"; {','.join(one['path'])} {one['rating']:g}" for one in found["others"])
        lines.append(f"{signer}: {found['rating']:g} by {least}{others}")
    return lines


def _explain(args: argparse.Namespace) -> int:
    """Exit code: of the message, if one is asked about, else of the token."""
    _check_message(args)
    scene = _scene(args)
    answer = example.answer(scene)
    answer["otherwise"] = example.otherwise(scene)
    lines = _explained(answer)
    accepted = answer["decision"] == "accept"
    if args.by is not None:
        said = answer["message"] = _asked(args, "explain", topic=args.topic, **{"from": args.by})
        lines.append(_of_message(args, said))
        accepted = said["accept"]
    _print(args, answer, lines)
    return OK if accepted else FAILED


def _check_message(args: argparse.Namespace) -> None:
    if args.by is None and args.topic is None:
        return
    if not Path(args.file).is_dir():
        raise UsageError(
            f"--from and --topic with {args.file}", "they ask a site that is up: give its folder"
        )
    if args.by is None:
        raise UsageError(
            f"--topic {args.topic} without --from",
            "a message is judged by who hands it over",
            hint="--from NEIGHBOUR; `sealmq trust show SITE` lists the neighbours",
        )
    if args.topic is None:
        raise UsageError(
            f"--from {args.by} without --topic",
            "whether a message is taken depends on its topic",
            hint="--topic TOPIC, as it is at the site that it comes from",
        )
    if args.topic.startswith(NEIGHBOUR):
        own = args.topic.partition("/")[2] or "TOPIC"
        raise UsageError(f"--topic {args.topic}", f"say it as at its own site: {own}")


def _of_message(args: argparse.Namespace, said: Mapping[str, Any]) -> str:
    what = f"{args.topic} by {args.by}"
    if not said["accept"]:
        return f"{what} is refused: {said['reason']} ({said['rule']})"
    to = ", ".join(said["to"]) or "no neighbour"
    return f"{what} is taken ({said['rule']}: {said['reason']}); it goes on to: {to}"


def _explained(answer: Mapping[str, Any]) -> list[str]:
    does = "accepts" if answer["decision"] == "accept" else "refuses"
    lines = [
        f"{answer['judge']} {does} the token of {answer['issuer']}'s client: {answer['reason']}"
    ]
    lines += [f"  {line}" for line in _signer_lines(answer)]
    for site, what in answer["handed_over_by"].items():
        lines.append(f"handed over by {site}: {what}")
    lines += [f"with {rule}: {what}" for rule, what in answer.get("otherwise", {}).items()]
    return lines


# --- token ---


def _token(args: argparse.Namespace) -> int:
    """Exit code 1: its issuer has not signed it."""
    from ...signatures import is_signed

    keys = dict(_key(word) for word in args.public)
    if Path(args.file).is_dir():
        held = _asked(args, "token")
        text = held["record"]
        keys = {site: bytes.fromhex(key) for site, key in held["keys"].items()} | keys
    else:
        text = "".join(_text(args.file).split())
    try:
        token, signatures = read_announcement(bytes.fromhex(text))
    except (BadRecord, ValueError) as error:
        raise OperatorError(
            f"{args.file}: no token: {error}", hint="sealmq trust token --help"
        ) from None
    right = [
        who for who, made in sorted(signatures.items())
        if who in keys and is_signed(keys[who], signed_text(who, token.raw), made)
    ]  # fmt: skip
    wrong = [who for who in sorted(signatures) if who in keys and who not in right]
    unknown = [who for who in sorted(signatures) if who not in keys]
    answer = {
        "id": token.id.hex(), "issuer": token.issuer, "client": token.client,
        "publish": list(token.publish), "subscribe": list(token.subscribe),
        "serial": token.serial, "until_ms": token.until_ms,
        "signers": right, "wrong": wrong, "unknown": unknown,
    }  # fmt: skip
    lines = [
        f"token {token.id.hex()} of {token.client} at {token.issuer}, serial {token.serial}",
        f"publishes {', '.join(token.publish) or 'nothing'}; "
        f"reads {', '.join(token.subscribe) or 'nothing'}",
        f"signed by {', '.join(right) or 'nobody whose key is given'}",
        *(f"NOT signed by {who}, whose signature it bears" for who in wrong),
        *(f"{who}: no key is given" for who in unknown),
    ]
    _print(args, answer, lines)
    return OK if token.issuer in right and not wrong else FAILED


def _key(word: str) -> tuple[str, bytes]:
    site, _, text = word.partition("=")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if not site or len(key) != 32:
        raise UsageError(f"{word!r} is no key", "--public SITE=64 hex digits")
    return site, key


# --- simulate ---


def _simulate(args: argparse.Namespace) -> int:
    if args.example:
        answer = example.answer(example.PAPER)
        answer["otherwise"] = example.otherwise(example.PAPER)
        answer["as_printed"] = example.printed(example.PAPER)
        lines = _explained(answer)
        shown = ", ".join(f"{s} {rating:g}" for s, rating in answer["as_printed"].items())
        _print(args, answer, [*lines, f"the average as printed, over sites: {shown}"])
        return OK
    if not (2 <= args.sites <= 256 and 1 <= args.rounds <= 1000 and 1 <= args.messages <= 1000):
        raise UsageError("too many, or too few", "2 to 256 sites, 1 to 1,000 rounds and messages")
    weights = replace(WEIGHTS, by_issuer=not args.by_neighbour)
    plan = simulate.Plan(
        sites=args.sites, rounds=args.rounds, messages=args.messages, weights=weights
    )
    names = args.rule or list(simulate.RULES)
    if args.runs is not None or args.out is not None:
        return _simulate_runs(args, plan, names)
    # Each rule has a draw of its own that begins alike: the same sites, links and messages.
    draws = {name: random.Random(args.seed) for name in names}  # noqa: S311 - no secret
    found = simulate.compare(plan, {name: simulate.RULES[name] for name in names}, draws)
    found["seed"] = args.seed
    _print(args, found, _simulated(found))
    return OK


def _simulate_runs(args: argparse.Namespace, plan: simulate.Plan, names: list[str]) -> int:
    if args.runs is None or args.out is None or not args.out.endswith(".jsonl"):
        raise UsageError("runs go into a file", "--runs 10000 --out runs.jsonl")
    jobs = (os.cpu_count() or 1) if args.jobs is None else args.jobs
    if not (1 <= args.runs <= 10**6 and 1 <= jobs <= 64 and 0 < args.share < 1):
        hint = "1 to 1,000,000 runs, 1 to 64 jobs, a share between 0 and 1"
        raise UsageError("too many, or too few", hint)
    if args.seed < 0:
        raise UsageError(f"{args.seed} is no seed", "--seed 1")
    series = runs.Series(
        args.runs, plan, args.share, tuple(names), tuple(args.kind or runs.KINDS), args.seed
    )
    wanted, began = Path(args.out), time.monotonic()
    if wanted.exists():
        raise OperatorError(f"{wanted} is there already", hint="another --out")
    try:
        with progress_bar("runs", series.runs) as step:
            before = runs.write(series, wanted, jobs, step)
    except OSError as error:
        raise OperatorError(f"{wanted}: {error.strerror}", hint="a place with room") from None
    except KeyboardInterrupt:
        print(f"the same words go on with {wanted}.open", file=sys.stderr)
        raise
    seconds, count = round(time.monotonic() - began, 1), series.runs * plan.rounds
    answer = {
        "runs": series.runs, "there": before.runs, "lines": count, "file": str(wanted),
        "seconds": seconds,
    }  # fmt: skip
    there = f", {before.runs} of them there already" if before.runs else ""
    said = f"{series.runs} runs, {count} lines in {wanted}{there}, {seconds:g} s"
    _print(args, answer, [said])
    return OK


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """On a terminal alone; what it gives is told how much more there is."""
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Left())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


def _simulated(found: Mapping[str, Any]) -> list[str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in found["kinds"].items() if count)
    lines = [
        f"{found['plan']['sites']} sites: {kinds}",
        "rule, round: precision, recall, good delivered",
    ]
    for rule, rounds in found["rules"].items():
        for row in (rounds[0], rounds[len(rounds) // 2], rounds[-1]):
            parts = (row["precision"], row["recall"], row["good_delivered"])
            shown = "  ".join("   -" if x is None else f"{x:.2f}" for x in parts)
            lines.append(f"{rule:12} {row['round']:3}:  {shown}")
    far = found["convergence"]
    lines.append(
        f"distance vectors settle in {far['rounds']} rounds; the longest path has "
        f"{far['longest_path']} edges, the diameter is {far['diameter']}"
    )
    return lines


# --- report ---


def _reports(p: Parser) -> None:
    p.add_argument("site", metavar="SITE", help="the site's folder")
    p.add_argument("--since", metavar="TIME", default="7d", help="from when on (7d)")
    p.add_argument("--until", metavar="TIME", help="up to when (default: now)")


def _report(args: argparse.Namespace) -> int:
    from sealmq.audit.reading import Log
    from sealmq.cli.tables import moment_of
    from sealmq.site.layout import Layout

    from .report import EVENTS, Report

    layout = Layout.open(args.site)
    now_ms = time.time_ns() // 1_000_000
    until = now_ms + 60_000 if args.until is None else moment_of(args.until, now_ms)
    found = Report(moment_of(args.since, now_ms), until)
    # The mediator's has what clients say, the bridge's what becomes of neighbours.
    folders = [layout.audit("mediator"), *sorted(layout.audit("mediator").parent.glob("bridge*"))]
    for folder in folders:
        try:
            found.feed(Log(folder, folder.name).records(EVENTS))
        except FileNotFoundError:
            continue
    _print(args, found.as_json(), found.lines())
    return OK


_VERBS: dict[str, _Verb] = {
    "show": _Verb(
        "tokens of a site's clients and how it judges others', or what evidence is worth",
        "  sealmq trust show factory\n"
        "  sealmq trust show --evidence 10,5          ten good messages, one bad one (μ = 5)\n",
        _shows, _show,
    ),
    "paths": _Verb(
        "the least trustworthy path of each signer, in a graph of ratings",
        "  sealmq trust paths factory --token @b1/boiler\n"
        "  sealmq trust paths ratings.json\n"
        "  sealmq trust paths ratings.json --json | jq .decision\n" + _FILE,
        _reads, _paths,
    ),
    "explain": _Verb(
        "whether a token is accepted, why, and what other rules would decide",
        "  sealmq trust explain factory --token @b1/boiler --from b4 --topic boiler/1\n"
        "  sealmq trust explain ratings.json\n" + _FILE
        + "\nExit code 0: accepted, 1: refused; with --from of the message, else of the token.\n",
        _explains, _explain,
    ),
    "token": _Verb(
        "what a token says and who has signed it, without a gateway",
        "  sealmq trust token factory --token @b1/boiler\n"
        "  sealmq trust token token.hex --public b1=8f1c... --public b2=03ab...\n\n"
        "Exit code 0: its issuer has signed it, and nobody's signature is wrong.\n",
        _tokens, _token,
    ),
    "assess": _Verb(
        "judge values of other sites by a range, and tell the site which are good",
        "  sealmq trust assess factory --client checker -t '@b1/hall/temperature' --range=-20..60\n"
        "  sealmq trust assess --enrolment c.json -t '@b1/#' --range 0..100 --field air.co2\n\n"
        "Its word alone makes a message bad, if the site names it:\n"
        "  [families.trust]\n"
        '  assessors = ["checker"]\n'
        "Without that it is a reader like others. What is no number is bad.\n\n"
        "Exit code 0: as many as -C says, or Ctrl-C; 27: the time of -W is over; 12: refused.\n",
        assess.options, assess.run,
    ),
    "report": _Verb(
        "which neighbours crossed a threshold, what was refused, and who called what bad",
        "  sealmq trust report factory\n"
        "  sealmq trust report factory --since 30d --json | jq '.votes'\n\n"
        "It is counted out of the audit logs of mediator and bridge. A vote stands here once\n"
        "the mediator has taken it; the bridge decides whether it counts.\n",
        _reports, _report,
    ),
    "simulate": _Verb(
        "which rules find which kinds of malice among many sites, and when",
        "  sealmq trust simulate --example paper --json\n"
        "  sealmq trust simulate --sites 64 --rounds 20 --json > found.json      some minutes\n"
        "  sealmq trust simulate --sites 16 --rule weakest --rule average --seed 7\n"
        "  sealmq trust simulate --runs 10000 --out runs.jsonl    each kind of malice and rule\n"
        "  sealmq report runs.jsonl --out report                  what comes of them, plotted\n\n"
        "Sites begin with a good history; some have a bad client, some are malicious, good and\n"
        "bad by turns, collude, or speak ill of others. precision: how many of the messages that\n"
        "honest sites did not deliver were bad; recall: how many bad ones they did not deliver.\n"
        "Runs that were interrupted lie in runs.jsonl.open; the same words go on with them.\n",
        _simulates, _simulate,
    ),
}  # fmt: skip
