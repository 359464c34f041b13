"""What THREATS.md and README.md cite exists: tests, vectors, files, operations."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path

import pytest

SPEC = Path(__file__).resolve().parents[1]
ROOT = SPEC.parent
THREATS = (SPEC / "THREATS.md").read_text(encoding="utf-8")
VECTORS = sorted(p.stem for p in (SPEC / "vectors").glob("*.json"))
CLAIMS = re.split(r"^### Claim ", THREATS.partition("## 4 ")[0], flags=re.M)[1:]


def test_the_claims_are_in_order() -> None:
    """From 1; those above 48 may have gaps while they are written beside one another."""
    numbers = [int(re.match(r"\d+", text).group()) for text in CLAIMS]  # type: ignore[union-attr]
    assert numbers[:48] == list(range(1, 49))
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("text", CLAIMS, ids=lambda t: "claim" + t.partition(":")[0])
def test_each_claim_says_why_and_who_attacks_it(text: str) -> None:
    assert re.search(r"^- Why: ", text, re.M)
    assert re.search(r"^- Attacked by: ", text, re.M)


@pytest.mark.parametrize("cited", sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", THREATS))))
def test_cited_tests_exist(cited: tuple[str, str]) -> None:
    path, name = cited
    file = ROOT / path if "/" in path else SPEC / "tests" / path
    assert re.search(rf"^\s*(async )?def {name}\(", file.read_text(encoding="utf-8"), re.M)


def patterns() -> list[str]:
    """Names of vectors behind each `vectors:`, up to the next ; or full stop."""
    found = [p.strip() for s in re.findall(r"vectors: ([^;.]*)", THREATS) for p in s.split(",")]
    return sorted({p for p in found if p and " " not in p and p != "x-*` are cases that"})


@pytest.mark.parametrize("pattern", patterns())
def test_cited_vectors_exist(pattern: str) -> None:
    assert fnmatch.filter(VECTORS, pattern)


def test_rekeying_cites_tests_that_exist() -> None:
    cited = set(re.findall(r"`(test_\w+)`", (SPEC / "REKEYING.md").read_text(encoding="utf-8")))
    file = (SPEC / "tests" / "test_rekeying.py").read_text(encoding="utf-8")
    assert len(cited) > 10
    assert {name for name in cited if f"\ndef {name}(" not in file} == set()


def test_the_readme_names_every_operation() -> None:
    readme = (SPEC / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w.*-]+)`", readme.partition("| op |")[2])
    used = {json.loads((SPEC / "vectors" / f"{v}.json").read_text())["op"] for v in VECTORS}
    assert {op for op in used if not any(fnmatch.fnmatch(op, n) for n in named)} == set()


DOCUMENTS = ("SPEC.md", "GATEWAY.md", "PURPOSES.md", "README.md", "THREATS.md", "REKEYING.md")


def sections() -> set[str]:
    """4.1, G2, P3: what the three documents of the protocol have."""
    found = set()
    for name in DOCUMENTS[:3]:
        text = (SPEC / name).read_text(encoding="utf-8")
        found |= set(re.findall(r"^##+ ([GP]?\d+(?:\.\d+)?|[AB]) ", text, re.M))
    return found


@pytest.mark.parametrize("name", [*DOCUMENTS, "model/README.md"])
def test_cited_sections_exist(name: str) -> None:
    text = (SPEC / name).read_text(encoding="utf-8")
    cited = set(re.findall(r"§(\d+(?:\.\d+)?)|\b([GP]\d)\b", text))
    assert {a or b for a, b in cited} - sections() == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    text = (SPEC / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (SPEC / target).exists(), target
