"""`sealmq board build`: an enrolment file, Wi-Fi and the client's files become a board's images."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from . import bundle, client_files, enrolment, littlefs, nvs_image
from .chips import CHIPS, HOST_ARCHS, NVS_SIZE, VFS_SIZE, Chip
from .cli import alone
from .errors import BoardError, UsageError

HELP = "make the images for one board, from its enrolment file"
EXAMPLES = """\
examples:
  sealmq board build --enrolment m1.sealmq.json --wifi wifi.json --topic machine/1/t -o m1.board
  sealmq board build --enrolment m1.sealmq.json --wifi ask --chip esp32c3 -o m1.board
  pass show wifi.json | sealmq board build --enrolment m1.sealmq.json --wifi - -o m1.board
  sealmq board build --enrolment m1.sealmq.json --arch x64 -o m1.board     for a virtual board
  sealmq board build --archive clients.tar.age --identity key.txt --client hall-1 \\
      --wifi wifi.json -o hall-1.board

wifi.json: {"ssid": "workshop", "key": "..."}. Secrets are never given as arguments. m1.board/ holds
the client's secret (mode 0600) until `sealmq board flash` has brought it to the board.
"""
_LARGEST_APP = 4096
_LEAST_S, _MOST_S = 0.1, 86400
CLIENT = "%c"
"""In these of app.json: the client's name, as rules of a site have it."""
_NAMED = ("topic", "subscribe")
_APP = {"topic": "", "every": 10, "qos": 1, "subscribe": "", "purpose": ""}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    enrolment.add_arguments(parser)
    image_arguments(parser)
    parser.add_argument(
        "-o", "--output", metavar="NAME.board", required=True, help="the folder to make"
    )
    parser.add_argument("--replace", action="store_true", help="overwrite a bundle that is there")
    parser.add_argument("--json", action="store_true", help="bundle.json on stdout")


def image_arguments(parser: argparse._ActionsContainer) -> None:
    """What is in the images besides the enrolment."""
    parser.add_argument(
        "--wifi", metavar="FILE", help='{"ssid", "key"}; `-` reads stdin, `ask` asks'
    )
    parser.add_argument("--chip", choices=CHIPS, default="esp32", help="default: esp32")
    parser.add_argument("--arch", choices=HOST_ARCHS, help="for a virtual board's interpreter")
    parser.add_argument(
        "--set",
        default="everything",
        help="which of the client's sets of modules; default: everything",
    )
    parser.add_argument(
        "--files", metavar="DIR", help="the folder of these sets, in place of those that came along"
    )
    parser.add_argument(
        "--mediator",
        metavar="HOST:PORT",
        help="in place of the address in the enrolment; mdns: the board looks for it by itself",
    )
    app_arguments(parser)


def app_arguments(parser: argparse._ActionsContainer) -> None:
    """What the board's program does; none of it is secret."""
    parser.add_argument("--topic", help="what the board publishes to; %%c: its client's name")
    parser.add_argument("--every", type=_seconds, metavar="SECONDS", help="how often; default: 10")
    parser.add_argument("--qos", type=int, choices=(0, 1), help="default: 1")
    parser.add_argument("--subscribe", metavar="FILTER", help="what it listens to; %%c likewise")
    parser.add_argument("--purpose", help="what for, where the site asks for that")
    parser.add_argument("--app", metavar="FILE", help="an app.json, where options are not enough")
    parser.add_argument("--main", metavar="FILE", help="your program, in place of main.py")


def run(args: argparse.Namespace) -> int:
    """Make the bundle."""
    if not args.output.rstrip("/").endswith(".board"):
        raise UsageError(
            f"-o {args.output}", "the folder's name ends in .board", hint="-o m1.board"
        )
    who = enrolment.given(args)
    if who is None:
        raise UsageError(
            "an enrolment is required",
            "--enrolment FILE, or --archive FILE --identity FILE --client NAME",
            hint="`sealmq client add` writes it",
        )
    made = recipe(args)
    if not args.arch and not made.finds:
        warn_of_address(made.told(who))
    target = Path(args.output)
    made.write(target, who, args.replace)
    if args.json:
        print((target / bundle.ABOUT).read_text(), end="")
        return 0
    print(
        f"{target}: {who.name or who.client} on {made.chip.title}, {made.used(who):,} bytes of "
        "files"
    )
    still = f"; {args.enrolment} still does" if args.enrolment else ""
    print(f"it holds the client's secret (mode 0600) until it is flashed{still}")
    print(f"next: sealmq board flash {target} --firmware FILE --board ID")
    return 0


class Recipe(NamedTuple):
    """The parts of a board's images that do not depend on its client, read and checked."""

    chip: Chip
    arch: str
    which: str
    wifi: bytes | None
    mediator: str | None
    client: dict[str, bytes]
    app: dict[str, Any]
    main: Path | None

    @property
    def finds(self) -> bool:
        """Whether the board looks for its mediator by itself."""
        return self.mediator == enrolment.MDNS

    def told(self, who: enrolment.Enrolment) -> enrolment.Enrolment:
        """With the mediator's address that the board will have."""
        if self.mediator is None or self.finds:
            return who
        host, _, port = self.mediator.rpartition(":")
        return who._replace(host=host, port=int(port))

    def used(self, who: enrolment.Enrolment) -> int:
        """Bytes of files."""
        return sum(len(content) for content in self._files(who)[0].values())

    def write(self, target: Path, who: enrolment.Enrolment, replace: bool = False) -> None:
        """Make the bundle of a client. BoardError."""
        files, folders = self._files(who)
        values = {nvs_image.ENROLMENT: who.raw}
        if self.wifi is not None:
            values[nvs_image.WIFI] = self.wifi
        if self.mediator is not None:
            values[nvs_image.MEDIATOR] = self.mediator.encode()
        known = enrolment.digests(who)
        about = {
            "sealmq": importlib.metadata.version("sealmq"),
            "chip": self.chip.name,
            "arch": self.arch,
            "set": self.which,
            "client": {"number": who.client, "name": who.name, "site": who.site},
            "enrolment": known[0],
            "mediator": self.mediator or f"{who.host}:{who.port}",
            "sizes": bundle.sizes(),
        }
        nvs = nvs_image.image(values, NVS_SIZE)
        vfs = littlefs.image(files, folders, VFS_SIZE)
        bundle.write(target, about, nvs, vfs, replace, known)

    def _files(self, who: enrolment.Enrolment) -> tuple[dict[str, bytes], set[str]]:
        named = {key: str(self.app[key]).replace(CLIENT, who.name) for key in _NAMED}
        return client_files.file_system(self.client, self.app | named, self.main)


def recipe(args: argparse.Namespace) -> Recipe:
    """What the arguments say. BoardError, UsageError."""
    wifi = enrolment.wifi(args.wifi) if args.wifi else None
    if not (args.wifi or args.arch):
        _warn("no --wifi: the board will have no network", "`sealmq board provision` gives it one")
    mediator = enrolment.mediator(args.mediator) if args.mediator else None
    chip = CHIPS[args.chip]
    arch = args.arch or chip.arch
    built = Path(args.files) if args.files else client_files.BUILT
    client = client_files.client_set(args.set, arch, built, ours=not args.main)
    if mediator == enrolment.MDNS:
        client_files.check_finds(f"the set {args.set}", client)
    main = Path(args.main) if args.main else None
    return Recipe(chip, arch, args.set, wifi, mediator, client, app_settings(args), main)


def warn_of_address(who: enrolment.Enrolment) -> None:
    """For a real board: its mediator's address, where no board gets there."""
    if who.unreachable:
        _warn(
            f"the mediator's address is {who.host}, which is {who.unreachable}",
            "`advertise` in the site's sealmq.toml, or --mediator HOST:PORT",
        )


def app_given(args: argparse.Namespace) -> bool:
    """Whether anything of app.json was given."""
    return any(getattr(args, name) is not None for name in ("app", *_APP))


def app_settings(args: argparse.Namespace, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The content of app.json; `before`: what it was. BoardError."""
    app: dict[str, Any] = _APP | (before or {})
    if args.app:
        raw = Path(args.app).read_bytes()
        try:
            given = json.loads(raw) if len(raw) <= _LARGEST_APP else None
            client_files.as_json(given)
        except UnicodeEncodeError:
            raise BoardError(
                f"{args.app} has half of a character (an escape \\ud800 to \\udfff)",
                "texts in UTF-8",
            ) from None
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            raise BoardError(f"{args.app} is no JSON object of at most {_LARGEST_APP:,} bytes")
        if {"ps", "key", "ssid"} & set(given):
            raise BoardError(
                f"{args.app} has a member ps, key or ssid: what is in app.json is no secret",
                hint="--enrolment and --wifi bring secrets to the board",
            )
        app |= given
    for name in _APP:
        if getattr(args, name) is not None:
            app[name] = getattr(args, name)
    for name in _APP:
        if not _sound(name, app[name]):
            right = {"every": "0.1 to 86400 seconds", "qos": "0 or 1"}.get(name, "a text in UTF-8")
            raise BoardError(f"{name} is {app[name]!r}", right, hint=f"--{name}, or --app FILE")
    if {"#", "+"} & set(app["topic"]):
        raise BoardError(
            f"the topic {app['topic']} has a wildcard; one publishes to a topic",
            hint="--subscribe takes filters",
        )
    if not (app["topic"] or args.main):
        _warn("no --topic: the board will publish nothing", "--topic machine/1/temperature")
    return app


# Whether the board's program can do with it.
def _sound(name: str, value: Any) -> bool:
    if name == "every":
        return type(value) in (int, float) and _LEAST_S <= value <= _MOST_S
    if name == "qos":
        return type(value) is int and value in (0, 1)
    return enrolment.is_text(value)


def _seconds(word: str) -> float:
    value = float(word)
    if not _LEAST_S <= value <= _MOST_S:
        raise argparse.ArgumentTypeError("0.1 to 86400 seconds")
    return int(value) if value == int(value) else value


def _warn(text: str, hint: str) -> None:
    print(f"sealmq board: warning: {text}\nhint: {hint}", file=sys.stderr)


if __name__ == "__main__":
    alone(__spec__.name)
