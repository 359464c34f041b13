"""The table at the end: fault x rounds x recovery, lost, doubled, other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from rich.table import Table

from .runner import Result


def table(results: Iterable[Result]) -> Table:
    """One row a kind of fault."""
    by_kind: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_kind[result.round.kind].append(result)
    made = Table(title="faults")
    for name in ("fault", "rounds", "recovery s", "max", "acked", "doubt", "refused", "lost",
                 "doubled", "other"):  # fmt: skip
        made.add_column(name, justify="left" if name == "fault" else "right", no_wrap=True)
    for kind, rows in sorted(by_kind.items()):
        times = [r.recovery for r in rows if r.recovery is not None]
        wrong = [text for r in rows for text in r.wrong]
        lost = sum(text.startswith("lost") for text in wrong)
        doubled = sum(text.startswith("doubled") for text in wrong)
        made.add_row(
            kind,
            str(len(rows)),
            f"{median(times):.2f}" if times else "-",
            f"{max(times):.2f}" if times else "-",
            *(str(sum(r.tally.get(s, 0) for r in rows)) for s in ("ack", "doubt", "refused")),
            str(lost),
            str(doubled),
            str(len(wrong) - lost - doubled),
        )
    return made
