"""The policy family allowlist in a started site: a board and clients of this host do what rules
let them, and nothing else; `explain`, `doctor` and the audit log say by which rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from devices import DeviceError, device
from running_site import Reading, Site, ran, sealmq, until

SENSOR, PANEL = "m1-temp-sensor", "m1-control-panel"
TEMP, ANGLE = "machine/1/temperature", "machine/1/arm/angle"


FROM = """
[[families.allowlist.rule]]
labels = ["m1-temp"]
publish = ["signed/#"]

[[families.allowlist.rule]]
clients = ["panel"]
read = ["signed/#"]
from = ["one"]

[[families.allowlist.rule]]
clients = ["monitor"]
read = ["signed/#"]
from = ["two"]
"""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The factory as `sealmq init --policy allowlist` makes it, running."""
    made = Site(tmp_path_factory.mktemp("ruled"), policy="allowlist")
    made.up()
    yield made
    made.down()


@pytest.mark.parametrize("bits", [pytest.param(64, marks=pytest.mark.full), 32])
def test_boards_publish_and_read_what_rules_allow_them_and_nothing_else(
    ruled: Site, bits: int
) -> None:
    names = {name: f"{name}-{bits}" for name in ("sensor", "panel")}
    sensor_file = ruled.enrol(names["sensor"], "m1-temp")
    panel_file = ruled.enrol(names["panel"], "m1-ctrl")
    with device(sensor_file, bits) as sensor, device(panel_file, bits) as panel:
        panel.subscribe("machine/#")
        sensor.publish(TEMP, "21.5")
        assert [m["payload"] for m in panel.receive(1)] == ["21.5"]
        sensor.publish(f"state/{names['sensor']}", "here")
        for topic in (f"state/{names['panel']}", "state/%c", "machine/1/new", "state"):
            with pytest.raises(DeviceError, match=r"rule allowlist\.publish\.not-allowed"):
                sensor.publish(topic, "x")
        # Its label would do for these.
        for filt in (TEMP, "machine/+/temperature", f"state/{names['sensor']}", "+"):
            with pytest.raises(DeviceError, match=r"rule allowlist\.subscribe\.not-allowed"):
                sensor.subscribe(filt)
        sensor.subscribe("settings/#")
        with pytest.raises(DeviceError, match=r"rule allowlist\.subscribe\.not-allowed"):
            sensor.subscribe(f"settings/{names['panel']}/pace")
        # The session goes on.
        sensor.publish(TEMP, "22")
        assert [m["payload"] for m in panel.receive(1)] == ["22"]
    refused = ruled.audit("publish-refused", client=names["sensor"])
    assert {row["rule"] for row in refused} == {"allowlist.publish.not-allowed"}


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.full), 2])
def test_boards_and_clients_of_this_host_get_messages_of_the_senders_that_rules_name(
    tmp_path: Path, workers: int
) -> None:
    made = Site(tmp_path, policy="allowlist")
    made.edit("[mediator]\n", f"[mediator]\nworkers = {workers}\n")
    files = {name: made.enrol(name, "m1-temp") for name in ("one", "two")}
    files["panel"] = made.enrol("panel", "m1-ctrl")
    made.toml.write_text(made.toml.read_text() + FROM)
    made.up()
    try:
        with (
            device(files["one"], 64) as one,
            device(files["two"], 32) as two,
            device(files["panel"], 32) as panel,
        ):
            monitor = Reading(made, tmp_path, "-t", "signed/#")
            panel.subscribe("signed/#")
            for payload in ("21", "22"):
                two.publish("signed/x", payload)
                one.publish("signed/x", payload)
            two.publish("signed/kept", "forged", retain=True)
            one.publish("signed/last", payload)
            got = [(m["topic"], m["payload"]) for m in panel.receive(3)]
            assert got == [("signed/x", "21"), ("signed/x", "22"), ("signed/last", "22")]
            until("what the other sends", lambda: len(monitor.lines()) == 3)
            assert monitor.lines() == ["signed/x 21", "signed/x 22", "signed/kept forged"]
            monitor.end()
        question = ("explain", made.path, "deliver", "--client", "panel", "-t", "signed/x")
        assert "only messages of one" in ran(*question)
        assert "panel may read signed/x from one" in ran(*question, "--from", "one")
        done = sealmq(*question, "--from", "two")
        assert done.returncode == 1
        assert "panel may not read signed/x from two" in done.stdout
        said = json.loads(sealmq(*question, "--from", "two", "--json").stdout)
        assert (said["rule"], said["from"]) == ("allowlist.deliver.other-sender", "two")
        done = sealmq("client", "remove", made.path, "one")
        assert done.returncode != 0
        assert "families.allowlist.rule.10.from" in done.stderr
    finally:
        made.down()
    rows = made.audit("deliver-denied", client="panel")
    assert {row["rule"] for row in rows} == {"allowlist.deliver.other-sender"}
    assert {row["sender"] for row in rows} == {"two"}


def test_clients_of_this_host(ruled: Site, tmp_path: Path) -> None:
    monitor = Reading(ruled, tmp_path, "-t", "#")
    ran("pub", ruled.path, "--client", SENSOR, "-t", TEMP, "-m", "21", "-q", 1)
    until("the message", lambda: monitor.lines() == [f"{TEMP} 21"])
    monitor.end()
    done = sealmq("pub", ruled.path, "--client", SENSOR, "-t", "machine/9/x", "-m", "1", "-q", 1)
    assert done.returncode != 0
    assert "no rule lets this client publish there" in done.stderr
    assert "hint: [[families.allowlist.rule]] of sealmq.toml" in done.stderr
    done = sealmq("sub", ruled.path, "--client", SENSOR, "-t", TEMP, "-W", 10)
    assert done.returncode != 0
    assert "no rule lets this client read any of it" in done.stderr
    assert "Traceback" not in done.stderr


def test_explain_says_by_which_rule(ruled: Site) -> None:
    done = sealmq("explain", ruled.path, "publish", "--client", SENSOR, "-t", TEMP)
    assert done.returncode == 0
    assert "rule 1 lets m1-temp publish on machine/1/temperature" in done.stdout
    done = sealmq("explain", ruled.path, "deliver", "--client", SENSOR, "-t", TEMP, "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["rule"] == "allowlist.deliver.not-allowed"


def test_the_doctor_passes_and_tries_what_no_rule_allows(ruled: Site) -> None:
    before = ruled.toml.read_bytes()
    done = sealmq("doctor", ruled.path, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    tries = {row["name"]: row for row in json.loads(done.stdout)["tries"]}
    wanted = {
        "publish what no rule allows": "allowlist.publish.not-allowed",
        "subscribe to what no rule allows": "SUBACK 0x80",
        "read what no rule allows": "nothing is delivered",
        "read what no rule allows from its sender": "nothing is delivered",
        "open what is sealed to another's link": "it opens for the reader alone",
    }
    assert {name: tries[name]["reason"] for name in wanted} == wanted
    assert all(row["ok"] is True for row in tries.values())
    assert ruled.toml.read_bytes() == before


def test_the_doctor_beside_purposes_passes_too(site: Site) -> None:
    site.edit('order = ["labels"]\n', 'order = ["labels", "purposes", "allowlist"]\n')
    site.up()
    done = sealmq("doctor", site.path, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    names = {row["name"] for row in json.loads(done.stdout)["tries"]}
    assert {"read what no rule allows", "reserve topics of others"} <= names


def test_where_rules_do_not_judge_the_doctor_finds_out(tmp_path: Path) -> None:
    made = Site(tmp_path, policy="allowlist")
    made.edit("[policy]\n", "[policy]\nenforce = false\n")
    made.up()
    try:
        done = sealmq("doctor", made.path, "--json")
    finally:
        made.down()
    assert done.returncode == 1
    failed = {row["name"] for row in json.loads(done.stdout)["tries"] if row["ok"] is False}
    assert {
        "publish what no rule allows",
        "subscribe to what no rule allows",
        "read what no rule allows",
        "read what no rule allows from its sender",
    } <= failed


def test_a_wrong_rule_is_told_at_up_and_at_reload_and_the_site_goes_on(ruled: Site) -> None:
    before = ruled.toml.read_text()
    wrong = '[[families.allowlist.rule]]\npublish = ["own/%u"]\n'
    ruled.toml.write_text(before + wrong)
    try:
        done = sealmq("reload", ruled.path)
        assert done.returncode != 0
        line = ruled.toml.read_text().splitlines().index('publish = ["own/%u"]') + 1
        assert f"sealmq.toml, line {line}: families.allowlist.rule." in done.stderr
        assert "'%u' in 'own/%u' is neither %c nor %l" in done.stderr
        assert "hint: %c stands for the client's name" in done.stderr
        assert "Traceback" not in done.stderr
        ran("pub", ruled.path, "--client", SENSOR, "-t", TEMP, "-m", "21", "-q", 1)
    finally:
        ruled.toml.write_text(before)


def test_a_client_whose_name_is_a_wildcard_is_not_added(ruled: Site) -> None:
    for name in ("+", "#", "a/b", "a+"):
        done = sealmq("client", "add", ruled.path, name, "--label", "m1-temp")
        assert done.returncode != 0, name
        assert "is no name" in done.stderr


def test_a_client_that_a_rule_names_is_not_taken_out_unnoticed(ruled: Site) -> None:
    done = sealmq("client", "remove", ruled.path, "monitor")
    assert done.returncode != 0
    assert "families.allowlist.rule.7.clients" in done.stderr


def test_an_order_without_labels_is_refused_with_a_hint(site: Site) -> None:
    site.edit('order = ["labels"]\n', 'order = ["allowlist"]\n')
    done = sealmq("up", site.path)
    assert done.returncode != 0
    assert "allowlist stands on labels" in done.stderr
    assert 'hint: [policy] order = ["labels", "allowlist"]' in done.stderr
