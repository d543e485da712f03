"""One call of ``kvota configs`` beside one of ``kafka-configs.sh``: a quota altered, and described.

    ./run bench configs [--rounds 10]

Times are of whole processes, from their start to their end; the two take turns on one broker. The first round is not counted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED, kafka_command

RESULT = Path(__file__).parent / "results/configs.json"
KVOTA = (sys.executable, "-m", "kvota.app.cli.main", "configs")
LINES = {
    "alter": ("--alter", "--user", "orders", "--add-config", "producer_byte_rate=1000000"),
    "describe": ("--describe", "--user", "orders"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    result: dict[str, object] = {"command": f"./run bench configs --rounds {args.rounds}"}
    with LocalKafka(host="127.0.0.2", java_options=SHORT_LIVED) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        for name, words in LINES.items():
            tool = kafka_command(
                kafka.version, "kafka.admin.ConfigCommand", (*server, *words), log_level="OFF"
            )
            rounds = [
                (timed([*KVOTA, *server, *words]), timed(tool)) for _ in range(args.rounds + 1)
            ]
            ours, theirs = map(statistics.median, zip(*rounds[1:], strict=True))
            result[name] = {"kvota, s": ours, "kafka-configs.sh, s": theirs, "ratio": theirs / ours}
            print(
                f"{name}: {ours:.3f} s, kafka-configs.sh {theirs:.3f} s: {theirs / ours:.1f} times"
            )
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


def timed(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
