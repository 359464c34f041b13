"""One target under libFuzzer, in a process of its own: `python -m fuzz.single TARGET ARGUMENTS...`.

The runner (`python -m fuzz`) starts it; the arguments are libFuzzer's.
"""

from __future__ import annotations

import sys

import atheris

# What the coverage is taken of. The runner and the targets themselves are not.
_MEASURED = ("sealmq", "sealmq_spec", "sealmq_device", "tomllib")


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    name, *arguments = sys.argv[1:]
    # First without: these are large, and not what is tried.
    import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
    import sqlalchemy  # noqa: F401

    with atheris.instrument_imports(include=list(_MEASURED)):
        from fuzz.target import load

        target = load(name)
    atheris.Setup([sys.argv[0], *arguments], target.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
