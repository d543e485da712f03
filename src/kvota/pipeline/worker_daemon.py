"""The process that forks Spark's Python workers, which has imported what they need; Spark starts it by ``python -m``.

Else each worker would import for itself, while somebody waits for it. No thread may run when a process is forked, so
libraries are told to begin none. Spark's workers collect garbage after each task; what was imported is kept out of that
(``gc.freeze``), as looking through it takes longer than a small task does.
"""

import gc
import os
from contextlib import suppress

from pyspark.daemon import manager

# NumPy's linear algebra would start a thread per core when it is imported; no kernel uses it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def import_all() -> None:
    """Import what workers need; where something lacks, they say so themselves."""
    with suppress(Exception):
        import pyspark.worker  # noqa: F401, PLC0415  (not where somebody only looks at this module)

        import kvota.pipeline.brackets  # noqa: PLC0415
        import kvota.pipeline.chunks  # noqa: PLC0415
        import kvota.pipeline.law_stage  # noqa: PLC0415
        import kvota.pipeline.producer_id_stage  # noqa: PLC0415
        import kvota.pipeline.usage_stage  # noqa: F401, PLC0415


if __name__ == "__main__":
    import_all()
    gc.collect()
    gc.freeze()
    manager()
