"""What families offer: every reference names something, and nobody else names a family."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import sealmq
import sealmq.families
from sealmq.cli import main as cli
from sealmq.families import registry
from sealmq.families.manifest import Manifest, Ref
from sealmq.site.edit import fill

INSTALLED = registry.manifests()
SOURCE = Path(sealmq.__file__).parent
# What a new site begins with is for `init` to say, and what `bench gateway` measures for itself.
NAME_ONE = {"cli/bench.py", "cli/init.py"}


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
    if manifest.doctor:
        yield manifest.doctor.part, ("put_in", "take_out", "as_sent", "tries")
    if manifest.bench:
        yield manifest.bench, ("script", "add")
    if manifest.demo:
        yield manifest.demo, ("PARTS", "ATTEMPTS", "ACTS", "JUDGES", "may", "summary", "show")
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
    ):
        assert len(set(words)) == len(words)


def test_a_family_may_not_take_the_word_of_another_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = Manifest(name="toy", family=Ref(":Toy"), commands={"status": Ref("cli")})
    monkeypatch.setattr(registry, "manifests", lambda: [taken])
    with pytest.raises(RuntimeError, match="toy has a second command 'status'"):
        cli.commands()


def test_commands_of_families_stand_after_the_general_ones() -> None:
    table = list(cli.commands())
    theirs = [word for m in INSTALLED for word in m.commands]
    assert theirs
    assert table[-len(theirs) :] == theirs
    [sub] = [a for a in cli.build()._actions if isinstance(a, argparse._SubParsersAction)]
    assert list(sub.choices)[-len(theirs) :] == theirs


@pytest.mark.parametrize("name", [m.name for m in INSTALLED if m.stands_on])
def test_outside_its_folder_nobody_names_a_family(name: str) -> None:
    naming = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*")
        if path.suffix in (".py", ".toml") and re.search(rf"\b{name}\b", path.read_text("utf-8"))
    }
    others = {path for path in naming if not path.startswith(f"families/{name}/")}
    assert others <= NAME_ONE


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
    assert {f"sealmq.families.{name}.family" for name in names} <= loaded
    parts = re.compile(r"sealmq\.families\.\w+\.(cli|client|demo|doctor|fuzz)\b|argparse")
    assert not {name for name in loaded if parts.fullmatch(name) or parts.match(name)}


def test_the_page_for_authors_of_families_has_every_field_of_the_manifest() -> None:
    page = (SOURCE.parent / "FAMILIES.md").read_text("utf-8")
    table = page.partition("## The manifest")[2].partition("## What to test")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert told == [field.name for field in fields(Manifest)]
