"""python kill_me.py LOGS OUT SCRATCH: reads and settles, in small batches, for test_killed.py."""

from __future__ import annotations

import sys
from pathlib import Path

from sealmq_spark import batches
from sealmq_spark.ingest import ingest
from sealmq_spark.session import session
from sealmq_spark.settle import settle

logs, out, scratch = sys.argv[1:]
batches.EACH = 4000
spark = session(scratch=Path(scratch), small=True)
ingest(spark, [logs], Path(out))
settle(spark, Path(out))
print("done", flush=True)
