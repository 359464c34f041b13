#!/usr/bin/env python3
"""Eclipse's interoperability tests (eclipse-paho/paho.mqtt.testing) in front of `sealmq agent`.

    git clone https://github.com/eclipse-paho/paho.mqtt.testing build/interop
    hil_tests/interop.py build/interop       runs all; writes hil_tests/interop.json; minutes
    hil_tests/interop.py build/interop will_delay retained_message
    hil_tests/interop.py --table             the counts, as gateway/AGENT.md has them

They are in no registry and are nobody's to pass but ours to explain: what each one that fails asks
for stands in AGENT.md. The agent has one user without a password, of the label `m1-temp`;
`test/nosubscribe` is `monitor`'s. Topics are as their own `main` has them. Their wait for a packet,
0.5 s, is 3 s here, and 1 s passes after each SUBSCRIBE, whose SUBACK not all of them wait for: who
reads takes a connection of its own to the site.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "hil_tests/interop.json"
SUITES = {"3.1.1": "client_test", "5": "client_test5"}
WAIT_S = 3.0
# Some wait for ever for what does not come.
TEST_S = 60


class Late(Exception):
    """A test is still waiting. (Their receiver overlooks a TimeoutError.)"""


def tests_of(module: Any) -> Iterator[Any]:
    """All of a file."""
    suites: Any = unittest.defaultTestLoader.loadTestsFromModule(module)
    for suite in suites:
        yield from suite


def played(folder: Path, suite: str, port: int, only: list[str]) -> dict[str, str]:
    """In this process: test -> "" if it passes, else the end of what it says."""
    sys.path.insert(0, str(folder))
    logging.disable()
    patient = socket.socket.settimeout
    socket.socket.settimeout = lambda self, _: patient(self, WAIT_S)  # type: ignore[method-assign]
    module = importlib.import_module(suite)
    client = module.mqtt_client.Client
    subscribe = client.subscribe

    def waits(*words: Any, **more: Any) -> Any:
        answer = subscribe(*words, **more)
        time.sleep(1)
        return answer

    client.subscribe = waits

    def late(*_: object) -> None:
        raise Late(f"it takes more than {TEST_S} s")

    signal.signal(signal.SIGALRM, late)
    prefix = "client_test5/" if suite.endswith("5") else ""
    names = "TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA"
    wild = "TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#"
    said = {
        "topics": [prefix + one for one in names],
        "wildtopics": [prefix + one for one in wild],
        "nosubscribe_topics": ("test/nosubscribe",),
        "host": "127.0.0.1",
        "port": port,
        "topic_prefix": prefix,
    }
    # Their setData names other topics than their main, and comes later.
    vars(module).update(said, setData=lambda: None)
    found = {}
    for test in tests_of(module):
        name = test.id().rpartition(".")[2].removeprefix("test_")
        if only and name not in only:
            continue
        result = unittest.TestResult()
        signal.alarm(TEST_S)
        unittest.TestSuite([test]).run(result)
        signal.alarm(0)
        wrong = [*result.failures, *result.errors]
        found[name] = wrong[-1][1].strip().splitlines()[-1][:200] if wrong else ""
    return found


def run(folder: Path, only: list[str]) -> dict[str, dict[str, str]]:
    """All suites, each in front of a site and an agent of its own."""
    sys.path.insert(0, str(ROOT / "hil_tests/tests"))
    from free_ports import free_port
    from running_site import SEALMQ, Site, publish, until

    found = {}
    for version, suite in SUITES.items():
        with tempfile.TemporaryDirectory(prefix="sealmq-interop-") as text:
            site = Site(Path(text))
            site.up("--broker", "mosquitto")
            port, log = free_port(), Path(text) / "agent.log"
            enrolment = site.enrol("interop", "m1-temp")
            site.enrol("other", "monitor")
            publish(site, "other", "test/nosubscribe", "x", "-q", "1")
            words = [SEALMQ, "agent", "--enrolment", enrolment, "--anonymous"]
            words += ["--listen", f"127.0.0.1:{port}"]
            with log.open("wb") as out:
                agent = subprocess.Popen(list(map(str, words)), stdout=out, stderr=out, cwd=text)  # noqa: S603
            try:
                until("the agent to listen", lambda log=log: "listens on" in log.read_text())  # type: ignore[misc]
                call = [sys.executable, __file__, "--played", suite, "--port", str(port)]
                done = subprocess.run(  # noqa: S603
                    [*call, str(folder), *only], stdout=subprocess.PIPE, text=True, check=True
                )
            finally:
                agent.terminate()
                agent.wait(30)
                site.down()
        found[version] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(results: dict[str, dict[str, str]]) -> str:
    """A line for each version."""
    lines = []
    for version, tests in results.items():
        failed = sorted(name for name, why in tests.items() if why)
        passed = len(tests) - len(failed)
        lines.append(f"MQTT {version}: {passed} of {len(tests)} pass; fail: {', '.join(failed)}")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """0 once all were run, whatever they said."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", type=Path, nargs="?", help="a clone of the tests")
    parser.add_argument("only", nargs="*", help="names of tests; nothing is written then")
    parser.add_argument("--table", action="store_true", help="print the last results")
    parser.add_argument("--played", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.table:
        print(table(json.loads(RESULTS.read_text())))
        return 0
    folder = args.suite and args.suite / "interoperability"
    if folder is None or not folder.is_dir():
        parser.error("say where a clone of eclipse-paho/paho.mqtt.testing is")
    if args.played:
        print(json.dumps(played(folder, args.played, args.port, args.only)))
        return 0
    found = run(args.suite.resolve(), args.only)
    if not args.only:
        RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(json.dumps(found, indent=1) if args.only else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
