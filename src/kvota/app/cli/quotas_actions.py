"""What ``kvota quotas`` does."""

import argparse
import asyncio
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.app.cli.cluster_options import cluster_of_options
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.quotas_shadow import check_shadowed, show_shadow
from kvota.app.quotas_as_code.alterable_quotas import InForce, NotAllowedError
from kvota.app.quotas_as_code.applying import Applied, Wishes, apply, undo
from kvota.app.quotas_as_code.cluster_quotas import ClusterQuotas
from kvota.app.quotas_as_code.difference_lines import shown_lines
from kvota.app.quotas_as_code.other_formats import (
    KafkaUsers,
    kafka_configs_lines,
    left_out_of_kafka_configs,
    users_changed,
    users_wanted,
)
from kvota.app.quotas_as_code.plan import (
    QuotaPlan,
    check_fresh,
    difference_json,
    make_plan,
    plan_document,
    plan_json,
)
from kvota.app.quotas_as_code.undo_file import iso_time
from kvota.app.system_clock import SystemClock
from kvota.files.command_name import called
from kvota.files.whole_file import write_whole
from kvota.model.client_quotas import KeyChange
from kvota.model.errors import UnreachableError, UsageError
from kvota.planning.wanted_quotas import WantedQuotas
from kvota.store.quotas_yaml import (
    SCHEMA_FILE,
    SUFFIXES,
    QuotasDocument,
    dump_document,
    load_document,
    write_document,
)

if TYPE_CHECKING:
    from kvota.client import Cluster


def _export(args: argparse.Namespace) -> int:
    if (args.source is None) == (args.bootstrap_server is None):
        msg = "export wants --bootstrap-server, or --from FILE, and not both"
        raise UsageError(msg)
    if args.source is not None:
        wanted = _of_file(args.source)
    else:
        found = asyncio.run(_in_force(args))
        _say_left_out(found)
        wanted = WantedQuotas(quotas=found.quotas)
    text = _formatted(args, wanted)
    _put(args.to, text)
    return DONE


async def _in_force(args: argparse.Namespace) -> InForce:
    async with ClusterQuotas(_cluster(args)) as quotas:
        return await quotas.in_force()


def _of_file(path: Path) -> WantedQuotas:
    from kvota.app.import_quotas import file_quotas

    if path.suffix in SUFFIXES:
        return load_document(path).wanted
    return WantedQuotas(quotas=file_quotas(path))


def _formatted(args: argparse.Namespace, wanted: WantedQuotas) -> str:
    if args.format == "kafka-configs":
        return _kafka_configs(args, list(wanted.values()))
    if args.format == "strimzi":
        return _strimzi(users_wanted(wanted, cluster=args.kafka_resource))
    return dump_document(QuotasDocument(wanted=wanted))


def _kafka_configs(args: argparse.Namespace, changes: Sequence[KeyChange]) -> str:
    for sentence in left_out_of_kafka_configs(changes):
        _say(f"left out: {sentence}")
    lines = kafka_configs_lines(changes, **_tool_options(args))
    return "".join(f"{line}\n" for line in lines)


def _tool_options(args: argparse.Namespace) -> Mapping[str, str]:
    options = {"bootstrap_server": args.bootstrap_server or "HOST:PORT"}
    if args.command_config is not None:
        options["command_config"] = str(args.command_config)
    return options


def _strimzi(users: KafkaUsers) -> str:
    for sentence in users.left_out:
        _say(f"left out: {sentence}")
    return users.text


def _plan(args: argparse.Namespace) -> int:
    document = load_document(args.file)
    _check_is_wish(args.file, document)
    plan, cluster_id = asyncio.run(_compared(args, document))
    prunes = _prunes(args, document)
    if args.output == "json":
        print_json(plan_json(plan, cluster_id=cluster_id))
    elif args.format == "kafka-configs":
        print(_kafka_configs(args, [each.change for each in plan.differences]), end="")
    elif args.format == "strimzi":
        print(_strimzi(users_changed(plan, cluster=args.kafka_resource)), end="")
    else:
        _show(plan)
    _say_about(plan)
    for sentence in plan.objections():
        _say(f"apply refuses this without --force: {sentence}")
    if args.plan_file is not None:
        made_at = iso_time(SystemClock().now_us() // 1000)
        written = plan_document(
            document, plan, made_at=made_at, cluster_id=cluster_id, prunes=prunes
        )
        write_document(args.plan_file, written, heading=f"A plan: {called()} quotas apply FILE")
        _say(f"wrote {args.plan_file}")
    return NEGATIVE if plan.differences else DONE


async def _compared(
    args: argparse.Namespace, document: QuotasDocument
) -> tuple[QuotaPlan, str | None]:
    async with ClusterQuotas(_cluster(args)) as quotas:
        cluster_id = await quotas.cluster_id()
        found = await quotas.in_force()
        if document.plan is not None:
            check_fresh(document.plan, found, cluster_id)
        plan = make_plan(
            document,
            found,
            prunes=_prunes(args, document),
            lower_percent_max=args.lower_max,
        )
        try:
            await quotas.check(plan.differences)
        except NotAllowedError as error:  # whoever only looks may plan
            _say(f"the cluster has not checked this: {error}")
        return plan, cluster_id


def _apply(args: argparse.Namespace) -> int:
    document = load_document(args.file)
    _check_is_wish(args.file, document)
    if args.shadowed is not None:
        check_shadowed(args, document.wanted, prunes=_prunes(args, document))
    wishes = Wishes(
        file=args.file,
        command=_typed(args, "apply"),
        prunes=_prunes(args, document),
        lower_percent_max=args.lower_max,
        age_max_ms=args.max_age,
        is_forced=args.force,
        ramp=args.ramp,
        undo_file=args.undo_file,
    )

    async def applied() -> Applied:
        async with ClusterQuotas(_cluster(args)) as quotas:
            return await apply(quotas, document, wishes, _Screen(args), SystemClock())

    return _changed(args, asyncio.run(applied()))


def _undo(args: argparse.Namespace) -> int:
    wishes = Wishes(
        file=args.file,
        command=_typed(args, "undo"),
        is_forced=args.force,
        undo_file=args.undo_file,
    )

    async def undone() -> Applied:
        async with ClusterQuotas(_cluster(args)) as quotas:
            return await undo(quotas, wishes, _Screen(args), SystemClock())

    return _changed(args, asyncio.run(undone()))


def _schema(args: argparse.Namespace) -> int:
    _put(args.to, SCHEMA_FILE.read_text(encoding="utf-8"))
    return DONE


class _Screen:
    """Asks on a terminal; elsewhere ``--yes`` is the answer."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    def show(self, plan: QuotaPlan) -> None:
        if self._args.output != "json":
            _show(plan)
        _say_about(plan)

    def agrees(self, plan: QuotaPlan) -> bool:
        if self._args.yes:
            return True
        if not sys.stdin.isatty():
            return False
        values = _counted(len(plan.differences))
        print(f"Change {values} (y/n)? ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def undone_by(self, path: Path) -> None:
        _say(f"to undo: {called()} quotas undo {_words(self._args, path)}")

    def say(self, text: str) -> None:
        _say(text)


def _changed(args: argparse.Namespace, applied: Applied) -> int:
    if args.output == "json":
        print_json(
            {
                "changes": [difference_json(each) for each in applied.plan.differences],
                "applied": applied.undo_file is not None,
                "undo_file": None if applied.undo_file is None else str(applied.undo_file),
            }
        )
    if not applied.plan.differences:
        _say("nothing to do: all of it is in force")
        return DONE
    if not applied.is_agreed:
        _say("nothing was changed; --yes does it without a question")
        return NEGATIVE
    _say(f"{_counted(len(applied.plan.differences))} changed, and in force")
    return DONE


def _show(plan: QuotaPlan) -> None:
    for line in shown_lines(plan.differences):
        print(line)
    if not plan.differences:
        print("nothing to do: all of it is in force")


def _say_about(plan: QuotaPlan) -> None:
    _say_left_out(InForce(plan.in_force, plan.left_out))
    if plan.unmentioned:
        stay = "stays" if plan.unmentioned == 1 else "stay"
        _say(
            f"{_counted(plan.unmentioned)} in force that the file does not mention {stay}; --prune removes them"
        )


def _say_left_out(found: InForce) -> None:
    for each in found.left_out:
        _say(f"left as it is: {each.sentence}")


def _counted(values: int) -> str:
    return "1 value" if values == 1 else f"{values:,} values"


def _check_is_wish(path: Path, document: QuotasDocument) -> None:
    if document.undo is not None:
        msg = f"{path} undoes a change: {called()} quotas undo {path}"
        raise UsageError(msg)


def _prunes(args: argparse.Namespace, document: QuotasDocument) -> bool:
    """A plan has its own word for it, which nobody can change without another look."""
    if document.plan is None:
        return bool(args.prune)
    if args.prune and not document.plan.prunes:
        msg = f"{args.file} was planned without --prune; plan again with it"
        raise UsageError(msg)
    return document.plan.prunes


def _cluster(args: argparse.Namespace) -> "Cluster":
    return cluster_of_options(args, client_id="kvota-quotas-as-code")


def _typed(args: argparse.Namespace, action: str) -> str:
    words = [f"{called()} quotas {action} {_words(args, args.file)}"]
    words += [f"--{name}" for name in ("prune", "force") if getattr(args, name, False)]
    if getattr(args, "ramp", None) is not None:
        words.append(f"--ramp {args.ramp}")
    return " ".join(words)


def _words(args: argparse.Namespace, file: Path) -> str:
    words = [str(file), "--bootstrap-server", args.bootstrap_server]
    if args.command_config is not None:
        words += ["--command-config", str(args.command_config)]
    return shlex.join(words)


def _put(path: Path | None, text: str) -> None:
    """Write a file that is new; what somebody has written is never replaced."""
    if path is None:
        print(text, end="")
        return
    if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
        msg = f"{path} is there already; name another file, or remove it first"
        raise UsageError(msg)
    try:
        write_whole(path, text.encode())
    except OSError as error:
        msg = f"{path} could not be written: {error.strerror or error}"
        raise UnreachableError(msg) from error
    _say(f"wrote {path}")


def _say(text: str) -> None:
    print(f"kvota: {text}", file=sys.stderr)


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "export": _export,
    "plan": _plan,
    "shadow": show_shadow,
    "apply": _apply,
    "undo": _undo,
    "schema": _schema,
}
