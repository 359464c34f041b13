#!/usr/bin/env python3
"""Builds the image of Home Assistant's add-on without a container daemon, and runs it in front of a
site.

    hil_tests/addon_image.py          as root, with Debian's buildah and debootstrap; minutes

Its Dockerfile is built as it stands but for the base, which is a Debian with Python and pip in the
place of `python:3.13-alpine`: no registry of images is needed. What that cannot show, whether each
dependency has a wheel for Alpine, `pip download` is asked for both architectures (argparse-manpage
has no wheel for anybody, and nothing to compile). Everything lies below build/addon.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build/addon"
ADDON = ROOT / "gateway/homeassistant/sealmq-agent"
BASE, IMAGE = "localhost/sealmq-stand-in:python", "localhost/sealmq-agent:latest"
PASSWORD = "a-password-of-the-tests"  # noqa: S105
ARCHITECTURES = "x86_64", "aarch64"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def done(*words: object, cwd: Path = WORK) -> str:
    """What a command prints, which must go well."""
    env = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    ran = subprocess.run(  # noqa: S603
        list(map(str, words)), stdout=subprocess.PIPE, text=True, check=True, cwd=cwd, env=env
    )
    return ran.stdout.strip()


def buildah(*words: object) -> str:
    """With a store of its own."""
    return done("buildah", "--root", WORK / "store", "--runroot", WORK / "run", *words)


def wheel() -> Path:
    """This tree's."""
    done(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", WORK / "wheel", ROOT)
    [made] = (WORK / "wheel").glob("*.whl")
    return made


def dependencies(made: Path) -> list[str]:
    """What it needs without extras."""
    with zipfile.ZipFile(made) as parts:
        [name] = (n for n in parts.namelist() if n.endswith(".dist-info/METADATA"))
        lines = parts.read(name).decode().splitlines()
    named = (line.removeprefix("Requires-Dist: ") for line in lines if "Requires-Dist: " in line)
    return [one for one in named if "extra ==" not in one and "argparse-manpage" not in one]


def alpine(needed: list[str], architecture: str) -> int:
    """How many wheels an image on Alpine takes; fails where there is none for one."""
    folder = WORK / architecture
    shutil.rmtree(folder, ignore_errors=True)
    words = ["download", "-q", "--only-binary=:all:", "--python-version", "3.13", "-d", folder]
    for platform in ("musllinux_1_2", "musllinux_1_1"):
        words += ["--platform", f"{platform}_{architecture}"]
    done(sys.executable, "-m", "pip", *words, *needed)
    return len(list(folder.iterdir()))


def base() -> None:
    """A Debian whose `python3` and `pip` are where those of Python's images are."""
    root = WORK / "root"
    if not root.exists():
        part = WORK / "root.part"
        shutil.rmtree(part, ignore_errors=True)
        include = "--include=python3,python3-pip,ca-certificates"
        done("debootstrap", "--variant=minbase", include, "bookworm", part)
        for mark in part.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            mark.unlink()
        (part / "usr/local/bin/python3").symlink_to("/usr/bin/python3")
        # Who is between this machine and the registry is between the image and it, too.
        shutil.copy(CERTIFICATES, part / CERTIFICATES.relative_to("/"))
        (part / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n")
        part.rename(root)
    made = buildah("from", "scratch")
    buildah("copy", "-q", made, root, "/")
    buildah("commit", "-q", made, BASE)
    buildah("rm", made)


def image(made: Path) -> None:
    """As Home Assistant's supervisor builds it, from the add-on's folder with the wheel in it."""
    context = WORK / "context"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(ADDON, context)
    shutil.copy(made, context)
    buildah("bud", "-q", "--build-arg", f"BASE={BASE}", "-t", IMAGE, context)


def runs() -> None:
    """Its command in front of a site: a message is acknowledged."""
    sys.path.insert(0, str(ROOT / "hil_tests/tests"))
    from free_ports import free_port
    from running_site import Site, until

    with tempfile.TemporaryDirectory(prefix="sealmq-addon-") as text:
        folder, port = Path(text), free_port()
        data, config = folder / "data", folder / "config"
        for one in (data, config):
            one.mkdir()
        site = Site(folder)
        site.up()
        shutil.copy(site.enrol("hub", "m1-temp"), config / "hub.sealmq.json")
        options = {"enrolment": "hub.sealmq.json", "username": "hub", "password": PASSWORD}
        (data / "options.json").write_text(json.dumps({**options, "port": port, "senders": []}))
        found = json.loads(buildah("inspect", "--type", "image", IMAGE))
        command = found["OCIv1"]["config"]["Cmd"]
        made = buildah("from", IMAGE)
        words = ["buildah", "--root", WORK / "store", "--runroot", WORK / "run", "run"]
        words += ["--isolation", "chroot", "-v", f"{data}:/data", "-v", f"{config}:/config:ro"]
        log = folder / "agent.log"
        env = {**os.environ, "STORAGE_DRIVER": "vfs"}
        with log.open("wb") as out:
            agent = subprocess.Popen(  # noqa: S603
                list(map(str, [*words, made, "--", *command])), stdout=out, stderr=out, env=env
            )
        try:
            until("the agent to listen", lambda: "listens on" in log.read_text(), 120)
            who = ["-h", "127.0.0.1", "-p", port, "-u", "hub", "-P", PASSWORD]
            done("mosquitto_pub", *who, "-q", "1", "-t", "machine/1/addon", "-m", "it runs")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()}") from None
        finally:
            agent.terminate()
            agent.wait(60)
            buildah("rm", made)
            site.down()


def main() -> int:
    """0: it is built, runs, and has what it needs on Alpine."""
    WORK.mkdir(parents=True, exist_ok=True)
    made = wheel()
    for architecture in ARCHITECTURES:
        print(f"Alpine, {architecture}: {alpine(dependencies(made), architecture)} wheels")
    base()
    image(made)
    print("the image is built")
    runs()
    print("it runs: a message came through it and was acknowledged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
