"""Reads a command's options; what is wrong is named with its place, its value and what was probably meant."""

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from kvota.app.cli.exit_codes import WRONG_USE
from kvota.files.command_name import called

_CHOICE = re.compile(r"(?P<place>.+): invalid choice: '(?P<word>.*)' \(choose from (?P<known>.+)\)")
_NUMBER = re.compile(r"(?P<place>.+): invalid (?P<kind>int|float) value: '(?P<word>.*)'")
_SURPLUS = re.compile(r"unrecognized arguments: (?P<word>\S+).*", re.DOTALL)
_REQUIRED = re.compile(
    r"(?:the following arguments are required:|one of the arguments) (?P<option>--[a-z-]+)(?: .*)?"
)
# What other programs call it.
_OTHERWISE_CALLED = {
    "--json": "--output json",
    "--format": "--output",
    "--from": "--since",
    "--to": "--until",
    "--limit": "--top",
    "--debug": "--log-level debug",
}


class Parser(argparse.ArgumentParser):
    """Starts its help with an example; answers wrong use with the nearest word.

    Attributes:
        exit_code_of_wrong_use: 2, but for a command that stands in for another program.
    """

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        kwargs["allow_abbrev"] = False
        super().__init__(*args, **kwargs)
        self.exit_code_of_wrong_use = WRONG_USE
        self._example = example
        self._words: Sequence[str] = ()

    def format_help(self) -> str:
        """Return the help, with the example first."""
        start = f"example:\n  {self._example}\n\n" if self._example else ""
        return start + super().format_help()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse does; but ``-check`` is not ``-c heck``."""
        self._words = sys.argv[1:] if args is None else list(args)
        for word in () if self._passes_words_on else self._words:
            if re.fullmatch("-[a-z][a-z-]+", word) and f"-{word}" in self._option_string_actions:
                self.error(f'there is no option "{word}", did you mean "-{word}"')
            if word == "--":
                break
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit."""
        print(f"{self.prog}: {self._said(message)} See {self.prog} --help", file=sys.stderr)
        sys.exit(self.exit_code_of_wrong_use)

    def _said(self, message: str) -> str:
        """What to say instead of argparse's own words."""
        unknown = self._unknown_option()
        if unknown is not None:
            near = _OTHERWISE_CALLED.get(unknown) or _nearest(unknown, self._known())
            return f'there is no option "{unknown}".{_meant(near)}'
        choice = _CHOICE.fullmatch(message)
        if choice is not None:
            known = [word.strip("'") for word in choice["known"].split(", ")]
            near = _nearest(choice["word"], known)
            return f'{choice["place"]}: "{choice["word"]}" is not one of {", ".join(known)}.{_meant(near)}'
        number = _NUMBER.fullmatch(message)
        if number is not None:
            kind = "a whole number" if number["kind"] == "int" else "a number"
            return f'{number["place"]}: "{number["word"]}" is not {kind}.'
        surplus = _SURPLUS.fullmatch(message)
        if surplus is not None:
            return self._said_of_surplus(surplus["word"])
        required = _REQUIRED.fullmatch(message)
        if required is not None and self._words and not self._words[0].startswith("-"):
            option = required["option"]
            takes_words = self._option_string_actions[option].nargs != 0
            near = f"{option} {self._words[0]}" if takes_words else None
            return f"{message}.{_meant(near)}"
        return f"{message}."

    def _said_of_surplus(self, word: str) -> str:
        """Of a word that belongs to nothing; a name may lack its option."""
        if word.startswith("-"):
            return f'there is no option "{word}".'
        near = f"--user {word}" if "--user" in self._known() else None
        return f'"{word}" is one word too many.{_meant(near)}'

    def _unknown_option(self) -> str | None:
        """The first word that looks like an option and is none."""
        if self._passes_words_on:
            return None
        words = [word.partition("=")[0] for word in self._words]
        end = words.index("--") if "--" in words else len(words)
        options = [word for word in words[:end] if re.match("--[a-zA-Z]", word)]
        return next((word for word in options if word not in self._known()), None)

    @property
    def _passes_words_on(self) -> bool:
        """True where words are for another program, too."""
        parsers = [self, *self._chosen()]
        actions = [action for parser in parsers for action in parser._actions]  # noqa: SLF001
        return any(action.nargs == argparse.REMAINDER for action in actions)

    def _known(self) -> list[str]:
        """All options that may be said here."""
        parsers = [self, *self._chosen()]
        return [option for parser in parsers for option in parser._option_string_actions]  # noqa: SLF001

    def _chosen(self) -> list[argparse.ArgumentParser]:
        """The parser of the action that is named, if there are any."""
        actions = [
            action
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001  (it has no public name)
        ]
        choices = actions[0].choices if actions else {}
        return [choices[word] for word in self._words[:1] if word in choices]


def add_action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    words: str,
    example: str,
) -> argparse.ArgumentParser:
    """Add one action of a command, whose help begins with what it does and an example.

    Args:
        actions: of the command.
        name: of the action.
        words: what it does, without a capital letter.
        example: what somebody types behind the program's name.
    """
    description = f"{words[0].upper()}{words[1:]}. Example: {called()} {example}"
    return actions.add_parser(name, help=words, description=description)


def _nearest(word: str, known: Any) -> str | None:
    of_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), of_lower, n=1)
    return of_lower[near[0]] if near else None


def _meant(word: str | None) -> str:
    return "" if word is None else f' Did you mean "{word}"?'
