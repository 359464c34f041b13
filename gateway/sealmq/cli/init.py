"""`sealmq init`: a new site folder, and its key outside of it. Nothing is ever overwritten.

The folder is made under another name and renamed when it is whole: a run that is cut off leaves no
half site behind under the name that was asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from sealmq.families import registry
from sealmq.families.api import UnfitFamily
from sealmq.families.manifest import Policy
from sealmq.kg.local import create
from sealmq.site import masterkey, reach, values
from sealmq.site.config import Config, loads
from sealmq.site.edit import fill
from sealmq.site.errors import ConfigError, NoSite
from sealmq.site.layout import Layout, prepare, sync_folder, write_atomically

from .errors import OperatorError, UsageError

# The policy of a new site: a reader needs a label and a purpose.
DEFAULT = "purposes"
_EXAMPLE_SITES = ("factory",)
"""Those that every policy has a part for; others are a policy's own."""

_KEPT = "kept.toml"
"""Of what an example brings: what the key generator keeps for the family; no file of the site."""

_EXAMPLES = """\
examples:
  sealmq init site                                    a site without labels and clients yet
  sealmq init site --policy labels                    a label is enough to read
  sealmq init factory --example factory               two machines and a control room, ready to run
  sealmq init site --key-file /media/stick/site.key   the key on a stick (made there if missing)
  sealmq init site --broker mosquitto                 with a Mosquitto of its own (recommended)
  sealmq init site --listen 0.0.0.0:1883              for clients on other hosts; it says which
                                                      address they are told

The key file opens the site's secrets. It lies outside SITE, by default in ~/.config/sealmq (for
root /etc/sealmq). Keep a backup of it, apart from the backups of SITE. A systemd credential named
sealmq-key takes its place.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq init SITE"""
    policies = {m.name: m.policy for m in registry.manifests() if m.policy}
    parser = sub.add_parser(
        "init",
        help="make a site folder with a commented sealmq.toml",
        description="Make a site folder: sealmq.toml, the key generator's store, and a key file "
        "outside of it.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the folder to make; it must not be there yet")
    parser.add_argument(
        "--example",
        choices=(*_EXAMPLE_SITES, *(name for p in policies.values() for name in p.examples)),
        help="begin with this policy",
    )
    parser.add_argument(
        "--policy",
        choices=tuple(policies),
        help="; ".join(f"{name}: {policy.help}" for name, policy in policies.items())
        + f" (default: the example's, or {DEFAULT})",
    )
    parser.add_argument("--key-file", metavar="FILE", help="where the key lies, or is to be made")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:1883",
        help="where clients connect (default: %(default)s)",
    )
    parser.add_argument(
        "--broker",
        choices=("embedded", "mosquitto"),
        default="embedded",
        help="what runs behind the mediator: embedded, for a first look (default), or a private "
        "Mosquitto, which keeps sessions",
    )
    parser.add_argument("--json", action="store_true", help="say what was made as JSON")


def run(args: argparse.Namespace) -> int:
    """Make the site; print where its parts are."""
    root = Path(args.site).absolute()
    _refuse_to_overwrite(root)
    told, chosen = _told(*_address(args.listen))
    family = _family(args.policy, args.example)
    policy = registry.manifest(family).policy or Policy("")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", root.name).lstrip("._-")[:64] or "site"
    site = secrets.token_bytes(4)
    key_file, made_key = _key_file(args.key_file, name, site, root)
    try:
        text = _text(
            args.example or "plain",
            family,
            {
                "name": name,
                "id": site.hex(),
                "listen": args.listen,
                "broker": args.broker,
                **({} if key_file is None else {"key_file": str(key_file)}),
                **policy.words,
                **({} if chosen is None else {"advertise": told}),
            },
        )
        beside = _beside(args.example, family)
        kept = {family: beside.pop(_KEPT)} if _KEPT in beside else {}
        config = _build(root, text, key_file, beside, kept)
    except BaseException:
        if made_key and key_file is not None:
            key_file.unlink(missing_ok=True)
        raise
    _say(args, root, config, key_file, chosen, policy.closed)
    return 0


def _address(listen: str) -> tuple[str, int]:
    try:
        return values.address(listen, "--listen")
    except ConfigError as error:
        raise UsageError(f"--listen: {error.what}", hint=error.hint) from None


def _refuse_to_overwrite(root: Path) -> None:
    if root.is_symlink() or (root.exists() and (not root.is_dir() or any(root.iterdir()))):
        what = "is a site already" if (root / "sealmq.toml").exists() else "is there and not empty"
        raise NoSite(f"{root} {what}; nothing was changed", "name a folder that is not there yet")


# (the key file or None when systemd has it, whether it was made here)
def _key_file(given: str | None, name: str, site: bytes, root: Path) -> tuple[Path | None, bool]:
    if given is None and masterkey.credential() is not None:
        return None, False
    path = Path(given).absolute() if given else masterkey.default_path(name, site)
    masterkey.refuse_inside(path, root)
    if given and path.exists():
        masterkey.read(path)
        return path, False
    masterkey.create(path, root)
    return path, True


def _family(policy: str | None, example: str | None) -> str:
    """The policy: the one that is named, else the example's own, else the default."""
    of = next(
        (m.name for m in registry.manifests() if m.policy and example in m.policy.examples), ""
    )
    if of and policy not in (None, of):
        raise UsageError(
            f"the example {example} has the policy {of}, not {policy}", hint=f"--policy {of}"
        )
    return policy or of or DEFAULT


def _beside(example: str | None, policy: str) -> dict[str, bytes]:
    """What an example brings besides sealmq.toml, by file name."""
    folder = resources.files(f"sealmq.families.{policy}") / "templates" / (example or "plain")
    return {f.name: f.read_bytes() for f in folder.iterdir()} if folder.is_dir() else {}


def _text(example: str, policy: str, words: dict[str, str]) -> str:
    site = resources.files("sealmq.site") / "templates"
    family = resources.files(f"sealmq.families.{policy}") / "templates"
    order = family / "order.toml"
    if not order.is_file():
        raise UnfitFamily(
            policy,
            f"the policy family {policy!r} has no templates/order.toml",
            "put one into its folder: [policy] and its order, as labels/templates has it",
        )
    parts = [site / "head.toml", order]
    parts += [part for of in (site, family) if (part := of / f"{example}.toml").is_file()]
    return fill("".join(part.read_text(encoding="utf-8") for part in parts), words)


# What enrolment files carry, and how it was chosen where the site listens on all addresses.
def _told(host: str, port: int) -> tuple[str, reach.Chosen | None]:
    if host not in values.ANYWHERE:
        return reach.written(host, port), None
    chosen = reach.choose(host) or reach.Chosen(
        "::1" if ":" in host else "127.0.0.1", "this host has no other, and nobody elsewhere has it"
    )
    return reach.written(chosen.address, port), chosen


def _build(
    root: Path,
    text: str,
    key_file: Path | None,
    beside: dict[str, bytes],
    kept: dict[str, bytes],
) -> Config:
    root.parent.mkdir(parents=True, exist_ok=True)
    draft = Layout(Path(tempfile.mkdtemp(prefix=f".{root.name}.", dir=root.parent)))
    try:
        config = loads(text, Layout(root).config)
        prepare(draft)
        write_atomically(draft.config, text.encode(), 0o640)
        for file, content in beside.items():
            write_atomically(draft.root / file, content, 0o640)
        write_atomically(draft.salt, secrets.token_bytes(masterkey.SALT_BYTES), 0o600)
        prepare(draft)
        create(draft, config, masterkey.role_keys(draft, config, key_file).kg, kept)
        prepare(draft)
        try:
            os.rename(draft.root, root)
        except OSError as error:
            raise OperatorError(f"{root} cannot be made: {error.strerror}") from None
        sync_folder(root.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft.root)
        raise
    return config


def _say(
    args: argparse.Namespace,
    root: Path,
    config: Config,
    key_file: Path | None,
    chosen: reach.Chosen | None,
    closed: str,
) -> None:
    mediator = config.mediator
    told = reach.written(mediator.advertise_host, mediator.advertise_port)
    if chosen is not None:
        others = f", not {', '.join(chosen.others)}" if chosen.others else ""
        print(
            f"warning: clients are told {told} ({chosen.why}{others}); if they reach this host by "
            "another address, or it may change, set advertise in sealmq.toml before clients are "
            "added",
            file=sys.stderr,
        )
    if args.json:
        made = {
            "site": str(root),
            "name": config.site.name,
            "id": config.site.id.hex(),
            "key_file": None if key_file is None else str(key_file),
            "advertise": told,
            "labels": list(config.labels),
            "clients": list(config.clients),
            "policy": list(config.policy.order),
        }
        print(json.dumps(made))
        return
    where = "the systemd credential" if key_file is None else str(key_file)
    print(f"site      {root}")
    print(f"policy    {root / 'sealmq.toml'}")
    print(f"clients   connect to {told} (enrolment files say so; advertise in sealmq.toml)")
    print(f"key       {where} (keep a backup, apart from the site's)")
    if closed and not args.example:
        print(f"closed    {closed}")
    print(f"next      sealmq up {args.site}")
