"""What ``kvota configs`` does."""

import asyncio
from argparse import Namespace
from pathlib import Path

from kvota.admin import AdminClient
from kvota.app.cli.cluster_options import cluster_of_options
from kvota.app.cli.configs_output import JsonOutput, TextOutput
from kvota.app.cli.exit_codes import DONE
from kvota.app.kafka_configs import altering, describing
from kvota.app.kafka_configs.command_line import read_command_line


def run(args: Namespace) -> int:
    """Alter or describe, and print it.

    Raises:
        KvotaError: something is wrong; the text says what. What was found before that is printed.
    """
    line = read_command_line(args)
    output = JsonOutput() if args.output == "json" else TextOutput()
    where = Namespace(
        bootstrap_server=args.bootstrap_server[0],
        command_config=Path(args.command_config[0]) if args.command_config else None,
    )
    cluster = cluster_of_options(where, client_id="kvota-configs")

    async def done() -> None:
        async with AdminClient.of(cluster) as admin:
            await (altering.alter if line.alters else describing.describe)(admin, line, output)

    asyncio.run(done())
    output.end()
    return DONE
