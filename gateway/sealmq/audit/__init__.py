"""The audit log: JSON lines after shared_spec/audit.schema.json. No payload, no secret, ever."""

from .log import Audit, AuditError

__all__ = ["Audit", "AuditError"]
