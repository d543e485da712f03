"""Kafka's Java programs (nodes, tools, clients) are run by these command lines."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from kvota.files.cache import cache_folder
from kvota.files.whole_file import write_whole
from kvota.java.find import java_command
from kvota.localkafka.jars import class_archive
from kvota.localkafka.jars.class_path import kafka_classpath

# Programs that live for a second start sooner with the quick compiler alone.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)

# Kafka 3 logs with Log4j 1, which has other names.
_LOG4J1_NAMES = {"SYSTEM_OUT": "System.out", "SYSTEM_ERR": "System.err"}


def kafka_command(  # noqa: PLR0913 - each is an option of the Java program
    version: str,
    main_class: str,
    arguments: Sequence[str],
    *,
    heap_mb: int = 256,
    log_level: str = "INFO",
    log_stream: str = "SYSTEM_OUT",
    java_options: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs a class of Kafka's jars."""
    here = Path(__file__).parent
    return [
        str(java_command()),
        f"-Xmx{heap_mb}m",
        *("-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData"),
        # What the JVM itself has to say must not get between a tool's own lines.
        *("-Xlog:disable", "-Xlog:all=warning:stderr"),
        *class_archive.using_options(version, java_options),
        f"-Dlog4j2.configurationFile={here / 'log4j2.properties'}",
        f"-Dlog4j.configuration={(here / 'log4j.properties').as_uri()}",
        f"-Dkvota.log.level={log_level}",
        f"-Dkvota.log.stream={log_stream}",
        f"-Dkvota.log.stream.log4j1={_LOG4J1_NAMES[log_stream]}",
        *java_options,
        f"@{_class_path_file(version)}",
        main_class,
        *arguments,
    ]


@functools.cache
def _class_path_file(version: str) -> Path:
    """Write a file that ``java @file`` reads: 92 jars would hide all else in every list of processes."""
    text = f'-cp "{kafka_classpath(version)}"\n'.replace("\\", "\\\\")
    name = f"kafka-{version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.classpath"
    file = cache_folder() / "classpaths" / name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode())
    return file
