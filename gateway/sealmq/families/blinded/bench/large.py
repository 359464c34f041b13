"""CUSTOMERS KINDS: what a large site costs the key generator. Prints rows of JSON.

CPU of this process: the first text, a grant to one customer, another policy for one kind of events;
each with all that mediators are told afterwards. A change of the text is the operator's command.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any

from bench_print import Row, row, show
from load_cpu import memory_mib

from sealmq.site.config import loads

from .. import MANIFEST, edit, kg_part

_SITE = """
[site]
name = "bench"
id = "00000001"
[labels]
all = []
[policy]
order = ["labels", "blinded"]
[clients]
"""


def _customer(n: int) -> str:
    return f"c{n:05d}"


def _text(customers: int, kinds: int) -> str:
    rows = [
        f'[customers.{_customer(n)}]\nhas = ["type = company & service = s{n % 100}"]\n'
        for n in range(customers)
    ]
    for n in range(kinds):
        rows.append(f'[policies."t/{n}"]\nlet = ["type = company & service = s{n}"]\n')
        rows.append(f'[[events]]\nid = "{n:016x}"\nclient = "{_customer(0)}"\ntopic = "t/{n}"\n')
    return "".join(rows)


def rows(customers: int, kinds: int) -> list[Row]:
    """One row a measure."""
    told = "".join(f'{_customer(n)} = {{ label = "all" }}\n' for n in range(customers))
    config = loads(_SITE + told)
    text = _text(customers, kinds)
    made: list[Row] = []

    def add(measure: str, value: float, unit: str) -> None:
        one = row(measure, MANIFEST.name, value, unit, 1, size=256)
        one["params"] |= {"customers": customers, "kinds": kinds}
        made.append(one)

    def timed(measure: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        got = work()
        add(f"large_{measure}", time.process_time() - began, "s")
        return got

    def kept(before: bytes, said: str) -> tuple[bytes, int]:
        after = kg_part.take(config, before, said.encode(), secrets.token_bytes)
        kg_part.grants(config, after)
        return after, sum(len(value) for _, value in kg_part.rows(config, after))

    before = memory_mib(os.getpid())
    first, size = timed("first", lambda: kept(b"", text))
    add("large_told", size / 1e6, "MB")
    add("large_memory", memory_mib(os.getpid()) - before, "MiB")
    granted = timed(
        "edit", lambda: edit.grant(text, _customer(7), ["type = company & service = s0"], None)
    )
    timed("grant", lambda: kept(first, granted))
    update = edit.update(text, "policy", "t/0", ["type = company & service = s7"])
    timed("update", lambda: kept(first, update))
    return made


if __name__ == "__main__":
    show(rows(int(sys.argv[1]), int(sys.argv[2])))
