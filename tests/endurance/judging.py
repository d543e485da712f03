"""What clients have said is held against the broker's log."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.endurance.findings import Findings
from tests.endurance.topic_log import all_of

RECORDS_PER_TRANSACTION = 10
# What a verifiable consumer says that is judged.
GROUP_EVENTS = ("record_data", "offsets_committed")


def judge_numbers(log: Sequence[Sequence[str]], said: Sequence[str]) -> Findings:
    """What "failed" and "sent" lines say (see ``clients/producing.py``), against the partitions' records."""
    sent: set[str] = set()
    told = 0
    for words in (line.split() for line in said if line.startswith("sent ")):
        _, producer, count, of_them_told = words
        sent |= {f"{producer}-{number}" for number in range(int(count))}
        told += int(of_them_told)
    failed = {line.split()[1] for line in said if line.startswith("failed ")}
    found = judge_log(log, sent=sent, delivered=sent - failed)
    found.figures |= {"failed": len(failed), "silent": len(sent) - told}
    found.expect(not failed, f"{len(failed)} records were reported as failed")
    found.expect(told == len(sent), f"the client is silent about {len(sent) - told} records")
    return found


def judge_log(log: Sequence[Sequence[str]], *, sent: set[str], delivered: set[str]) -> Findings:
    """Each delivered record once, none twice, none that nobody sent, each producer's in order."""
    times = Counter(all_of(log))
    missing = delivered - times.keys()
    twice = [value for value, count in times.items() if count > 1]
    strange = times.keys() - sent
    disordered = sum(map(_out_of_order, log))
    found = Findings(
        {
            "sent": len(sent),
            "delivered": len(delivered),
            "in the log": sum(times.values()),
            "missing": len(missing),
            "twice": len(twice),
            "out of order": disordered,
        }
    )
    found.expect(bool(delivered), "nothing was delivered")
    found.expect(not missing, f"{len(missing)} are missing, e.g. {sorted(missing)[:3]}")
    found.expect(not twice, f"{len(twice)} are there twice, e.g. {sorted(twice)[:3]}")
    found.expect(not strange, f"{len(strange)} were sent by nobody, e.g. {sorted(strange)[:3]}")
    found.expect(not disordered, f"{disordered} stand before an earlier one of their producer")
    return found


def judge_transactions(
    said: Sequence[str], committed_log: Sequence[str], whole_log: Sequence[str]
) -> Findings:
    """What "committed", "aborted" and "unknown" lines say (see ``clients/transacting.py``), against both views of the log."""
    outcomes: dict[str, set[str]] = defaultdict(set)
    for line in said:
        if line.startswith(("committed ", "aborted ", "unknown ")):
            outcomes[line.split()[0]].add(line.split()[1])
    visible: dict[str, list[str]] = defaultdict(list)
    for value in committed_log:
        transaction, _, number = value.partition(".")
        visible[transaction].append(number)
    whole = sorted(str(number) for number in range(RECORDS_PER_TRANSACTION))
    broken = {one for one, numbers in visible.items() if sorted(numbers) != whole}
    lost = outcomes["committed"] - visible.keys()
    risen = outcomes["aborted"] & visible.keys()
    strange = visible.keys() - set().union(*outcomes.values())
    written = {value.partition(".")[0] for value in whole_log}
    found = Findings(
        {
            "transactions": sum(map(len, outcomes.values())),
            **{kind: len(outcomes[kind]) for kind in ("committed", "aborted", "unknown")},
            "committed and not visible": len(lost),
            "aborted and visible": len(risen),
            "not whole, or there twice": len(broken),
            "aborted and in the log": len(outcomes["aborted"] & written),
        }
    )
    found.expect(bool(outcomes["committed"]), "none was committed")
    found.expect(
        bool(outcomes["aborted"] & written), "of none that was aborted the log has records"
    )
    found.expect(not lost, f"{len(lost)} committed ones are not visible, e.g. {sorted(lost)[:3]}")
    found.expect(not risen, f"{len(risen)} aborted ones are visible, e.g. {sorted(risen)[:3]}")
    found.expect(not broken, f"{len(broken)} are not whole, or there twice: {sorted(broken)[:3]}")
    found.expect(not strange, f"{len(strange)} were made by nobody, e.g. {sorted(strange)[:3]}")
    return found


def judge_copy(source: Sequence[Sequence[str]], copy: Sequence[Sequence[str]]) -> Findings:
    """The copy has the same records in the same order, partition by partition."""
    differing = [number for number, one in enumerate(source) if one != copy[number]]
    times = Counter(all_of(copy))
    twice = sum(count > 1 for count in times.values())
    missing = len(set(all_of(source)) - times.keys())
    found = Findings({"copied": sum(times.values()), "missing": missing, "twice": twice})
    found.expect(bool(times), "nothing was copied")
    found.expect(not missing, f"{missing} are missing in the copy")
    found.expect(not twice, f"{twice} are there twice in the copy")
    found.expect(not differing, f"partitions {differing} are not copied in order")
    return found


def judge_group(log: Sequence[Sequence[str]], events: Sequence[Mapping[str, Any]]) -> Findings:
    """What a group's verifiable consumers say ("record_data", "offsets_committed"; in any order), against the log.

    Each record was seen, and none again after the group had committed it; what was not committed may come again.
    """
    seen: Counter[tuple[int, int]] = Counter()
    committed: dict[int, int] = defaultdict(int)
    again_though_committed = failed_commits = 0
    for event in sorted(events, key=lambda event: int(event["timestamp"])):
        if event["name"] == "record_data":
            at = event["partition"], event["offset"]
            again_though_committed += seen[at] > 0 and event["offset"] < committed[at[0]]
            seen[at] += 1
        elif event["success"]:
            _note_commit(committed, event)
        else:
            failed_commits += 1
    wanted = {(number, offset) for number, part in enumerate(log) for offset in range(len(part))}
    missing = len(wanted - seen.keys())
    behind = sum(len(part) - committed[number] for number, part in enumerate(log))
    found = Findings(
        {
            "seen": len(seen),
            "again, not committed before": sum(seen.values()) - len(seen) - again_though_committed,
            "again though committed": again_though_committed,
            "commits that failed": failed_commits,
            "missing": missing,
            "not committed at the end": behind,
        }
    )
    found.expect(not missing, f"{missing} records were not seen")
    found.expect(seen.keys() <= wanted, "something was seen that is not in the log")
    found.expect(not again_though_committed, f"{again_though_committed} came after their commit")
    found.expect(not behind, f"{behind} were not committed at the end")
    return found


def _note_commit(committed: dict[int, int], event: Mapping[str, Any]) -> None:
    for part in event["offsets"]:
        number = part["partition"]
        committed[number] = max(committed[number], part["offset"])


def _out_of_order(partition: Sequence[str]) -> int:
    last: dict[str, int] = {}
    count = 0
    for value in partition:
        producer, _, number = value.rpartition("-")
        count += int(number) <= last.get(producer, -1)
        last[producer] = int(number)
    return count
