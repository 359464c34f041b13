"""`sealmq report` for spark-submit:

spark-submit --master spark://HOST:PORT --driver-memory 4g spark/report.py LOGS... --out DIR

The workers need nothing of ours (there is no Python in the jobs), only LOGS and DIR under the same
paths as here. The Python that spark-submit takes is that of PYSPARK_DRIVER_PYTHON, else `python3`.
"""

import sys

from sealmq_spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
