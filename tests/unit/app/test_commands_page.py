"""docs/commands.md has a row for each command."""

import argparse
import importlib
import re
from collections.abc import Collection

import pytest
from tests.documented_files import table_below

from kvota.app.cli.main import COMMANDS
from kvota.app.cli.parser import Parser


def actions_of(command: str) -> Collection[str]:
    """The actions of a command, if it has any."""
    parser = Parser(prog=command)
    importlib.import_module(f"kvota.app.cli.{command}").configure(parser)
    found = [
        each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction)
    ]
    return [] if not found else found[0].keys()


def rows() -> list[list[str]]:
    """Of each row the commands that it is of, in words."""
    named = []
    for first, *_ in table_below("Exit codes"):
        spans = re.findall("`([^`]+)`", first)
        command = spans[0].split()[0]
        named.append(
            [span if span.split()[0] in COMMANDS else f"{command} {span}" for span in spans]
        )
    return named


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_and_action_has_its_exit_codes_on_the_page(command: str) -> None:
    actions = actions_of(command)
    of_command = [
        words.split()[1:2] for row in rows() for words in row if words.split()[0] == command
    ]

    named = {word for words in of_command for word in words if not word.startswith("-")}
    assert of_command, "it has no row"
    assert named == set(actions)
