"""``./run bench [NAME] [options]``: one benchmark, or all of them."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = (
    "relay",
    "tls",
    "connections",
    "sizing",
    "decide",
    "round_trip",
    "request_time",
    "share_groups",
    "pipeline",
    "pipeline_start",
    "spark_versions",
    "request_log",
    "planning",
    "live_plan",
    "forecast",
    "report",
    "first_report",
    "hold",
    "clients",
    "record_cost",
    "ingest",
    "kept_usage",
    "scrape",
    "many_names",
    "adversary",
    "endurance",
    "steps",
    "caught_up",
    "quota_api",
    "changes",
    "admin",
    "topic_storm",
    "quotas_as_code",
    "configs",
    "producer_ids",
    "volumes",
    "factor_changes",
    "id_requests",
    "pods",
    "first_sequence",
    "broker_memory",
    "client_matrix",
)


def main() -> int:
    if sys.argv[1:2] and sys.argv[1].startswith("-"):
        print(f"./run bench [{' | '.join(NAMES)}] [options of that one]", file=sys.stderr)
        return 0 if sys.argv[1] in {"-h", "--help"} else 2
    names, options = sys.argv[1:2] or list(NAMES), sys.argv[2:]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"there is no benchmark {unknown[0]}; known are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    ended_with = 0
    for name in names:
        # A bar that is missed is no reason not to measure the others.
        code = subprocess.run(
            [sys.executable, HERE / f"{name}.py", *options], check=False
        ).returncode
        if code and len(names) > 1:
            print(f"{name}: ended with {code}", file=sys.stderr)
        ended_with = ended_with or code
    return ended_with


if __name__ == "__main__":
    sys.exit(main())
