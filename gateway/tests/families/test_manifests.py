"""What families offer: every reference names something, and nobody else names a family."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sealmq
import sealmq.families
from sealmq.audit.events import of_families
from sealmq.cli import main as cli
from sealmq.families import registry
from sealmq.families.api import (
    Ask,
    Duties,
    Family,
    Parsed,
    Question,
    SealToGrant,
    UnfitFamily,
    Verdict,
    Who,
    allow,
)
from sealmq.families.engine import Engine
from sealmq.families.manifest import AuditField, Check, Manifest, Ref, Says
from sealmq.site.edit import fill
from sealmq_spec.errors import Malformed

INSTALLED = registry.manifests()
SOURCE = Path(sealmq.__file__).parent
ROOT = SOURCE.parents[1]
# Files of code and data that may name a family which is not theirs, and why.
NAME_ONE = {
    "gateway/sealmq/cli/init.py": "what a new site judges by, unless --policy says otherwise",
    "gateway/sealmq/client/blocking.py": "an example of a call, in a docstring",
    "gateway/sealmq/families/owners/assertions.py": "KeyNote's own word, _MAX_TRUST",
    # Runs that only this family simulates.
    "evidence/blocks.py": "kinds of malice and rules, in the table of simulated runs",
    "evidence/pages.py": "on which page that table stands",
    "evidence/parts.py": "what simulates these runs",
}
ITERATE = (
    "gateway/sealmq",
    "gateway/bench",
    "gateway/fuzz",
    "hil_tests/sealmq_hil",
    "hil_tests/faults",
    "hil_tests/sealmq_vboard",
    "spark/sealmq_spark",
    "spark/bench",
    "evidence",
)
"""What iterates over manifests, their data files, or the contracts of shared_spec. Not among them:
tests, which may name a family; `hil_tests/defences`, which quote code by its path; what device and
protocol have to carry (`firmware`, `shared_spec`); documents, and results of measurements."""


def references(manifest: Manifest) -> Iterator[tuple[Ref[Any], tuple[str, ...]]]:
    """Each reference, and what it has to offer."""
    yield manifest.family, ("name", "rules", "deliver")
    for command in manifest.commands.values():
        yield command, ("add", "run")
    if manifest.says:
        yield manifest.says.encode, ("__call__",)
        yield manifest.says.check, ("__call__",)
    if manifest.made:
        yield manifest.made.rows, ("__call__",)
    if manifest.kg_part:
        yield manifest.kg_part, ("grants",)
    if manifest.kg_keeps:
        yield manifest.kg_keeps, ("take", "shown", "left", "grants", "rows")
    if manifest.doctor:
        yield manifest.doctor.part, ("put_in", "take_out", "as_sent", "tries")
    if manifest.bench:
        if manifest.bench.site is not None:
            yield manifest.bench.site, ("SETTINGS", "put_in", "as_sent", "held", "judging")
        assert (manifest.bench.command is None) == (manifest.bench.whole is None)
        for ref, has in (
            (manifest.bench.wild, ("__call__",)),
            (manifest.bench.command, ("about", "first", "closer", "add")),
            (manifest.bench.whole, ("main", "beside", "shown", "table")),
        ):
            if ref is not None:
                yield ref, has
    if manifest.demo:
        words = "PARTS SCRIPTS SETTINGS ATTEMPTS ACTS JUDGES UNSURE may summary show"
        yield manifest.demo, tuple(words.split())
    if manifest.fuzz:
        yield manifest.fuzz, ("one", "seeds")


@pytest.mark.parametrize("manifest", INSTALLED, ids=lambda m: m.name)
def test_every_reference_of_a_manifest_names_what_it_is_used_for(manifest: Manifest) -> None:
    for ref, has in references(manifest):
        found = manifest.load(ref)
        assert [name for name in has if not hasattr(found, name)] == [], ref
    family = manifest.load(manifest.family)
    assert set(manifest.hints) <= set(family.rules), "a hint for a rule that the family has not"


@pytest.mark.parametrize("manifest", [m for m in INSTALLED if m.policy], ids=lambda m: m.name)
def test_the_order_that_init_writes_is_one_that_loads(manifest: Manifest) -> None:
    text = (
        resources.files(f"sealmq.families.{manifest.name}") / "templates/order.toml"
    ).read_text()
    found = re.search(r"^order = \[(.*)\]$", fill(text, {}), re.M)
    assert found
    order = [word.strip(' "') for word in found[1].split(",")]
    assert [family.name for family in registry.load(order)] == order
    assert order == [*manifest.stands_on, manifest.name]


def test_no_two_families_have_the_same_option_or_the_same_key() -> None:
    for words in (
        [m.says.option for m in INSTALLED if m.says],
        [m.made.key for m in INSTALLED if m.made],
        [word for m in INSTALLED for word in m.commands],
        [field.name for m in INSTALLED for field in m.audit],
    ):
        assert len(set(words)) == len(words)


class Toy(Family):
    name: ClassVar[str] = "toy"
    rules: ClassVar[dict[str, str]] = {"toy.x": "Always."}
    audited: ClassVar[frozenset[str]] = frozenset()


class Shy(Toy):
    name: ClassVar[str] = "shy"
    rules: ClassVar[dict[str, str]] = {"shy.x": "Always."}


def declares(monkeypatch: pytest.MonkeyPatch, *names: str, bound: int = 10, says: str = "") -> None:
    """Families toy and shy that declare a field of these names each, and say that one (`says`)."""
    found = {}
    by = {family.name: family for family in (Toy, Shy)}
    monkeypatch.setattr(Manifest, "load", lambda of, ref: by[of.name])
    for family, name in zip((Toy, Shy), names, strict=False):
        monkeypatch.setattr(family, "audited", frozenset({says or name}))
        fields = (AuditField(name, "What it feels.", bound),)
        made = Manifest(name=family.name, family=Ref(":x"), audit=fields)
        found[family.name] = made
    monkeypatch.setattr(registry, "_manifest", found.get)


class Encoding(Toy):
    """Its encoding is its name and a value before the filter."""

    parses: ClassVar[frozenset[Question]] = frozenset({"subscribe"})

    def parse(self, question: Question, topic: str) -> Parsed | None:
        name, value, rest = topic.split("~", 2)
        assert name == self.name, "it is told the filter without what stands around it"
        return Parsed(rest, {"value": value})

    def subscribe(self, ask: Ask) -> Verdict:
        return allow("toy.x", ask.notes[self.name]["value"])


class EncodingToo(Encoding):
    name: ClassVar[str] = "also"


@pytest.mark.parametrize("words", [("toy", "also"), ("also", "toy")])
@pytest.mark.parametrize("order", [(Encoding, EncodingToo), (EncodingToo, Encoding)])
def test_what_is_said_to_several_families_is_read_whatever_was_said_first_and_the_site_s_order(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], order: tuple[type[Family], ...]
) -> None:
    def puts(of: Manifest, ref: Ref[object]) -> object:
        return lambda filt, value: f"{of.name}~{value}~{filt}"

    check: Ref[Check] = Ref(":x")
    there = [
        Manifest(name=name, family=Ref(":x"), says=Says(name, "X", "x", Ref(":x"), check))
        for name in ("also", "toy")
    ]
    monkeypatch.setattr(registry, "manifests", lambda: there)
    monkeypatch.setattr(Manifest, "load", puts)
    filt = "a/#"
    for encode in registry.encodings({word: f"for {word}" for word in words}):
        filt = encode(filt)
    assert filt == "also~for also~toy~for toy~a/#"
    engine = Engine([family() for family in order])
    got = engine.connection(Who("eve", 1, "device", "s", "low")).subscribe(filt, 0, 1)
    assert (got.allow, got.topic) == (True, "a/#")
    assert {vote.family: vote.reason for vote in got.votes} == {
        "also": "for also",
        "toy": "for toy",
    }
    with pytest.raises(Malformed, match="there is: also, toy"):
        registry.encodings({"other": None})
    assert registry.encodings(dict.fromkeys(words)) == [], "nothing is said"


def test_an_audit_field_that_another_family_of_the_order_has_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declares(monkeypatch, "mood", "mood")
    assert [registry.load([name])[0].name for name in ("toy", "shy")] == ["toy", "shy"]
    with pytest.raises(UnfitFamily, match="which another family of the order has") as no:
        registry.load(["toy", "shy"])
    assert no.value.hint == "give it another name in the manifest of 'shy'"


@pytest.mark.parametrize("name", ["topic", "at_ms", "count", "order", "clean", "v"])
def test_an_audit_field_that_the_log_itself_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    declares(monkeypatch, name)
    with pytest.raises(UnfitFamily, match=f"'{name}', which the audit log itself has"):
        of_families(["toy"])


@pytest.mark.parametrize(
    ("name", "bound"),
    [("mood", 0), ("mood", 1025), ("Mood", 9), ("a-b", 9), ("", 9), ("x" * 33, 9)],
)
def test_an_audit_field_of_no_name_or_of_any_length_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    declares(monkeypatch, name, bound=bound)
    with pytest.raises(UnfitFamily, match="declares the audit field"):
        registry.load(["toy"])


def test_audit_fields_that_together_hold_too_much_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "FIELDS_BOUND", 1000)
    declares(monkeypatch, "mood", "temper", bound=501)
    assert registry.load(["toy"])
    with pytest.raises(UnfitFamily, match="1002 characters of families' fields"):
        registry.load(["toy", "shy"])


def test_a_family_that_says_another_field_than_it_declares_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declares(monkeypatch, "temper", says="mood")
    with pytest.raises(UnfitFamily, match="not what its manifest declares"):
        registry.load(["toy"])


def test_a_family_that_seals_to_grants_says_who_holds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Granting(Toy):
        duties: ClassVar[Duties] = {"deliver": frozenset({SealToGrant})}

    monkeypatch.setattr(Manifest, "load", lambda of, ref: Granting)
    made = Manifest(name="toy", family=Ref(":x"))
    found = {"toy": made, "shy": replace(made, kg_part=Ref("kg"))}
    monkeypatch.setattr(registry, "_manifest", found.get)
    with pytest.raises(UnfitFamily, match="says of no grant who holds it") as no:
        registry.load(["toy"])
    assert "`kg_part`" in no.value.hint
    assert registry.load(["shy"])
    assert [registry.has_kg_part(order) for order in (["toy"], ["toy", "shy"])] == [False, True]


def test_a_family_may_not_take_the_word_of_another_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = Manifest(name="toy", family=Ref(":Toy"), commands={"status": Ref("cli")})
    monkeypatch.setattr(registry, "manifests", lambda: [taken])
    assert cli.commands()["status"]().__name__ == "sealmq.cli.status"  # type: ignore[attr-defined]
    assert "left out: the policy family 'toy' has a second command 'status'" in str(
        cli.build().epilog
    )


def test_commands_of_families_stand_after_the_general_ones() -> None:
    table = list(cli.commands())
    theirs = [word for m in INSTALLED for word in m.commands]
    assert theirs
    assert table[-len(theirs) :] == theirs
    [sub] = [a for a in cli.build()._actions if isinstance(a, argparse._SubParsersAction)]
    assert list(sub.choices)[-len(theirs) :] == theirs


@pytest.mark.parametrize("name", [m.name for m in INSTALLED if m.stands_on])
def test_outside_its_folder_nobody_names_a_family(name: str) -> None:
    named = re.compile(rf"(?<![a-z]){name}(?![a-z])", re.IGNORECASE)
    naming = {
        str(path.relative_to(ROOT))
        for folder in ITERATE
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".toml", ".sh")
        and not {"tests", "results"} & set(path.relative_to(ROOT).parts)
        and named.search(path.read_text("utf-8"))
    }
    others = {path for path in naming if not path.startswith(f"gateway/sealmq/families/{name}/")}
    assert others <= set(NAME_ONE)


LOADED = """
import sys
from sealmq.families import engine, registry
engine.Engine(registry.load(sys.argv[1:]))
print(*sorted(sys.modules))
"""


def test_what_judges_loads_no_command_no_client_and_no_doctor() -> None:
    names = [m.name for m in sorted(INSTALLED, key=lambda m: len(m.stands_on))]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *names],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stdout.split())
    for manifest in INSTALLED:
        module = manifest.family.where.partition(":")[0]
        assert f"sealmq.families.{manifest.name}" + f".{module}" * bool(module) in loaded
    parts = re.compile(r"sealmq\.families\.\w+\.(cli|client|demo|doctor|fuzz)\b|argparse")
    assert not {name for name in loaded if parts.fullmatch(name) or parts.match(name)}


def test_the_page_for_authors_of_families_has_every_field_of_the_manifest() -> None:
    page = (SOURCE.parent / "FAMILIES.md").read_text("utf-8")
    table = page.partition("## The manifest")[2].partition("## What to test")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert told == [field.name for field in fields(Manifest)]
