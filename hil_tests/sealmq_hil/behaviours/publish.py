"""What a board publishes is read by a label above it, and by none below."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench
from ..errors import Failed
from ..processes import until
from ..site import BELOW, LIMITS, Site


def _run(bench: Bench) -> None:
    site = bench.site
    since = time.monotonic()
    with bench.stage("read"):
        seen = bench.fresh(since)
        message = site.above.since(seen.at - 0.5, bench.topic)[0]
        if message.sender != bench.client:
            raise Failed(f"it reads as from client {message.sender}, not {bench.client}")
    with bench.stage("refuse"):
        bench.meet(lambda: _last_word(site, since))
        read = [m for m in site.below.all() if m.topic == bench.topic]
        if read:
            raise Failed(f"a lower label has read {len(read)} of its messages")
    with bench.stage("heap") as stage:
        with bench.serial.away(), bench.heavy:
            stage.heap(bench.tools.heap(bench.board))
    before, since = bench.salts(), time.monotonic()
    bench.board.reset()
    bench.fresh(since, not_in=before)


# What the bystander gets behind all boards' messages says that it had every chance to get those.
def _last_word(site: Site, since: float) -> None:
    site.command("pub", site.path, "--client", BELOW, "-t", LIMITS, "-m", "last word", "-q", "1")
    until("the bystander to hear its own word", lambda: site.below.since(since, LIMITS))


BEHAVIOUR = Behaviour("publish", "read by a higher label, refused to a lower one", _run)
