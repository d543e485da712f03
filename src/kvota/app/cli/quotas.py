"""``kvota quotas`` keeps the quotas of a cluster, or of a gateway in front of one, in a file."""

import argparse
from math import inf

from kvota.app.cli.cluster_options import add_cluster_options
from kvota.app.cli.durations import duration_above_0_ms, duration_ms
from kvota.app.cli.parser import add_action
from kvota.app.cli.places import a_path
from kvota.app.cli.running_options import add_running_options
from kvota.app.cli.status import top_count

EXAMPLE = (
    "{kvota} quotas export --bootstrap-server 127.0.0.1:9092 --to quotas.yaml; edit it; "
    "{kvota} quotas apply quotas.yaml --bootstrap-server 127.0.0.1:9092"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's actions and their options."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="export|plan|shadow|apply|undo|schema"
    )
    export = add_action(
        actions, "export", "write what is in force", "quotas export --bootstrap-server kafka:9092"
    )
    add_cluster_options(export, required=False)
    export.add_argument(
        "--from",
        dest="source",
        type=a_path,
        metavar="FILE",
        help="a quotas.yaml or quotas.toml instead of a cluster, e.g. for another --format",
    )
    export.add_argument(
        "--to", type=a_path, metavar="FILE", help="write into this file (default: stdout)"
    )
    _add_format(export, ("yaml", "kafka-configs", "strimzi"), "yaml")

    plan = add_action(
        actions,
        "plan",
        "say what a file would change; exit 0: nothing, 1: something",
        "quotas plan quotas.yaml --bootstrap-server kafka:9092",
    )
    _add_file(plan, "quotas.yaml")
    add_cluster_options(plan)
    _add_wishes(plan)
    plan.add_argument(
        "--plan-file",
        type=a_path,
        metavar="FILE",
        help="write the plan into this file; apply takes it as long as nothing else has changed",
    )
    _add_format(plan, ("diff", "kafka-configs", "strimzi"), "diff")
    plan.add_argument("--output", choices=("table", "json"), default="table")

    shadow = add_action(
        actions,
        "shadow",
        "say who would be held back by the file that a gateway tries (quotas.shadow); exit 0: nobody, 1: somebody",
        "quotas shadow -c gateway.toml",
    )
    add_running_options(shadow)
    shadow.add_argument(
        "--top", type=top_count, default=20, metavar="N", help="so many lines at most (default: 20)"
    )
    shadow.add_argument("--output", choices=("lines", "json"), default="lines")

    apply = add_action(
        actions,
        "apply",
        "bring a file or a plan into force; what undoes it is written beside it first",
        "quotas apply quotas.yaml --bootstrap-server kafka:9092",
    )
    _add_file(apply, "quotas.yaml or a plan's file")
    add_cluster_options(apply)
    _add_wishes(apply)
    _add_age(apply)
    apply.add_argument(
        "--ramp",
        type=_ramp,
        metavar="PERCENT/TIME",
        help="go there in steps, e.g. 10%%/1h: every hour each limit by at most 10%% of what it is then; "
        "the same command goes on with a ramp that was stopped",
    )
    apply.add_argument(
        "--shadowed",
        type=duration_above_0_ms,
        metavar="TIME",
        help="only where a gateway has tried these quotas in shadow mode (quotas.shadow) for so long; shows what it has found first",
    )
    add_running_options(apply)
    _add_changing(apply, "do what guardrails refuse; begin a ramp anew from what is in force")

    undo = add_action(
        actions,
        "undo",
        "bring back what was in force before an apply",
        "quotas undo quotas.undo.yaml --bootstrap-server kafka:9092",
    )
    _add_file(undo, "the file that apply has written")
    add_cluster_options(undo)
    _add_changing(undo, "bring it back although somebody else has changed it since")

    schema = add_action(
        actions,
        "schema",
        "write the JSON schema, by which editors check and complete the file",
        "quotas schema --to quotas.schema.json",
    )
    schema.add_argument("--to", type=a_path, metavar="FILE", help="(default: stdout)")


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    from kvota.app.cli import quotas_actions

    return quotas_actions.ACTIONS[args.action](args)


def _add_file(parser: argparse.ArgumentParser, words: str) -> None:
    parser.add_argument("file", type=a_path, metavar="FILE", help=words)


def _add_wishes(parser: argparse.ArgumentParser) -> None:
    from kvota.app.quotas_as_code.plan import LOWER_PERCENT_MAX

    parser.add_argument(
        "--prune",
        action="store_true",
        help="remove quotas that the file does not mention (default: they stay)",
    )
    parser.add_argument(
        "--lower-max",
        type=_percent,
        default=LOWER_PERCENT_MAX,
        metavar="PERCENT",
        help=f"apply lowers no limit by more without --force (default: {LOWER_PERCENT_MAX:g}%%)",
    )


def _add_age(parser: argparse.ArgumentParser) -> None:
    from kvota.app.quotas_as_code.plan import AGE_MAX_MS

    parser.add_argument(
        "--max-age",
        type=_age,
        default=AGE_MAX_MS,
        metavar="TIME",
        help="refuse a plan that is older, e.g. 3d; none: take it however old it is (default: 24h)",
    )


def _age(text: str) -> float:
    return inf if text == "none" else duration_ms(text)


def _add_changing(parser: argparse.ArgumentParser, force: str) -> None:
    parser.add_argument("--force", action="store_true", help=force)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--undo-file",
        type=a_path,
        metavar="FILE",
        help="write what undoes it here (default: beside the file, quotas.undo.yaml, quotas.undo-2.yaml, …)",
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")


def _add_format(parser: argparse.ArgumentParser, choices: tuple[str, ...], default: str) -> None:
    parser.add_argument(
        "--format",
        choices=choices,
        default=default,
        help=f"(default: {default}); kafka-configs: command lines; strimzi: KafkaUser resources",
    )
    parser.add_argument(
        "--kafka-resource",
        default="my-cluster",
        metavar="NAME",
        help="with --format strimzi: the Kafka resource of the users (default: my-cluster)",
    )


def _percent(text: str) -> float:
    from kvota.app.cli.plan_values import percent

    found = 100 * percent(text)
    if found > 100:
        msg = f'"{text}" is more than all; write at most 100%'
        raise argparse.ArgumentTypeError(msg)
    return found


def _ramp(text: str) -> str:
    """Checked here, read where it is carried out: files have it as it was typed."""
    from kvota.app.quotas_as_code.ramping import parse_ramp

    try:
        parse_ramp(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text.replace(" ", "")
