"""Writes vectors/ and the transcript in SPEC.md from the text of SPEC.md; --check compares them.

    gen_vectors.py [--check] [--dir DIR] [--document FILE]

Independent of sealmq_spec: see vectorgen/. Everything comes from one seed, so that two runs give
the same files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from vectorgen import (  # noqa: E402
    cases_basics,
    cases_connect,
    cases_control,
    cases_deliveries,
    cases_envelopes,
    cases_handover,
    cases_keys,
    cases_kg,
    cases_origin,
    cases_purposes,
    cases_reader,
    cases_records,
    cases_session,
    cases_time,
    transcript,
)
from vectorgen.case import Cases  # noqa: E402

PARTS = (
    cases_keys,
    cases_basics,
    cases_envelopes,
    cases_connect,
    cases_control,
    cases_kg,
    cases_reader,
    cases_deliveries,
    cases_origin,
    cases_records,
    cases_session,
    cases_time,
    cases_handover,
    cases_purposes,
)


def files() -> dict[str, str]:
    """File name and text of everything that belongs into vectors/."""
    cases = Cases()
    for part in PARTS:
        part.add(cases)
    out = {f"{name}.json": text for name, text in sorted(cases.files.items())}
    out["INDEX"] = "".join(f"{name}\n" for name in sorted(cases.files))
    return out


def differences(folder: Path, wanted: dict[str, str]) -> list[str]:
    """What --check finds: missing, other and spare files."""
    found = (
        {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir()} if folder.is_dir() else {}
    )
    out = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    out += [f"{name} is not generated" for name in sorted(found.keys() - wanted.keys())]
    same = wanted.keys() & found.keys()
    return out + [f"{name} differs" for name in sorted(same) if wanted[name] != found[name]]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--dir", type=Path, default=HERE / "vectors")
    parser.add_argument("--document", type=Path, default=HERE / "SPEC.md")
    args = parser.parse_args()
    wanted = files()
    document = args.document.read_text(encoding="utf-8")
    written = transcript.put(document)
    if args.check:
        found = differences(args.dir, wanted)
        if document != written:
            found.append(f"the transcript in {args.document.name} differs")
        print("\n".join(found) or f"{len(wanted) - 1} vectors are as generated")
        return 1 if found else 0
    args.dir.mkdir(parents=True, exist_ok=True)
    for spare in {p.name for p in args.dir.iterdir()} - wanted.keys():
        (args.dir / spare).unlink()
    for name, text in wanted.items():
        (args.dir / name).write_text(text, encoding="utf-8")
    args.document.write_text(written, encoding="utf-8")
    print(f"{len(wanted) - 1} vectors in {args.dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
