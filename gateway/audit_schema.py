"""Writes the audit fields of the policy families into shared_spec/audit.schema.json: after a family
has come, or has changed `audit` in its manifest. Reports and other readers go by that file.

--check: exit code 1 if that would change it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sealmq.audit.events import MORE, NAMES
from sealmq.families import registry

SCHEMA = Path(__file__).parents[1] / "shared_spec" / "audit.schema.json"
WIDTH = 90


def with_fields(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the fields of all families that are installed, and of no others."""
    ours = dict(schema["$defs"])
    branches = [one["properties"] for one in schema["oneOf"] if one["title"] in MORE]
    for names in branches:
        for name in names.keys() - {"event", *NAMES}:
            del names[name]
            ours.pop(name, None)
    for manifest in registry.manifests():
        for field in manifest.audit:
            for names in branches:
                names[field.name] = {"$ref": f"#/$defs/{field.name}"}
            ours[field.name] = {
                "description": field.what,
                "type": "string",
                "minLength": 1,
                "maxLength": field.bound,
            }
    return schema | {"$defs": dict(sorted(ours.items()))}


def text(value: Any, indent: int = 0) -> str:
    """JSON, an object or a list on one line where that is short enough."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or (indent and len(line) <= WIDTH):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, list):
        parts = [text(one, indent + 2) for one in value]
    else:
        keys = [f"{json.dumps(key)}: " for key in value]
        found = zip(keys, value.values(), strict=True)
        parts = [key + text(one, indent + 2) for key, one in found]
    signs = "[]" if isinstance(value, list) else "{}"
    return (
        f"{signs[0]}\n" + ",\n".join(inner + part for part in parts) + f"\n{' ' * indent}{signs[1]}"
    )


def main() -> int:
    """Write it, or compare."""
    was = SCHEMA.read_text(encoding="utf-8")
    now = text(with_fields(json.loads(was))) + "\n"
    if now == was:
        return 0
    if "--check" in sys.argv[1:]:
        print(
            f"{SCHEMA.name}: not the families' fields; python gateway/audit_schema.py writes them"
        )
        return 1
    SCHEMA.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
