"""From the text of sealmq.toml to a Config: every rule about what it may say stands here.

One table, one function. The first thing that is wrong ends it, with its key, line and a hint.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from sealmq.families import hours
from sealmq.kinds import KINDS, OF_THE_SITE
from sealmq.near import near
from sealmq_spec.const import U24
from sealmq_spec.topics import check_filter, check_topic, is_reserved

from . import borders, canary, peers, uses, values
from .errors import ConfigError
from .lines import line_of
from .model import (
    BROKERS,
    BUILT_IN,
    MOST_WORKERS,
    SOURCES,
    SUBJECTS,
    Attribute,
    Audit,
    Broker,
    Client,
    Config,
    Creation,
    Label,
    Limits,
    Mediator,
    Metrics,
    Policy,
    Site,
)
from .poset import closure

_KEEP = re.compile(r"([0-9]{1,5})d")
_MOST_DAYS = 36500
_TABLES = (
    "site",
    "mediator",
    "broker",
    "policy",
    "limits",
    "audit",
    "metrics",
    "mdns",
    "labels",
    "clients",
    "topics",
    "creation",
    "attributes",
    "peers",
    "borders",
)


def parse(text: str, path: Path | None = None) -> Config:
    """Check everything; ConfigError on the first thing that is wrong."""
    try:
        doc = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(error, text, path) from None
    except ValueError:  # what int() says of more than 4,300 digits
        raise _unread("a number has too many digits", "numbers here are small", path) from None
    except RecursionError:
        raise _unread("it is nested too deeply", "no value here is", path) from None
    try:
        return replace(_config(doc, path), text=text)
    except ConfigError as error:
        error.line = line_of(text, error.key)
        named = uses.of_label(doc, error.label) if error.label else []
        if len(named) > 1:  # a label that was removed while it is in use
            error.hint = f"{error.hint}; {len(named)} places name it: {uses.words(named)}"
        if path is not None:
            error.path = str(path)
        raise


def _syntax(error: tomllib.TOMLDecodeError, text: str, path: Path | None) -> ConfigError:
    what = str(error)
    found = re.search(r" ?\(at line (\d+), column \d+\)", what)
    # Else the text ends in the middle of something, as a torn one does.
    line = int(found.group(1)) if found else len(text.splitlines()) or 1
    wrong = ConfigError(
        "not TOML: " + re.sub(r" ?\(at .*\)$", "", what),
        "each key stands once in its table; text stands in quotes",
        line=line,
    )
    if path is not None:
        wrong.path = str(path)
    return wrong


def _unread(what: str, hint: str, path: Path | None) -> ConfigError:
    wrong = ConfigError(f"not TOML: {what}", hint)
    if path is not None:
        wrong.path = str(path)
    return wrong


def _config(doc: Mapping[str, Any], path: Path | None) -> Config:
    values.only(doc, "", (*_TABLES, "families"))
    folder = None if path is None else path.absolute().parent
    found, theirs = peers.read(values.table(doc, "peers"))
    labels = _labels(values.table(doc, "labels"), theirs)
    below = closure({name: label.over for name, label in labels.items()})
    peers.check(found, labels, below)
    clients = _clients(values.table(doc, "clients"), labels)
    clients |= peers.clients(found, labels, clients)
    policy = _policy(values.table(doc, "policy"))
    across = borders.read(values.table(doc, "borders"), found, labels, below, policy.order)
    clients |= borders.clients(across, clients)
    canary.check(labels, clients)
    return Config(
        site=_site(values.table(doc, "site"), folder),
        mediator=_mediator(values.table(doc, "mediator")),
        broker=_broker(values.table(doc, "broker"), folder),
        policy=policy,
        limits=_limits(values.table(doc, "limits")),
        labels=MappingProxyType(labels),
        clients=MappingProxyType(clients),
        topics=MappingProxyType(_topics(values.table(doc, "topics"), labels)),
        creation=_creation(doc.get("creation", []), labels, clients),
        attributes=MappingProxyType(
            _attributes(values.table(doc, "attributes"), folder, clients, policy.order)
        ),
        families=MappingProxyType(_families(values.table(doc, "families"))),
        below=MappingProxyType(below),
        peers=MappingProxyType(found),
        borders=MappingProxyType(across),
        audit=_audit(values.table(doc, "audit"), folder),
        metrics=_metrics(values.table(doc, "metrics")),
        announce=_mdns(values.table(doc, "mdns")),
    )


# --- tables -------------------------------------------------------------------------------------


def _site(t: Mapping[str, Any], folder: Path | None) -> Site:
    values.only(t, "site", ("name", "id", "key_file"))
    name = values.text(t, "site.name", required=True)
    values.check_name(name, "site.name")
    text = values.text(t, "site.id", required=True)
    if not re.fullmatch(r"[0-9a-f]{8}", text):
        raise ConfigError(
            f"{text!r} is not 8 hex digits", "`sealmq init` drew it; put it back", key="site.id"
        )
    return Site(name, bytes.fromhex(text), values.outside_path(t, "site.key_file", folder))


def _mediator(t: Mapping[str, Any]) -> Mediator:
    values.only(t, "mediator", ("listen", "advertise", "number", "on_denied", "workers"))
    host, port = values.address(
        values.text(t, "mediator.listen", "127.0.0.1:1883"), "mediator.listen"
    )
    told = host, port
    if "advertise" in t:
        told = values.address(values.text(t, "mediator.advertise", ""), "mediator.advertise")
    if told[0] in values.ANYWHERE:
        raise ConfigError(
            f"clients cannot reach {told[0]}; they need one address of this host",
            'add advertise = "NAME-OR-ADDRESS:PORT" under [mediator]',
            key="mediator.advertise" if "advertise" in t else "mediator.listen",
        )
    number = t.get("number", 1)
    if type(number) is not int or not 0 < number <= U24:
        raise ConfigError(f"{number!r} is not a number from 1 to {U24}", key="mediator.number")
    denied = values.one_of(t, "mediator.on_denied", ("notice", "disconnect"), "notice")
    workers = t.get("workers", 1)
    if type(workers) is not int or not 0 < workers <= MOST_WORKERS:
        raise ConfigError(
            f"{workers!r} is not a number from 1 to {MOST_WORKERS}",
            "one for each processor that has nothing else to do; 1 is right on a small board",
            key="mediator.workers",
        )
    return Mediator(host, port, told[0], told[1], number, denied, workers)


def _broker(t: Mapping[str, Any], folder: Path | None) -> Broker:
    files = ("password_file", "ca", "cert", "key")
    outer = ("url", "user", *files, "autosave")
    values.only(t, "broker", ("kind", *outer))
    kind = values.one_of(t, "broker.kind", BROKERS, "external" if "url" in t else "embedded")
    if kind != "external":
        for name in outer:
            if name in t:
                raise ConfigError(
                    f"the site's own broker ({kind}) has no such setting",
                    f'take kind = "{kind}" out to use an external one',
                    key=f"broker.{name}",
                )
        return Broker(kind)
    autosave = t.get("autosave", 30)
    if type(autosave) is not int or not 0 < autosave <= 86_400:
        raise ConfigError(
            f"{autosave!r} is not a number of seconds from 1 to 86400", key="broker.autosave"
        )
    url = _url(values.text(t, "broker.url", required=True))
    found = {name: values.outside_path(t, f"broker.{name}", folder) for name in files}
    tls = [name for name in ("ca", "cert", "key") if found[name] is not None]
    if url.startswith("mqtts:") != bool(tls) or len(tls) not in (0, 3):
        raise ConfigError(
            "mqtts:// needs ca, cert and key, files outside the site; mqtt:// none of them",
            "`sealmq broker config mosquitto SITE --out DIR` makes them",
            key=f"broker.{tls[0]}" if tls else "broker.url",
        )
    return Broker(kind, url, values.text(t, "broker.user") or None, **found, autosave=autosave)


def _url(url: str) -> str:
    hint = "mqtt://HOST[:PORT], or with certificates mqtts://HOST[:PORT]"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("mqtt", "mqtts") and parts.hostname and parts.port != 0
    except ValueError:
        raise ConfigError("this is no URL", hint, key="broker.url") from None
    if "@" in parts.netloc:
        raise ConfigError(
            "a URL with a user or password in it; secrets do not belong into this file",
            "set user and password_file (a file outside the site) instead",
            key="broker.url",
        )
    if not good or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} is no broker's address", hint, key="broker.url")
    return url


def _policy(t: Mapping[str, Any]) -> Policy:
    values.only(t, "policy", ("order", "enforce"))
    order = values.names(t, "policy.order", ("labels",))
    if not order or len(set(order)) != len(order):
        raise ConfigError(
            "each family is named once, and at least one", 'order = ["labels"]', key="policy.order"
        )
    enforce = t.get("enforce", True)
    if type(enforce) is not bool:
        raise ConfigError(f"{enforce!r} is neither true nor false", key="policy.enforce")
    return Policy(order, enforce)


# Smallest and greatest value of each. Nothing is unlimited: one client must not fill the disk.
_LIMITS = {
    "topics": (0, 1_000_000),
    "label_topics": (0, 1_000_000),
    "sessions": (0, 1000),
    "queue_messages": (10_000, 1_000_000),
    "queue_kib": (256, 1024 * 1024),
    "journal_mib": (8, 64 * 1024),
    "retained_mib": (0, 64 * 1024),
    "rows": (0, 1_000_000),
    "family_mib": (1, 64 * 1024),
}


def _limits(t: Mapping[str, Any]) -> Limits:
    values.only(t, "limits", _LIMITS)
    for name, (least, most) in _LIMITS.items():
        value = t.get(name, least)
        if type(value) is not int or not least <= value <= most:
            raise ConfigError(
                f"{value!r} is not a number from {least} to {most}",
                f"{name} = {getattr(Limits(), name)}, say; without this line it is that",
                key=f"limits.{name}",
            )
    return Limits(**t)


def _audit(t: Mapping[str, Any], folder: Path | None) -> Audit:
    values.only(t, "audit", ("keep", "after_report"))
    keep = values.text(t, "audit.keep")
    found = _KEEP.fullmatch(keep)
    if "keep" in t and (found is None or not 1 <= int(found[1]) <= _MOST_DAYS):
        raise ConfigError(
            f"{keep!r} is no number of days", 'keep = "90d", say; without this line all is kept',
            key="audit.keep",
        )  # fmt: skip
    report = values.outside_path(t, "audit.after_report", folder)
    if report is not None and found is None:
        raise ConfigError(
            "nothing is deleted without keep", 'keep = "90d", say', key="audit.after_report"
        )
    return Audit(0 if found is None else int(found[1]) * 86_400_000, report)


def _metrics(t: Mapping[str, Any]) -> Metrics | None:
    values.only(t, "metrics", ("listen",))
    if "listen" not in t:
        return None
    host, port = values.address(values.text(t, "metrics.listen"), "metrics.listen")
    try:
        near_by = ipaddress.ip_address(host).is_loopback
    except ValueError:
        near_by = False
    if not near_by:
        raise ConfigError(
            f"{host} is not this machine alone: whoever reaches it reads what the site does",
            'listen = "127.0.0.1:9464"; a proxy or a tunnel lets in whom you choose',
            key="metrics.listen",
        )
    return Metrics(host, port)


def _mdns(t: Mapping[str, Any]) -> bool:
    values.only(t, "mdns", ("announce",))
    announce = t.get("announce", False)
    if type(announce) is not bool:
        raise ConfigError("announce is not true or false", "announce = true", key="mdns.announce")
    return announce


# theirs: those that peers bring, over which others may be.
def _labels(t: Mapping[str, Any], theirs: Mapping[str, Label]) -> dict[str, Label]:
    out = dict(theirs)
    for name, value in t.items():
        key = f"labels.{name}"
        values.check_name(name, key)
        if name in BUILT_IN:
            raise ConfigError(
                f"{name} is built in: bottom is below all labels, top above all, none stands alone",
                "take this line out, or choose another name",
                key=key,
            )
        row = value if isinstance(value, dict) else {"over": value}
        values.only(row, key, ("over", "suite"))
        out[name] = Label(
            name, values.names(row, f"{key}.over", (), shown=key), values.suite(row, key)
        )
    for name, label in out.items():
        key = f"labels.{name}"
        for low in label.over:
            if low in BUILT_IN:
                raise ConfigError(
                    f"{low} has its place in the order already", "take it out", key=key
                )
            values.check_label(low, out, key)
        if len(set(label.over)) != len(label.over):
            raise ConfigError("a label is named twice", "name each once", key=key)
    return out


# Of the kinds that are left out are the clients that [peers] and [borders] make.
_KINDS = tuple(kind for kind in KINDS if kind not in OF_THE_SITE)


def _clients(t: Mapping[str, Any], labels: Mapping[str, Label]) -> dict[str, Client]:
    out = {}
    for name, row in t.items():
        key = f"clients.{name}"
        values.check_name(name, key)
        if not isinstance(row, dict):
            raise ConfigError(
                "a client is a table", f'{name} = {{ label = "...", kind = "device" }}', key=key
            )
        values.only(row, key, ("label", "kind", "suite", "disabled", "rotation"))
        label = values.text(row, f"{key}.label", required=True, shown=key)
        values.check_label(label, labels, key)
        kind = values.one_of(row, f"{key}.kind", _KINDS, "device", shown=key)
        disabled, rotation = row.get("disabled", False), row.get("rotation", 0)
        if type(disabled) is not bool:
            raise ConfigError(f"disabled is true or false, not {disabled!r}", key=key)
        if type(rotation) is not int or not 0 <= rotation <= U24:
            raise ConfigError(
                f"rotation is {rotation!r}",
                "it counts how often the secret was replaced; `sealmq client rotate` raises it",
                key=key,
            )
        out[name] = Client(name, label, kind, values.suite(row, key), disabled, rotation)
    return out


def _topics(t: Mapping[str, Any], labels: Mapping[str, Label]) -> dict[str, str]:
    for topic, label in t.items():
        key = f"topics.{topic}"
        values.check_with(check_topic, topic, key)
        if is_reserved(topic):
            raise ConfigError(
                "topics that begin with $, ! or @ are the protocol's own", "rename it", key=key
            )
        if not isinstance(label, str):
            raise ConfigError(
                f"{type(label).__name__} is no label's name", f'"{topic}" = "LABEL"', key=key
            )
        values.check_label(label, labels, key)
    return dict(t)


def _creation(
    rows: Any, labels: Mapping[str, Label], clients: Mapping[str, Client]
) -> tuple[Creation, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError("rules are an array of tables", "[[creation]]", key="creation")
    out = []
    for i, row in enumerate(rows):
        key = f"creation.{i}"
        values.only(row, key, ("filter", "labels", "clients"))
        filt = values.text(row, f"{key}.filter", required=True)
        values.check_with(check_filter, filt, f"{key}.filter")
        who = values.names(row, f"{key}.labels", ())
        for label in who:
            values.check_label(label, labels, key)
        by_name = values.names(row, f"{key}.clients", ())
        for client in by_name:
            if client not in clients:
                raise ConfigError(f"there is no client {client!r}", near(client, clients), key=key)
        out.append(Creation(filt, who, by_name))
    return tuple(out)


# Each has a task of its own in the mediator.
_MOST_ATTRIBUTES = 32
_ATTRIBUTE_KEYS = {
    "time": ("source", "zone", "of"),
    "file": ("source", "path", "of"),
    "calendar": ("source", "zone", "else", "hours", "of"),
    "client": ("source", "by", "of", "valid"),
    "events": ("source", "family", "of", "valid"),
    "count": ("source", "of", "window"),
}
# What a source can be of; those of a zone are the site's.
_ATTRIBUTE_OF = {
    "time": ("site",),
    "file": SUBJECTS,
    "calendar": ("site",),
    "client": SUBJECTS,
    "events": SUBJECTS,
    "count": ("subscriber", "pair"),
}
_SAID_BY_DEFAULT = {"time": "site", "file": "", "calendar": "site"}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOST_SECONDS = 3650 * 86_400
_MOST_HOURS = 32


def _attributes(
    t: Mapping[str, Any],
    folder: Path | None,
    clients: Mapping[str, Client],
    order: Sequence[str],
) -> dict[str, Attribute]:
    out = {}
    for name, row in t.items():
        key = f"attributes.{name}"
        values.check_name(name, key)
        if not isinstance(row, dict):
            raise ConfigError("an attribute is a table", f"[{key}]", key=key)
        values.text(row, f"{key}.source", required=True)
        source = values.one_of(row, f"{key}.source", SOURCES, "")
        values.only(row, key, _ATTRIBUTE_KEYS[source])
        of = _of(row, key, source)
        match source:
            case "time":
                out[name] = Attribute(source, zone=_zone(row, f"{key}.zone"), of=of)
            case "file":
                path = _values_file(row, f"{key}.path", folder)
                out[name] = Attribute(source, path=path, of=of)
            case "calendar":
                zone = _zone(row, f"{key}.zone")
                out[name] = Attribute(source, zone=zone, of=of, hours=_hours(row, key))
            case "client":
                by, valid = _by(row, f"{key}.by", clients), _length(row, f"{key}.valid")
                out[name] = Attribute(source, of=of, by=by, valid_ms=valid)
            case "events":
                family, valid = _family(row, f"{key}.family", order), _length(row, f"{key}.valid")
                out[name] = Attribute(source, of=of, family=family, valid_ms=valid)
            case _:
                out[name] = Attribute(source, of=of, window_ms=_length(row, f"{key}.window"))
    if len(out) > _MOST_ATTRIBUTES:
        raise ConfigError(
            f"{len(out)} attributes, at most {_MOST_ATTRIBUTES} go",
            "one file can hold the values of all clients",
            key="attributes",
        )
    return out


def _of(row: Mapping[str, Any], key: str, source: str) -> str:
    allowed, key = _ATTRIBUTE_OF[source], f"{key}.of"
    if "of" not in row and source in _SAID_BY_DEFAULT:
        return _SAID_BY_DEFAULT[source]
    of = values.text(row, key, required=True)
    of = "subscriber" if of == "client" else of
    if of in SUBJECTS and of not in allowed and source == "count":
        raise ConfigError(
            f"what is counted of {'the site' if of == 'site' else 'an owner'} goes to readers of "
            "several workers, none of which counts all of it",
            'of = "subscriber", or of = "pair"',
            key=key,
        )
    return values.one_of({"of": of}, key, allowed, "")


def _hours(row: Mapping[str, Any], key: str) -> hours.Named:
    other = values.text(row, f"{key}.else", required=True)
    table, key = row.get("hours"), f"{key}.hours"
    if not isinstance(table, dict) or not 0 < len(table) <= _MOST_HOURS:
        raise ConfigError(
            f"a calendar has a table of 1 to {_MOST_HOURS} names with their hours",
            f'[{key}] WORK_DAY = {{ between = ["08:00", "18:00"], weekdays = ["mon"] }}',
            key=key,
        )
    out = []
    for name, said in table.items():
        at = f"{key}.{name}"
        values.check_name(name, at)
        if not isinstance(said, dict):
            raise ConfigError(
                "hours are a table", f'{name} = {{ between = ["08:00", "18:00"] }}', key=at
            )
        values.only(said, at, ("between", "weekdays"))
        try:
            out.append((name, hours.parse(said.get("between"), said.get("weekdays"))))
        except hours.BadHours as error:
            raise ConfigError(str(error), error.hint, key=at) from None
    values.check_name(other, key.removesuffix("hours") + "else")
    return hours.Named(tuple(out), other)


def _by(row: Mapping[str, Any], key: str, clients: Mapping[str, Client]) -> tuple[str, ...]:
    by = values.names(row, key, ())
    if not by:
        raise ConfigError("nobody tells it", 'by = ["CLIENT"]', key=key)
    for client in by:
        if client not in clients:
            raise ConfigError(f"there is no client {client!r}", near(client, clients), key=key)
    return by


def _family(row: Mapping[str, Any], key: str, order: Sequence[str]) -> str:
    family = values.text(row, key, required=True)
    if family not in order:
        raise ConfigError(
            f"[policy] order has no {family!r}", f"one of: {', '.join(order)}", key=key
        )
    return family


# In ms.
def _length(row: Mapping[str, Any], key: str) -> int:
    text = values.text(row, key, required=True)
    number, unit = text[:-1], _SECONDS.get(text[-1:])
    good = unit is not None and number.isascii() and number.isdecimal() and len(number) < 10
    seconds = int(number) * (unit or 0) if good else 0
    if not 0 < seconds <= _MOST_SECONDS:
        raise ConfigError(
            f"{text!r} is no length of time",
            'a number with s, m, h or d behind it: "90s", "1h"; ten years at most',
            key=key,
        )
    return seconds * 1000


def _zone(row: Mapping[str, Any], key: str) -> str:
    from sealmq.attributes import zones  # few sites need it

    name = values.text(row, key, required=True)
    try:
        zones.zone(name)
    except LookupError:
        raise ConfigError(
            f"this host knows no time zone {name!r}",
            f"{near(name, zones.names())}, or UTC",
            key=key,
        ) from None
    return name


def _values_file(row: Mapping[str, Any], key: str, folder: Path | None) -> Path:
    values.text(row, key, required=True)
    found = values.path(row, key, folder)
    if found is None or found.suffix not in (".toml", ".json"):
        raise ConfigError(
            "the file's name does not say what it is", "it ends in .toml or .json", key=key
        )
    return found


def _families(t: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    for name, value in t.items():
        if not isinstance(value, dict):
            raise ConfigError(
                "a family's settings are a table", f"[families.{name}]", key=f"families.{name}"
            )
    return {name: MappingProxyType(value) for name, value in t.items()}
