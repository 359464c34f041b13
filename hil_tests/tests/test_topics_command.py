"""`sealmq topic relabel|forget` and `client remove`, against a running site."""

from __future__ import annotations

import json

from attack_scene import Scene, scene
from running_site import Site, sealmq, until

TOPIC = b"hall/one"


def said(*words: object) -> dict[str, object]:
    done = sealmq(*words, "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def topics(site: Site) -> dict[str, tuple[str, str | None]]:
    rows = said("topic", "list", site.path)["topics"]
    assert isinstance(rows, list)
    return {row["topic"]: (row["label"], row["client"]) for row in rows}


def refused(made: Scene, name: str) -> bool:
    """Whether this client may not publish there."""
    raw = made.client(name)
    raw.connect(keepalive=0)
    raw.publish(TOPIC, b"x")
    raw.barrier()
    return bool(raw.notices)


def test_a_topic_that_is_forgotten_is_labelled_anew_by_who_publishes_next(site: Site) -> None:
    site.toml.write_text(site.toml.read_text() + "\n[limits]\ntopics = 1\n")
    site.up()
    with scene(site) as made:
        assert not refused(made, "m1-temp-sensor")
        assert topics(site)["hall/one"] == ("m1-temp", "m1-temp-sensor")
        assert refused(made, "m1-control-panel"), "another label"
        text = site.toml.read_text()
        told = said("topic", "forget", site.path, "hall/one")
        assert (told["was"], told["known"]) == ("m1-temp", True)
        assert "hall/one" not in topics(site)
        assert site.toml.read_text() == text
        assert site.audit("topic-reset", topic="hall/one")
        assert not refused(made, "m1-control-panel")
        assert topics(site)["hall/one"] == ("m1-ctrl", "m1-control-panel")
        assert refused(made, "m1-temp-sensor")
        # it counts towards nobody's limit any more
        raw = made.client("m1-temp-sensor")
        raw.connect(keepalive=0)
        raw.publish(b"hall/two", b"x")
        raw.barrier()
        assert raw.notices == []
        # and once more
        assert said("topic", "forget", site.path, "hall/one")["was"] == "m1-ctrl"
        assert not refused(made, "m2-temp-sensor")
        site.down()
        done = sealmq("topic", "forget", site.path, "hall/one")
        assert done.returncode == 1
        assert "the site is not up" in done.stderr


def test_a_topic_that_is_relabelled_is_its_new_labels_at_once(site: Site) -> None:
    site.up()
    with scene(site) as made:
        assert not refused(made, "m1-temp-sensor")
        told = said("topic", "relabel", site.path, "hall/one", "m2-temp")
        assert (told["was"], told["label"], told["known"]) == ("m1-temp", "m2-temp", True)
        assert refused(made, "m1-temp-sensor")
        assert not refused(made, "m2-temp-sensor")


def test_a_client_that_is_removed_is_out_at_once_and_told_what_it_leaves(site: Site) -> None:
    site.up()
    with scene(site) as made:
        raw = made.client("m1-temp-sensor")
        raw.connect(keepalive=0)
        raw.publish(TOPIC, b"x")
        raw.barrier()
        until("its topic", lambda: "hall/one" in topics(site))
        told = said("client", "remove", site.path, "m1-temp-sensor")
        assert told["known"]
        assert told["made"] == {"topics": ["hall/one"], "reservations": [], "assertions": []}
        assert raw.wire.closed()
        raw.begin()
        assert raw.connect(keepalive=0)[1] == 5
