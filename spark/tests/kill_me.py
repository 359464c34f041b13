"""python kill_me.py LOGS OUT SCRATCH: reads and settles, in small steps, for test_killed.py."""

from __future__ import annotations

import sys
from pathlib import Path

from sealmq_spark import ingest as reading
from sealmq_spark.session import session
from sealmq_spark.settle import settle

logs, out, scratch = sys.argv[1:]
reading.EACH = 4000
spark = session(scratch=Path(scratch), small=True)
reading.ingest(spark, [logs], Path(out))
settle(spark, Path(out))
print("done", flush=True)
