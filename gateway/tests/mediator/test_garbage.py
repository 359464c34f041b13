"""When the garbage collector runs. Each test has a process of its own to change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AFTER = """
import gc
from sealmq import garbage
garbage.starting()
assert not gc.isenabled()
kept = [[n] for n in range(10_000)]
garbage.started()
looked_at = []
gc.callbacks.append(lambda phase, info: looked_at.append(info["generation"]))
assert gc.isenabled()
assert all(one is not kept for one in gc.get_objects()), "what was there is never looked at again"
later = [[n] for n in range(300_000)]
assert {0, 1} == set(looked_at), "many that come do not make it look at everything"
for _ in range(6_000_000):
    one = []
    one.append(one)
assert 2 in looked_at, "what has ended goes in the end"
"""


# A mediator's process as it is, without its site: who mediates looks, and ends it.
PROCESS = """
import asyncio, gc, os, signal, sys
from types import SimpleNamespace
from sealmq import garbage
from sealmq.mediator import process
from sealmq.mediator.attribute_sources import AttributeSources

class Counted:
    async def begin(self, attributes, closed):
        assert not closed

    async def end(self, whole):
        assert whole

class Crew:
    strangers = give = None
    whole = True
    looked = False

    async def start(self):
        assert not gc.isenabled(), "not before all is there"

    async def run(self):
        assert gc.isenabled() and gc.get_threshold() == garbage.THRESHOLDS
        assert gc.get_freeze_count(), "what is there is left alone"
        self.looked = True
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    def news(self):
        return [{"away": "the broker"}]

    async def stop(self):
        assert self.looked

async def serve(layout, secrets):
    sources = AttributeSources(None, None, None)
    config = SimpleNamespace(attributes={})
    run = asyncio.Event().wait
    keys = SimpleNamespace(snapshot={})
    owner = SimpleNamespace(hang_up=None, run=run, sources=sources, config=config)
    owner.keys, owner.counted = keys, Counted()
    await process.Process(layout, owner, Crew(), None).run()

process.receive = dict
process.Layout.open = lambda path: SimpleNamespace(ready=lambda role: path)
process.serve = serve
sys.exit(process.main([sys.argv[1]]))
"""


# A bridge's, a border's and an agent's process: what it would serve looks.
SERVING = """
import gc, sys
from sealmq import garbage, loops
from sealmq.agent import run as agent
from sealmq.bridge import serving

def looks(work):
    work.close()
    assert gc.isenabled() and gc.get_threshold() == garbage.THRESHOLDS
    assert gc.get_freeze_count(), "what is there is left alone"
    print("looked")

loops.run = looks
if sys.argv[1] == "agent":
    class Config:
        doors = ()
    agent.serve(Config, print)
else:
    async def work(layout, secrets):
        pass
    serving.Layout.open = lambda path: path
    serving.receive = dict
    assert serving.main("bridge", ["site"], work) == 0
"""


# So much as a bridge has under way, at most.
HEAP = """
import resource
from sealmq import garbage

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    messages = [bytes(16_384) + b"." for _ in range(60)]
    del messages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

garbage.started()
faults()
print(max(faults() for _ in range(5)))
"""


def test_what_was_there_at_the_start_is_not_looked_at_and_everything_seldom() -> None:
    run(AFTER)


def test_a_mediator_s_collector_begins_when_all_is_there_and_leaves_that_alone(
    tmp_path: Path,
) -> None:
    run(PROCESS, str(tmp_path / "ready.json"))


@pytest.mark.parametrize("process", ["agent", "bridge"])
def test_a_process_that_carries_messages_leaves_its_code_alone(process: str) -> None:
    assert run(SERVING, process) == "looked\n"


def test_what_large_messages_took_is_used_again_without_page_faults() -> None:
    assert int(run(HEAP)) < 50  # of 240


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
