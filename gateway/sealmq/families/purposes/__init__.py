"""Purposes: purpose limitation for data in transit, after HivePBAC (Wolf et al.)."""

from .family import PurposesFamily
from .rules import RULES

FAMILY = PurposesFamily

__all__ = ["FAMILY", "RULES", "PurposesFamily"]
