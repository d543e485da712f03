"""Transactional producers of librdkafka, each with one transaction after the other until standard input ends.

    python transacting.py BOOTSTRAP TOPIC PARTITIONS NAME PRODUCERS PAUSE_S

A transaction has ten records, ``NAME-PRODUCER-NUMBER.0`` to ``.9``, which take turns on the partitions; every fifth is
aborted when its records are written. Lines on standard output: "began" when each producer has committed one; "committed ID",
"aborted ID" or, where the client cannot say what became of it, "unknown ID ERROR" for each transaction.
"""

import sys
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

RECORDS = 10
# Of those that are retried by the application: the client has tried for so long by itself.
CALL_S = 30.0

ended = threading.Event()
lock = threading.Lock()
have_begun: set[int] = set()


def say(line: str) -> None:
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def until_it_is_done(call: Callable[..., None]) -> None:
    """Again, where the client says that it may be tried again."""
    while True:
        try:
            call(CALL_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


class Transactional:
    """One producer, made anew behind a fatal error."""

    def __init__(self, settings: dict[str, object], topic: str, partitions: int) -> None:
        self._settings, self._topic, self._partitions = settings, topic, partitions
        self._producer: Producer | None = None

    def outcome(self, name: str, *, is_aborted: bool) -> str:
        """Of one transaction."""
        if self._producer is None:
            self._producer = Producer(self._settings)
            until_it_is_done(self._producer.init_transactions)
        try:
            self._write(name)
            if is_aborted:
                until_it_is_done(self._producer.abort_transaction)
                return "aborted"
            until_it_is_done(self._producer.commit_transaction)
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort():
                until_it_is_done(self._producer.abort_transaction)
                return "aborted"
            self._producer = None
            return f"unknown {reason.name()}"
        return "committed"

    def _write(self, name: str) -> None:
        assert self._producer is not None
        self._producer.begin_transaction()
        for number in range(RECORDS):
            self._producer.produce(
                self._topic, f"{name}.{number}", partition=number % self._partitions
            )
        while self._producer.flush(CALL_S):
            pass


def run(number: int, name: str, producer: Transactional, pause_s: float, count: int) -> None:
    made = 0
    while not ended.is_set():
        transaction = f"{name}-{number}-{made}"
        outcome, *reason = producer.outcome(transaction, is_aborted=made % 5 == 4).split()
        say(" ".join([outcome, transaction, *reason]))
        made += 1
        if outcome == "committed" and number not in have_begun:
            have_begun.add(number)
            if len(have_begun) == count:
                say("began")
        time.sleep(pause_s)


def main() -> None:
    bootstrap, topic, partitions, name, count, pause_s = sys.argv[1:]
    threads = []
    for number in range(int(count)):
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "transactional.id": f"{name}-{number}",
            "log_level": 0,
        }
        producer = Transactional(settings, topic, int(partitions))
        arguments = (number, name, producer, float(pause_s), int(count))
        threads.append(threading.Thread(target=run, args=arguments, daemon=True))
        threads[-1].start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
