"""A bench as a command: the words that all take, how it ends, and what it measures in processes of
their own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_print import Row, count, text_of
from load_cpu import LoadError
from load_sites import FOLDER, ROOT, START_S

MISSED = 3
"""The exit status when a bar is missed."""


@dataclass(frozen=True)
class Command:
    """`name`: bench_NAME begins what it says on stderr, and build/bench/NAME.json has all that it
    measured. `only`: what may be chosen to be measured alone, by option; `counts`: options that are
    numbers, and their words. `barred`: it has bars that may be missed. `ours`: its processes of
    ours may be another interpreter's.
    """

    name: str
    prog: str
    about: str
    examples: str
    only: Mapping[str, Sequence[str]]
    counts: Mapping[str, str]
    barred: bool = False
    ours: bool = False

    @property
    def out(self) -> Path:
        """The file of all that was measured."""
        return ROOT / "build" / "bench" / f"{self.name}.json"

    def read(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """What is asked for."""
        parser = argparse.ArgumentParser(
            prog=self.prog,
            description=self.about.partition("\n\n")[0],
            epilog=self.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, choices in self.only.items():
            parser.add_argument(
                f"--{name}",
                action="append",
                choices=choices,
                metavar=name.upper(),
                help=f"only this {name}; again for another: {', '.join(choices)}",
            )
        for name, words in self.counts.items():
            parser.add_argument(f"--{name}", type=count, metavar="N", help=words)
        parser.add_argument("--quick", action="store_true", help="tiny numbers: does it work here?")
        parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
        default = f"{self.out.relative_to(ROOT)} when all is measured"
        parser.add_argument("--out", type=Path, help=f"write the rows there as well; {default}")
        if self.ours:
            parser.add_argument(
                "--python",
                metavar="FILE",
                help="the interpreter of SealMQ's processes, with SealMQ installed, such as "
                "/opt/sealmq/bin/python; by default the bench's own",
            )
        if self.barred:
            parser.add_argument(
                "--allow-misses",
                action="store_true",
                help=f"end with 0, not {MISSED}, when a bar is missed",
            )
        return parser.parse_args(argv)

    def end(
        self,
        given: argparse.Namespace,
        run: Callable[[], list[Row]],
        table: Callable[[Sequence[Row]], str],
        missed: Callable[[Sequence[Row]], Iterable[str]] = lambda rows: (),
    ) -> int:
        """Measures, tells, writes; the exit status. `missed`: the bars that the rows miss."""
        # As Ctrl-C: what was started is ended.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        out = given.out
        if out is None and not given.quick and not any(getattr(given, name) for name in self.only):
            out = self.out
        try:
            rows = run()
            if out is not None:
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(text_of(rows), encoding="utf-8")
        except (LoadError, OSError, ValueError, subprocess.SubprocessError) as error:
            self._say(words_of(error))
            return 1
        except KeyboardInterrupt:
            self._say("interrupted; everything that was started has ended")
            return 130
        print(json.dumps({"rows": rows}) if given.json else table(rows))
        misses = list(missed(rows))
        for line in misses:
            self._say(f"missed: {line}")
        return MISSED if misses and not given.allow_misses else 0

    def _say(self, line: str) -> None:
        print(f"bench_{self.name}: {line}", file=sys.stderr)


def words_of(error: Exception) -> str:
    """With its hint."""
    hint = getattr(error, "hint", "")
    return f"{error} (hint: {hint})" if hint else str(error)


def apart(module: str, *words: str) -> list[Row]:
    """The rows that a module prints, in a process of its own: a million rows that it holds are gone
    with it. LoadError.
    """
    path = os.pathsep.join((str(FOLDER), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", module, *words],
        env={**os.environ, "PYTHONPATH": path.strip(os.pathsep)},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S,
    )
    if done.returncode:
        told = done.stderr.strip()[-500:]
        raise LoadError(f"{module.rpartition('.')[2]} {' '.join(words)}: {told}")
    rows: list[Row] = json.loads(done.stdout)["rows"]
    return rows
