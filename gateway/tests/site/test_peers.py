"""[peers] of sealmq.toml: what follows from it, and what is refused, in words."""

from __future__ import annotations

import pytest

from sealmq.site.check import parse
from sealmq.site.differences import differences
from sealmq.site.errors import ConfigError

F, G = "ab" * 32, "cd" * 32
SITE = '[site]\nname = "north"\nid = "01020304"\n'
LABELS = '[labels]\nheat = []\nplant = ["heat"]\n'


def peers(more: str, fingerprint: str = F, side: str = 'listen = "10.0.0.1:8884"') -> str:
    return f'{SITE}{LABELS}[peers.south]\nfingerprint = "{fingerprint}"\n{side}\n{more}'


def test_each_label_that_crosses_has_a_client_and_an_import_is_a_label() -> None:
    text = peers('export = ["heat"]\nimport = ["water", "air:chacha"]').replace(
        'plant = ["heat"]', 'plant = ["heat", "water@south"]'
    )
    config = parse(text)
    made = {c.name: (c.label, c.kind) for c in config.clients.values()}
    assert made == {
        "heat.to.south": ("heat", "gateway"),
        "water.from.south": ("water@south", "gateway"),
        "air.from.south": ("air@south", "gateway"),
    }
    assert [config.labels[n].suite for n in ("air@south", "water@south")] == [2, 1]
    assert config.dominates("plant", "water@south")
    assert not config.dominates("heat", "water@south")
    assert config.peers["south"].listen == ("10.0.0.1", 8884)


def test_a_fingerprint_is_read_as_people_write_it() -> None:
    colons = ":".join(F[i : i + 2] for i in range(0, 64, 2)).upper()
    for text in (F, f"SHA256:{F}", colons):
        assert parse(peers("", text)).peers["south"].fingerprint == F


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (peers("", "abc"), "peers.south.fingerprint", "64 hex digits"),
        (peers("", side=""), "peers.south", "one side of a line listens"),
        (peers('address = "a:1"'), "peers.south", "one side of a line listens"),
        (peers('export = ["plant"]'), "peers.south.export", "derive those of heat"),
        (peers('export = ["top"]'), "peers.south.export", "built in"),
        (peers('export = ["wind"]'), "peers.south.export", "no label"),
        (peers('export = ["a@south"]\nimport = ["a"]'), "peers.south.export", "only that site"),
        (peers('import = ["a", "a"]'), "peers.south.import", "named twice"),
        (peers('import = ["a:aes"]'), "peers.south.import", "no suite"),
        (peers('trust = 1'), "peers.south.trust", "unknown key"),
        (peers("").replace("peers.south", "peers.sm1"), "peers.sm1", "no peer can be called"),
        (
            peers("") + f'\n[peers.west]\nfingerprint = "{F}"\naddress = "w:1"',
            "peers.west.fingerprint",
            "one fingerprint",
        ),
        (
            peers('export = ["heat"]') + '\n[clients]\n"heat.to.south" = { label = "heat" }',
            "peers.south",
            "cannot be",
        ),
        (
            SITE + LABELS + '[clients]\nx = { label = "heat", kind = "gateway" }',
            "clients.x",
            "kind is 'gateway'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_words(text: str, key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse(text)
    assert caught.value.key == key


def test_whose_client_has_a_label_of_a_peer_that_is_gone_is_told_so() -> None:
    client = '\n[clients]\npanel = { label = "water@south" }\n'
    here = peers('import = ["water"]') + client
    assert parse(here).clients["panel"].label == "water@south"
    with pytest.raises(ConfigError) as caught:
        parse(SITE + LABELS + client)
    assert "nothing is imported from south" in str(caught.value.hint)
    with pytest.raises(ConfigError) as caught:
        parse(here.replace("water@south", "wather@south"))
    assert "water@south?" in str(caught.value.hint)


def test_what_differs_is_said_in_the_file_s_own_words() -> None:
    """Nobody has written the clients and labels that come with a peer."""
    without, one = parse(SITE + LABELS), parse(peers('export = ["heat"]\nimport = ["water"]'))
    other = parse(peers('export = ["heat"]'))
    for before, after, later in ((without, one, True), (one, other, False), (one, without, False)):
        found = differences(before, after)
        assert {row.key.split(".")[0] for row in found} == {"peers"}
        assert {row.at_next_start for row in found} == {later}, "a bridge that runs follows"


def test_with_all_below_it_a_label_may_go() -> None:
    assert parse(peers('export = ["plant", "heat"]')).peers["south"].exports == ("plant", "heat")
