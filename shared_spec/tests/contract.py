"""A contract of shared_spec, and what a validator that is not ours says of a line by it.

The audit log's has a branch for each event, and a validator tries them all, which takes
milliseconds. They exclude one another by a constant, so that the branch of a line's own event
decides alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SPEC = Path(__file__).resolve().parents[1]


class Contract:
    """path: of its file. schema: what stands there. whole: by all of it."""

    def __init__(self, name: str) -> None:
        self.path = SPEC / f"{name}.schema.json"
        self.schema: dict[str, Any] = json.loads(self.path.read_bytes())
        self.whole = Draft202012Validator(self.schema)
        self._of: dict[str, Draft202012Validator] = {}
        for branch in self.schema.get("oneOf", ()):
            event = branch["properties"]["event"]["const"]
            if event in self._of:
                raise ValueError(f"{self.path}: {event} has two branches, so neither decides alone")
            self._of[event] = Draft202012Validator({**self.schema, "oneOf": [branch]})

    def of(self, event: object) -> Draft202012Validator:
        """What says the same as the whole of lines of this event."""
        return self._of.get(event, self.whole) if isinstance(event, str) else self.whole

    def is_valid(self, line: Any) -> bool:
        return self.of(line.get("event") if isinstance(line, dict) else None).is_valid(line)

    def validate(self, line: Any) -> None:
        """Raises jsonschema.ValidationError."""
        self.of(line.get("event") if isinstance(line, dict) else None).validate(line)
