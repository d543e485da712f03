"""What ``kvota topics`` does."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kvota.admin import (
    AdminClient,
    BrokerError,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    Results,
    Topic,
    UnreachableError,
    UsageError,
)
from kvota.app.cli.cluster_options import cluster_of_options
from kvota.app.cli.exit_codes import DONE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.topic_results import TopicResult, exit_code_of, say_of_throttled
from kvota.app.text_table import text_table
from kvota.wire.error_code import ErrorCode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def run(args: argparse.Namespace) -> int:
    """Carry the action out; return the exit code."""
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    names = [] if args.action == "list" else _names(args)
    if args.action == "create":
        args.config = _configs(args.config)
    cluster = cluster_of_options(args, client_id="kvota-topics")
    admin = AdminClient.of(cluster)
    try:
        try:
            async with asyncio.timeout(args.timeout / 1000):
                await admin.start()
        except TimeoutError as error:
            msg = f"{args.bootstrap_server}: no answer within {args.timeout / 1000:g} s"
            raise UnreachableError(msg) from error
        return await _ACTIONS[args.action](admin, args, names)
    finally:
        await admin.close()


# ------------------------------------------------------------------ names


def _names(args: argparse.Namespace) -> list[str]:
    """All that are named, each of them once.

    Raises:
        UsageError: none where some are needed, one twice, or a file cannot be read.
    """
    place_of: dict[str, str] = {}
    named = [("the command line", name) for name in args.names]
    if args.from_file is not None:
        named += _named_in(args.from_file)
    for place, name in named:
        if not name:
            msg = f"{place}: a topic's name is empty"
            raise UsageError(msg)
        if name in place_of:
            msg = f'topic "{name}" is named twice: {place_of[name]}, {place}'
            raise UsageError(msg)
        place_of[name] = place
    if not place_of and args.action != "describe":
        msg = f"name the topics to {args.action}, or a file with --from-file"
        raise UsageError(msg)
    return list(place_of)


def _named_in(path: Path) -> list[tuple[str, str]]:
    """Places and names of a file with a name a line."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from error
    shown = "stdin" if str(path) == "-" else path
    lines = [(f"{shown}:{number}", line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    found = [(place, name) for place, name in lines if name and name[0] != "#"]
    if not found:
        msg = f"{shown}: names no topic; write one a line"
        raise UsageError(msg)
    return found


# ------------------------------------------------------------------ changes


async def _create(admin: AdminClient, args: argparse.Namespace, names: Sequence[str]) -> int:
    partitions = -1 if args.partitions is None else args.partitions
    factor = -1 if args.replication_factor is None else args.replication_factor
    topics = [NewTopic(name, partitions, factor, configs=args.config) for name in names]
    results = await admin.create_topics(
        topics,
        validate_only=args.validate_only,
        retry_on_quota_violation=args.wait,
        timeout_ms=args.timeout,
    )
    done = "valid" if args.validate_only else "created"
    fine: dict[int, str] = {ErrorCode.TOPIC_ALREADY_EXISTS: "exists"} if args.if_not_exists else {}
    return _report(args, [_changed(results, name, done, _created, fine) for name in names])


def _configs(settings: Sequence[tuple[str, str]]) -> dict[str, str | None]:
    configs: dict[str, str | None] = {}
    for name, value in settings:
        if name in configs:
            msg = f'--config: "{name}" is there twice; which value holds?'
            raise UsageError(msg)
        configs[name] = value
    return configs


def _created(made: CreatedTopic) -> Mapping[str, object]:
    return {
        "topic_id": None if made.topic_id is None else str(made.topic_id),
        "partitions": made.num_partitions,
        "replication_factor": made.replication_factor,
    }


async def _alter(admin: AdminClient, args: argparse.Namespace, names: Sequence[str]) -> int:
    results = await admin.create_partitions(
        dict.fromkeys(names, NewPartitions(args.partitions)),
        validate_only=args.validate_only,
        retry_on_quota_violation=args.wait,
        timeout_ms=args.timeout,
    )
    done = "valid" if args.validate_only else "altered"

    def altered(_: None) -> Mapping[str, object]:
        return {"partitions": args.partitions}

    return _report(args, [_changed(results, name, done, altered, _absent(args)) for name in names])


async def _delete(admin: AdminClient, args: argparse.Namespace, names: Sequence[str]) -> int:
    found = await admin.delete_topics(
        names, retry_on_quota_violation=args.wait, timeout_ms=args.timeout
    )
    rows = [_changed(found, name, "deleted", lambda _: {}, _absent(args)) for name in names]
    return _report(args, rows)


def _absent(args: argparse.Namespace) -> Mapping[int, str]:
    return {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "absent"} if args.if_exists else {}


def _changed(
    results: Results[K, V],
    name: K,
    done: str,
    facts: Callable[[V], Mapping[str, object]],
    fine: Mapping[int, str],
) -> TopicResult:
    """What became of one topic; ``fine`` are codes that mean nothing is left to be done."""
    error = results.exception(name)
    if error is None:
        return TopicResult(str(name), done, facts(results.result(name)))
    if isinstance(error, BrokerError) and error.code in fine:
        return TopicResult(str(name), fine[error.code])
    return TopicResult.of_error(str(name), error)


def _report(args: argparse.Namespace, rows: Sequence[TopicResult]) -> int:
    if args.output == "json":
        print_json({"action": args.action, "topics": [row.content() for row in rows]})
    else:
        for row in rows:
            print(row.line())
    say_of_throttled(rows, has_waited=args.wait)
    return exit_code_of(rows)


# ------------------------------------------------------------------ looks


async def _describe(admin: AdminClient, args: argparse.Namespace, names: Sequence[str]) -> int:
    wanted = names or sorted(await admin.list_topics(list_internal=True, timeout_ms=args.timeout))
    results = await admin.describe_topics(wanted, timeout_ms=args.timeout)
    errors = [
        TopicResult.of_error(name, results.errors[name])
        for name in wanted
        if name in results.errors
        # Of those that were listed, one may have been deleted meanwhile.
        and not (not names and _is_gone(results.errors[name]))
    ]
    topics = [results.values[name] for name in wanted if name in results.values]
    if args.output == "json":
        rows = [_topic_content(topic) for topic in topics] + [row.content() for row in errors]
        print_json({"action": "describe", "topics": rows})
    else:
        if topics:
            print(_partition_table(topics) if args.partitions else _topic_table(topics))
        for row in errors:
            print(row.line())
    return exit_code_of(errors)


def _is_gone(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic_content(topic: Topic) -> Mapping[str, object]:
    return {
        "topic": topic.name,
        "result": "described",
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "partition": each.index,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "in_sync": list(each.in_sync),
            }
            for each in topic.partitions
        ],
    }


def _topic_table(topics: Sequence[Topic]) -> str:
    rows = [
        (
            topic.name,
            str(len(topic.partitions)),
            ", ".join(map(str, sorted({len(each.replicas) for each in topic.partitions}))),
            str(sum(each.leader is None for each in topic.partitions)),
            str(sum(len(each.in_sync) < len(each.replicas) for each in topic.partitions)),
        )
        for topic in topics
    ]
    header = ("topic", "partitions", "replicas", "without leader", "not in sync")
    return text_table(header, rows)


def _partition_table(topics: Sequence[Topic]) -> str:
    rows = [
        (
            topic.name,
            str(each.index),
            "none" if each.leader is None else str(each.leader),
            ",".join(map(str, each.replicas)),
            ",".join(map(str, each.in_sync)),
        )
        for topic in topics
        for each in topic.partitions
    ]
    return text_table(("topic", "partition", "leader", "replicas", "in sync"), rows, keys=2)


async def _list(admin: AdminClient, args: argparse.Namespace, _names: Sequence[str]) -> int:
    found = await admin.list_topics(list_internal=args.internal, timeout_ms=args.timeout)
    if args.output == "json":
        rows = [
            {
                "topic": name,
                "topic_id": None if found[name].topic_id is None else str(found[name].topic_id),
                "is_internal": found[name].is_internal,
            }
            for name in sorted(found)
        ]
        print_json({"action": "list", "topics": rows})
    else:
        for name in sorted(found):
            print(name)
    return DONE


_ACTIONS: dict[
    str, Callable[[AdminClient, argparse.Namespace, Sequence[str]], Coroutine[None, None, int]]
] = {
    "create": _create,
    "alter": _alter,
    "delete": _delete,
    "describe": _describe,
    "list": _list,
}
