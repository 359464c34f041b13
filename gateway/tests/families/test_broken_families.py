"""What a folder of families that is wrong is told as, and what it does not stop."""

from __future__ import annotations

from pathlib import Path

import pytest

import sealmq.families
from families.factory import FACTORY
from sealmq.cli import main as cli
from sealmq.families import registry
from sealmq.families.api import FamilyError
from sealmq.site.config import loads
from sealmq.site.errors import ConfigError

HEAD = """
from sealmq.families.api import *
from sealmq.families.manifest import *

class X(Family):
    name = {name!r}
    rules = {{"{name}.yes": "Yes."}}
    def __init__(self):
        self.settings = {{}}
    def configure(self, config):
        if config.families.get({name!r}, {{}}).get("a"):
            self.settings["boom"]
        return Change()
    def publish(self, ask):
        return allow("{name}.yes", "yes")
    connect = subscribe = deliver = publish

"""
MANIFEST = "MANIFEST = Manifest(name={name!r}, family=Ref(':X'){more})\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sealmq.families, "__path__", [*sealmq.families.__path__, str(tmp_path)])
    return tmp_path


def put(folder: Path, name: str, text: str) -> None:
    """Each test has a name of its own: Python imports a module once."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)


def whole(name: str, more: str = "") -> str:
    return HEAD.format(name=name) + MANIFEST.format(name=name, more=more)


BROKEN = {
    "empty": ("", "the folder sealmq/families/empty has no MANIFEST"),
    "number": ("MANIFEST = 3\n", "has as MANIFEST 3, which is no Manifest"),
    "other": (whole("another"), "the folder sealmq/families/other has the manifest of 'another'"),
    "absent": (
        "\nimport nowhere\n",
        "ModuleNotFoundError: No module named 'nowhere' (families/absent/__init__.py:2)",
    ),
    "syntax": ("\nthis is wrong\n", "(families/syntax/__init__.py:2)"),
    "raising": ("x = {}\nx['boom']\n", "KeyError: 'boom' (families/raising/__init__.py:2)"),
    "ending": (
        "import sys\nsys.exit('done')\n",
        "SystemExit: done (families/ending/__init__.py:2)",
    ),
    "doctored": (
        whole("doctored", ", doctor=Ref('d')"),
        "`doctor` is Ref(where='d'), which is no Doctor",
    ),
    "commanding": (
        whole("commanding", ", commands={'w': 'cli'}"),
        "`commands.w` is 'cli', which is no Ref",
    ),
    "standing": (
        whole("standing", ", stands_on='labels'"),
        "`stands_on` is 'labels', which is no tuple",
    ),
    "fielded": (
        whole("fielded", ", audit=(('mood', 'm', 3),)"),
        "`audit.0` is ('mood', 'm', 3), which is no AuditField",
    ),
    "bounded": (
        whole("bounded", ", audit=(AuditField('mood', 'm', '3'),)"),
        "`audit.0.bound` is '3', which is no int",
    ),
    "hinting": (
        whole("hinting", ", hints={'hinting.yes': 3}"),
        "`hints.hinting.yes` is 3, which is no str",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_is_no_family_is_told_by_its_name_and_stops_no_other(
    folder: Path, name: str
) -> None:
    text, words = BROKEN[name]
    before = registry.manifests()
    put(folder, name, text)
    with pytest.raises(FamilyError) as told:
        registry.manifest(name)
    assert words in str(told.value)
    assert name in str(told.value)
    assert told.value.hint
    assert registry.manifests() == before
    assert [str(error) for error in registry.broken()] == [str(told.value)]
    assert f"left out: {told.value}" in str(cli.build().epilog)
    assert "left out" not in str(cli.build(["status"]).epilog)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("nowhere", whole("nowhere").replace("':X'", "':Y'"), "Ref(':Y'): AttributeError"),
        ("initial", whole("initial").replace("= {}", "= {}['boom']"), "KeyError: 'boom' (families"),
        (
            "nameless",
            whole("nameless").replace("    name =", "    no ="),
            "has no attribute 'name'",
        ),
        ("ruling", whole("ruling").replace('"ruling.yes":', '"yes":'), "has the rule 'yes'"),
        ("hinted", whole("hinted", ", hints={'hinted.no': 'x'}"), "a hint for 'hinted.no'"),
    ],
)
def test_a_family_that_cannot_be_loaded_is_told_by_its_name(
    folder: Path, name: str, text: str, words: str
) -> None:
    put(folder, name, text)
    assert registry.manifest(name).name == name
    with pytest.raises(FamilyError, match=name) as told:
        registry.load([name])
    assert words in str(told.value)


def test_what_a_family_raises_at_its_settings_is_told_as_an_error_of_the_policy(
    folder: Path,
) -> None:
    put(folder, "settled", whole("settled"))
    text = '[policy]\norder = ["labels", "settled"]\n' + FACTORY
    assert loads(text + "\n[families.settled]\na = 0\n").policy.order == ("labels", "settled")
    with pytest.raises(ConfigError) as told:
        loads(text + "\n[families.settled]\na = 1\n")
    assert "'settled' fails at configure: KeyError: 'boom' (families/settled/__init" in str(
        told.value
    )
    assert told.value.key == "families.settled"


COMMAND = """
def add(sub):
    sub.add_parser("carry")

def run(args):
    raise KeyError("boom")
"""


def test_what_a_family_s_command_raises_is_told_as_that_family_s(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "carrying", whole("carrying", ", commands={'carry': Ref('cli')}"))
    (folder / "carrying/cli.py").write_text(COMMAND)
    assert cli.main(["carry"]) == 1
    text = capsys.readouterr().err
    assert (
        "the policy family 'carrying' fails at work: KeyError: 'boom' (families/carrying/" in text
    )
    assert "cli.py:6)" in text
    assert "defect" not in text


def test_a_command_that_cannot_be_loaded_is_left_out_of_the_help(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "missing", whole("missing", ", commands={'miss': Ref('cli')}"))
    assert "left out: the policy family 'missing' fails at Ref('cli')" in str(cli.build().epilog)
    assert cli.main(["miss"]) == 1
    assert "the policy family 'missing' fails at Ref('cli')" in capsys.readouterr().err


def test_a_family_without_an_order_for_new_sites_is_told_so_by_init(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "templating", whole("templating", ", policy=Policy('x')"))
    words = ["--policy", "templating", "--key-file", str(tmp_path / "key")]
    assert cli.main(["init", str(tmp_path / "site"), *words]) == 1
    assert "the policy family 'templating' has no templates/order.toml" in capsys.readouterr().err
    templates = folder / "templating/templates"
    templates.mkdir()
    (templates / "order.toml").write_text('\n[policy]\norder = ["templating", "labels"]\nx = 1\n')
    assert cli.main(["init", str(tmp_path / "site"), *words]) == 1
    text = capsys.readouterr().err
    assert f"{tmp_path}/site/sealmq.toml, line 42: policy.x: unknown key" in text
    assert "/.site." not in text
