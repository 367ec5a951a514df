"""Reads a command's options from a YAML file, and writes all options of a run to one."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Options of one invocation, not of the run: they are not written to the run's file.
NOT_WRITTEN = frozenset({"config", "resume", "debug", "command"})


class ConfigFile(argparse.Action):
    """`--config FILE.yaml`: read the other options of the command from a file.

    Keys are the options' names, with dashes or underscores. A list repeats an option. A mapping gives one NAME=VALUE
    for each entry. `true` turns a switch on. An option after --config replaces the file's value, and the file replaces
    an option before it. If the option may be repeated, its values are added instead.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Parse the file's options as if they were on the command line. Anything else in the file is a usage error."""
        path = Path(str(values))
        setattr(namespace, self.dest, path)
        arguments: list[str] = []
        for key, value in _read(path, parser).items():
            action = _action(parser, path, str(key))
            arguments += _arguments(parser, path, action, value)
        _, unknown = parser.parse_known_args(arguments, namespace)
        if unknown:
            parser.error(f"{path}: {unknown[0]!r} is not an option")


def check_required(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise ArgumentError for the first of these options that is neither on the command line nor in the file."""
    for name in names:
        if not getattr(args, name):
            message = f"--{name.replace('_', '-')} is missing: give it, or put it into the --config file"
            raise argparse.ArgumentError(None, message)


def write_config(path: Path, args: argparse.Namespace) -> None:
    """Write every option of a run so that `--config` can read it again."""
    import yaml

    kept = {
        name.replace("_", "-"): _plain(value)
        for name, value in sorted(vars(args).items())
        if name not in NOT_WRITTEN and value is not None and value != []
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(kept, allow_unicode=True, sort_keys=True), "utf-8")


def _read(path: Path, parser: argparse.ArgumentParser) -> dict[Any, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        parser.error(f"{path} cannot be read ({error.strerror})")
    except (yaml.YAMLError, ValueError) as error:
        parser.error(f"{path} is not YAML: {' '.join(str(error).split())}")
    if not isinstance(content, dict):
        parser.error(f"{path} is not a mapping of options to values")
    return content


def _action(parser: argparse.ArgumentParser, path: Path, key: str) -> argparse.Action:
    """The option that a key names."""
    options = {
        option.removeprefix("--"): action
        for action in parser._actions  # argparse has no public list of them
        for option in action.option_strings
        if option.startswith("--") and action.dest not in ("help", "config")
    }
    name = key.replace("_", "-")
    if name not in options:
        near = difflib.get_close_matches(name, options, n=1)
        parser.error(f"{path}: unknown option {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return options[name]


def _arguments(
    parser: argparse.ArgumentParser, path: Path, action: argparse.Action, value: object
) -> Iterator[str]:
    """Yield the command-line arguments for an option.

    A switch that is false has none. Another option has none if its value is null.
    """
    flag = action.option_strings[-1]
    if action.nargs == 0:
        if not isinstance(value, bool):
            parser.error(f"{path}: {flag.removeprefix('--')} is {value!r}: true or false is needed")
        if value:
            yield flag
        return
    is_repeatable = isinstance(action.default, list) or type(action).__name__ == "_AppendAction"
    values = _values(value)
    if len(values) > 1 and not is_repeatable:
        parser.error(f"{path}: {flag.removeprefix('--')} has {len(values)} values: it takes one")
    for one in values:
        yield f"{flag}={one}"


def _values(value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [f"{name}={one}" for name, one in value.items()]
    if isinstance(value, list):
        return [str(one) for one in value]
    return [str(value)]


def _plain(value: Any) -> Any:
    """The value in YAML's own types. NAME=WEIGHT pairs become a mapping."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list) and all(isinstance(one, tuple) for one in value):
        return dict(value)
    return value
