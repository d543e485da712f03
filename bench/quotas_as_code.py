"""500 quotas brought into force by one command, at a broker and at a gateway, beside kafka-configs.sh, which takes them one by one.

    ./run bench quotas_as_code [--quotas 500] [--rounds 5]

Times are of whole processes, from their start to their end: reading the file, looking, the cluster's check, the undo file on the disk,
the change, and waiting until it is shown. Each round raises all limits. The bar: less than a second.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED, kafka_command

RESULT = Path(__file__).parent / "results/quotas_as_code.json"
HOST = "127.0.0.2"
KVOTA = (sys.executable, "-m", "kvota.app.cli.main", "quotas")
TOOL_CALLS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quotas", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalKafka(host=HOST, java_options=SHORT_LIVED) as kafka,
    ):
        config = gateway_toml(upstream=kafka.bootstrap_servers, node_ids="0-4", source="file")
        with GatewayProcess(Path(folder), config=config, quotas="") as gateway:
            seconds = {
                "broker": applied(Path(folder), kafka.bootstrap_servers, args),
                "gateway": applied(Path(folder), gateway.bootstrap_servers, args),
            }
        one_call = tool_call(kafka.bootstrap_servers)
    report(args, seconds, one_call)


def applied(folder: Path, servers: str, args: argparse.Namespace) -> list[float]:
    file = folder / f"{servers.replace(':', '-')}.yaml"
    times = []
    for number in range(args.rounds + 1):
        entries = [
            f"  - user: user-{user}\n    producer_byte_rate: {number + 1}MB/s"
            for user in range(args.quotas)
        ]
        file.write_text("quotas:\n" + "\n".join(entries) + "\n")
        times.append(timed([*KVOTA, "apply", str(file), "--bootstrap-server", servers, "--yes"]))
        shown = [*KVOTA, "plan", str(file), "--bootstrap-server", servers]
        subprocess.run(shown, check=True, stdout=subprocess.DEVNULL)  # nothing is left to do
    return times[1:]  # the first one warms the broker up


def tool_call(servers: str) -> float:
    words = ("--bootstrap-server", servers, "--alter", "--entity-type", "users")
    change = ("--entity-name", "user-0", "--add-config", "producer_byte_rate=1000000")
    command = kafka_command(
        "4.3.1", "kafka.admin.ConfigCommand", (*words, *change), log_level="OFF"
    )
    return statistics.median(timed(command) for _ in range(TOOL_CALLS))


def timed(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def report(args: argparse.Namespace, seconds: dict[str, list[float]], one_call: float) -> None:
    result: dict[str, object] = {
        "command": f"./run bench quotas_as_code --quotas {args.quotas} --rounds {args.rounds}",
        "kafka-configs.sh, one call, s": one_call,
    }
    for where, times in seconds.items():
        median = statistics.median(times)
        ratio = one_call * args.quotas / median
        result[where] = {"seconds": times, "of so many tool calls": ratio}
        print(
            f"{args.quotas} quotas at a {where}: median {median:.2f} s of {min(times):.2f} to {max(times):.2f}; "
            f"as many calls of kafka-configs.sh, {one_call:.2f} s each, take {ratio:.0f} times as long"
        )
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
