"""Who comes with an enrolment of before `client rotate` is refused, and not called a forger."""

from __future__ import annotations

import json
from pathlib import Path

from running_site import Site, sealmq, until


def test_an_old_enrolment_is_refused_by_another_rule_than_a_forged_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    old = site.enrol("thermometer", "m1-temp")
    forged = site.enrol("sensor", "m1-temp")
    said = json.loads(forged.read_text())
    forged.write_text(json.dumps(said | {"ps": "00" * 32}))
    site.up()

    def publishes(enrolment: Path) -> int:
        words = ("-t", "machine/1/temperature", "-m", "21.5")
        return sealmq("pub", "--enrolment", enrolment, *words).returncode

    def refused() -> list[str]:
        rows = (*site.audit("connect-refused"), *site.audit("packet-refused"))
        return sorted(str(row["rule"]) for row in rows)

    try:
        assert publishes(old) == 0
        new = tmp_path / "new.json"
        done = sealmq("client", "rotate", site.path, "thermometer", "-o", new)
        assert done.returncode == 0, done.stderr
        # With what it has kept, and as it was before its first connection.
        assert publishes(old) != 0
        Path(f"{old}.state").unlink()
        assert publishes(old) != 0
        ended = ["mediator.connect.ended", "mediator.control.ended", "mediator.control.ended"]
        until("both to be in the log", lambda: refused() == ended)
        assert publishes(new) == 0
        assert publishes(forged) != 0
        unproved = [*ended, "mediator.control.unauthentic"]
        until("it to be in the log", lambda: refused() == unproved)
    finally:
        site.down()
