"""Labels: the information flow policy of Chen and Wilson, section 3."""

from .family import Labels
from .rules import RULES

FAMILY = Labels

__all__ = ["FAMILY", "RULES", "Labels"]
