"""What the pages show is what was measured: runs the benches, reduces them, writes the tables.

    python -m evidence [PART...]

`results/` holds what the parts measured, `reduced.json` what `sealmq report` made of it, and the
pages show nothing else. The benches are reached through their commands; of their code only what
makes tables of rows is imported, and what says of which commit they are.
"""

import sys
from pathlib import Path

# That lies beside scripts, which import one another by their plain names.
for _folder in ("firmware/host", "gateway/bench", "spark/bench"):
    _path = str(Path(__file__).resolve().parents[1] / _folder)
    if _path not in sys.path:
        sys.path.append(_path)
