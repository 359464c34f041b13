"""The add-on of Home Assistant: its config.yaml as Home Assistant documents it, and what its run
script makes of options. hil_tests/tests/test_agent.py runs it in front of a site.

https://developers.home-assistant.io/docs/apps/configuration (read on 29 November 2026)
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from sealmq.agent.config import read

ADDON = Path(__file__).parents[2] / "homeassistant/sealmq-agent"
ROOT = Path(__file__).parents[3]
CONFIG: dict[str, Any] = yaml.safe_load((ADDON / "config.yaml").read_text())

# Of the page's tables: what has to be there, and what may be, as far as an add-on like this could
# want it. What asks for privileges is not among them.
REQUIRED = {"name": str, "version": str, "slug": str, "description": str, "arch": list}
OPTIONAL = {
    "url": str, "startup": str, "webui": str, "boot": str, "ports": dict, "host_network": bool,
    "map": list, "options": dict, "schema": dict, "image": str, "timeout": int, "init": bool,
    "stage": str, "watchdog": str, "services": list, "backup": str, "homeassistant": str,
}  # fmt: skip
ELEMENT = re.compile(
    r"(str(\(\d*,\d*\))?|bool|int(\(-?\d*,-?\d*\))?|float(\(.*\))?|email|url|password|port"
    r"|match\(.+\)|list\([^|]+(\|[^|]+)*\)|device(\(.*\))?)\??"
)


def test_the_configuration_is_as_home_assistant_documents_it_and_asks_for_no_privilege() -> None:
    for name, kind in REQUIRED.items():
        assert isinstance(CONFIG.get(name), kind), name
    for name in CONFIG.keys() - REQUIRED.keys():
        assert isinstance(CONFIG[name], OPTIONAL[name]), name
    assert re.fullmatch(r"[-_.A-Za-z0-9]+", CONFIG["slug"])
    assert set(CONFIG["arch"]) <= {"aarch64", "amd64"}
    assert CONFIG["startup"] in ("initialize", "system", "services", "application", "once")
    assert CONFIG["boot"] in ("auto", "manual", "manual_only")
    assert CONFIG["map"] == [{"type": "addon_config", "read_only": True}]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert CONFIG["version"] == project["version"]


def test_each_option_has_an_element_of_the_schema_that_takes_its_default() -> None:
    schema, options = CONFIG["schema"], CONFIG["options"]
    assert schema.keys() == options.keys()
    flat = {**schema, **schema["senders"][0]}
    del flat["senders"]
    for name, element in flat.items():
        assert ELEMENT.fullmatch(element), name
        if name in options and (found := re.fullmatch(r"match\((.*)\)", element)):
            assert re.match(found[1], options[name]), name
    assert options["password"] is None, "one that everybody knows is none"


def ran(folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """With the program replaced by one that only says how it was called."""
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config/hub.sealmq.json").touch()
    said = {**CONFIG["options"], "password": "long enough", **options}
    (folder / "options.json").write_text(json.dumps(said))
    stub = folder / "bin"
    stub.mkdir(exist_ok=True)
    (stub / "sealmq").write_text('#!/bin/sh\necho "$@"\n')
    (stub / "sealmq").chmod(0o755)
    code = (
        f"import sys, runpy; sys.executable = {str(stub / 'python')!r}; "
        f"sys.argv = ['run.py', {str(folder)!r}, {str(folder / 'config')!r}]; "
        f"runpy.run_path({str(ADDON / 'run.py')!r}, run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_options_become_a_configuration_that_the_agent_reads_whatever_they_hold(
    tmp_path: Path,
) -> None:
    odd = 'a/"]\nlisten = ["0.0.0.0:1"]\n#'
    senders = [{"client": "boiler", "filter": "heat/#"}, {"client": "boiler", "filter": odd}]
    secret = 'a "secret" $(id) \\'
    done = ran(tmp_path, senders=senders[:1], password=secret)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["agent", "--config", str(tmp_path / "agent.toml")]
    found = read(tmp_path / "agent.toml")
    assert [str(door.host) for door in found.doors] == ["127.0.0.1"]
    assert found.users["hub"].password == secret.encode()
    assert found.users["hub"].discovery.senders == {"boiler": ["heat/#"]}
    assert found.users["hub"].enrolment == tmp_path / "enrolment"
    for secrets in ("password", "enrolment"):
        assert (tmp_path / secrets).stat().st_mode & 0o777 == 0o600
    assert secret not in done.stdout + done.stderr
    # A filter with TOML in it stays a filter.
    assert ran(tmp_path, senders=senders).returncode == 0
    said = tomllib.loads((tmp_path / "agent.toml").read_text())
    assert said["listen"] == ["127.0.0.1:1884"]
    assert said["users"]["hub"]["discovery"]["senders"]["boiler"] == ["heat/#", odd]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("password", None, "'password' is empty"),
        ("password", "seven77", "'password' is too short"),
        ("enrolment", "../secrets.yaml", "no path"),
        ("enrolment", "other.json", "sealmq client add"),
        ("port", 0, "from 1 to 65535"),
        ("username", "", "'username' is empty"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_and_nothing_starts(
    option: str, value: object, says: str, tmp_path: Path
) -> None:
    done = ran(tmp_path, **{option: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "agent.toml").exists()
