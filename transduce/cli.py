"""The `transduce` command: a table of subcommands, of which only the selected one is imported.

`transduce --help` therefore needs no extra. A subcommand names its extra if that is not installed. Exit codes:
`transduce.errors.ExitCode`.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from transduce.errors import CommandError, ExitCode

EXIT_CODES_HELP = (
    "exit codes: 0 success; 1 failure; 2 wrong command line; 3 the load test is not valid; "
    "78 wrong setting, unusable bundle or missing extra; "
    "130 stopped with Ctrl-C (the live view of `top`: 0); "
    "those of the server: transduce serve --help"
)
SERVE_EXIT_CODES_HELP = (
    "exit codes: 0 stopped with Ctrl-C or SIGTERM; 1 the address cannot be used; 2 wrong command line; "
    "70 any other failed start, a dead engine, or a process that does not end in time after its drain; "
    "78 wrong setting, unusable bundle or missing extra; "
    "130, 143 a second Ctrl-C (130) or SIGTERM (143) cut the stop short"
)


@dataclass(frozen=True)
class Subcommand:
    """One subcommand and the location of its code.

    Attributes:
        summary: one line for the list of subcommands.
        module: holds `add_<suffix>_arguments(parser)` and `run_<suffix>(args) -> int`.
        suffix: the ending of those two names.
        extra: the extra that provides the subcommand's further dependencies; empty if it has none.
        exit_codes: the last lines of its help.
    """

    summary: str
    module: str
    suffix: str
    extra: str = ""
    exit_codes: str = EXIT_CODES_HELP


SUBCOMMANDS: dict[str, Subcommand] = {
    "serve": Subcommand(
        "serve translation over HTTP", "transduce.serve", "serve", exit_codes=SERVE_EXIT_CODES_HELP
    ),
    "models": Subcommand("list the bundles in a folder", "transduce.models", "models"),
    "translate": Subcommand(
        "translate a file or stdin through a running server", "transduce.translate", "translate"
    ),
    "loadtest": Subcommand(
        "measure a server under load", "transduce.loadtest.command", "loadtest", "loadtest"
    ),
    "size": Subcommand("find how many servers a load needs", "transduce.sizing.command", "size", "loadtest"),
    "top": Subcommand("watch a running server in the terminal", "transduce.top.command", "top", "top"),
    "tokenizer": Subcommand("train the SentencePiece tokenizer", "model.cli", "tokenizer", "train"),
    "prepare": Subcommand("clean, filter and sample parallel text", "model.prepare_cli", "prepare", "train"),
    "lexicon": Subcommand("learn word translations from parallel text", "model.cli", "lexicon", "train"),
    "train": Subcommand("train a model on parallel text", "model.train_cli", "train", "train"),
    "average": Subcommand("average checkpoints of a run into one", "model.cli", "average", "train"),
    "evaluate": Subcommand("score a checkpoint with BLEU and chrF", "model.cli", "evaluate", "train"),
    "plot": Subcommand(
        "draw attention, positions, learning curves, BLEU by length", "model.plot_cli", "plot", "train"
    ),
    "distill": Subcommand(
        "write a served model's translations as training data", "transduce.distill", "distill", "train"
    ),
    "export": Subcommand("convert a checkpoint into a bundle for serving", "export.cli", "export", "export"),
    "shortlist": Subcommand(
        "add a shortlist of target subwords to a bundle", "export.shortlist_cli", "shortlist", "export"
    ),
    "import": Subcommand(
        "make a bundle of a model that others trained", "export.import_cli", "import", "export"
    ),
    "verify": Subcommand("compare a bundle with its checkpoint", "export.cli", "verify", "export"),
}

# The subcommand during whose start `main` blocks signals.
SERVER = "serve"

# Two extras provide this module, `cpu` and `gpu`. If it is missing, the message names both for every subcommand.
RUNTIME_MODULE = "onnxruntime"
# Modules that a subcommand needs for some of its arguments only, and their extras.
OPTIONAL_MODULES = {"huggingface_hub": "hub"}


@dataclass(frozen=True)
class LoadedSubcommand:
    """The two functions of an imported subcommand."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code.

    Every error, even a failed write to stdout, becomes one line on stderr. `--debug` prints the traceback before it.
    Ctrl-C and a closed stdout print nothing. Usage errors and --help leave through argparse's SystemExit (2 and 0).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = selected_subcommand(arguments)
    open_closed_standard_files()
    if argv is None and name == SERVER:
        # Block the signals until the server handles them on its event loop. So SIGINT or SIGTERM during the start also
        # ends the server cleanly, and SIGHUP during the start causes a reload after it. On a terminal the server does
        # not handle SIGHUP, which ends the process.
        handled = [signal.SIGINT, signal.SIGTERM]
        if not os.isatty(2):  # stderr, as in `Server.capture_signals`
            handled.append(signal.SIGHUP)
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    is_debug = "--debug" in arguments
    try:
        return run_subcommand(name, arguments)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has closed the pipe, as `head` does
        return ExitCode.FAILURE
    except Exception as error:  # noqa: BLE001 - the outermost handler turns every error into one line
        if is_debug:
            traceback.print_exc()
        failure = explain(error, name=name, is_debug=is_debug)
        print(failure.message, file=sys.stderr)
        return failure.exit_code
    finally:
        flush_or_discard_stdout()


def open_closed_standard_files() -> None:
    """Open /dev/null for each closed one of the file descriptors 0 to 2, so that no other file gets its number.

    For a closed descriptor, Python has set sys.stdin, sys.stdout or sys.stderr to None. This attribute gets a file
    object again. With None, `print(..., file=sys.stderr)` would print to stdout, and sys.stdin.read() would fail.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
            file = open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, file)


def run_subcommand(name: str | None, arguments: Sequence[str]) -> int:
    """Run the subcommand `name` and return its exit code. Raises OSError if stdout cannot take what was printed."""
    try:
        loaded = load_subcommand(name) if name else None
        parsed = build_parser(name, loaded).parse_args(arguments)
        # parse_args has already rejected an unknown or missing subcommand.
        exit_code = ExitCode.USAGE if loaded is None else loaded.run(parsed)
    except SystemExit:  # --help and --version have printed
        flush_stdout()
        raise
    flush_stdout()
    return exit_code


def flush_stdout() -> None:
    """Write what stdout still holds. Raises OSError."""
    if sys.stdout is not None:  # None if stdout was closed and another file has got its number
        sys.stdout.flush()


def flush_or_discard_stdout() -> None:
    """Write what stdout still holds. If that fails, send stdout to /dev/null, so that the flush at exit succeeds."""
    try:
        flush_stdout()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def selected_subcommand(arguments: Sequence[str]) -> str | None:
    """The first argument without a dash, if it is a subcommand; else None.

    The options that can stand before the subcommand take no value.
    """
    for argument in arguments:
        if not argument.startswith("-"):
            return argument if argument in SUBCOMMANDS else None
    return None


def load_subcommand(name: str) -> LoadedSubcommand:
    """Import the code of subcommand `name`.

    Raises:
        ImportError: a required module is not installed.
    """
    subcommand = SUBCOMMANDS[name]
    module = importlib.import_module(subcommand.module)
    return LoadedSubcommand(
        add_arguments=getattr(module, f"add_{subcommand.suffix}_arguments"),
        run=getattr(module, f"run_{subcommand.suffix}"),
    )


def build_parser(selected: str | None, loaded: LoadedSubcommand | None) -> argparse.ArgumentParser:
    """The parser of the whole command; only the `selected` subcommand has its own arguments."""
    wide = functools.partial(argparse.HelpFormatter, max_help_position=28)
    parser = argparse.ArgumentParser(
        prog="transduce",
        formatter_class=wide,
        description="Train a translation model, export it to ONNX, serve it over HTTP.",
        epilog=EXIT_CODES_HELP,
    )
    parser.add_argument("--version", action="version", version=f"transduce {installed_version()}")
    debug_help = "show the traceback of errors"
    parser.add_argument("--debug", action="store_true", help=debug_help)
    subparsers = parser.add_subparsers(
        dest="command", metavar="command [options]", required=True, title="commands"
    )
    for name, subcommand in SUBCOMMANDS.items():
        child = subparsers.add_parser(
            name,
            help=subcommand.summary,
            description=f"{subcommand.summary[0].upper()}{subcommand.summary[1:]}.",
            epilog=subcommand.exit_codes,
            formatter_class=wide,
        )
        # SUPPRESS: otherwise this default would overwrite a --debug before the subcommand.
        child.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=debug_help)
        if loaded is not None and name == selected:
            loaded.add_arguments(child)
    return parser


def explain(error: Exception, *, name: str | None, is_debug: bool) -> CommandError:
    """The message and the exit code for an error that ends the command.

    An error that the user can fix keeps its own message. Any other error is reported as unexpected, with its type.
    """
    command = f"transduce {name}" if name else "transduce"
    if isinstance(error, CommandError):
        return CommandError(f"{command}: {one_line(error)}", exit_code=error.exit_code)
    if isinstance(error, argparse.ArgumentError):
        return CommandError(f"{command}: {one_line(error)}", exit_code=ExitCode.USAGE)
    if isinstance(error, ModuleNotFoundError) and (needed := missing_extra(error, name)):
        return CommandError(f"{command} needs {needed}", exit_code=ExitCode.CONFIGURATION)
    if is_configuration_error(error):
        return CommandError(f"{command}: {one_line(error)}", exit_code=ExitCode.CONFIGURATION)
    if isinstance(error, OSError | ValueError):
        return CommandError(f"{command}: {one_line(error)}")
    hint = "" if is_debug else "; --debug shows where"
    return CommandError(f"{command}: unexpected {type(error).__name__}: {one_line(error)}{hint}")


def missing_extra(error: ModuleNotFoundError, name: str | None) -> str | None:
    """The extra that provides the module that `error` misses, and how to install it; None if no extra provides it.

    A module that is missing inside an installed package is a bug, not a missing extra.
    """
    package = (error.name or "").partition(".")[0]
    if not package or importlib.util.find_spec(package) is not None:
        return None
    if package == RUNTIME_MODULE:
        return f"the 'cpu' or the 'gpu' extra: {install_command('cpu')}"
    extra = OPTIONAL_MODULES.get(package, SUBCOMMANDS[name].extra if name else "")
    return f"the '{extra}' extra: {install_command(extra)}" if extra else None


def install_command(extra: str) -> str:
    """The command that installs an extra; the package is in no registry."""
    return f"pip install -e '.[{extra}]' in the checkout"


def is_configuration_error(error: Exception) -> bool:
    """Whether wrong settings or an unusable bundle cause the error. Does not import app.errors."""
    errors = sys.modules.get("app.errors")
    return errors is not None and isinstance(error, errors.BundleError | errors.SettingsError)


def one_line(error: Exception) -> str:
    """The error's message on one line, or its type's name if it has no message."""
    return " ".join(str(error).split()) or type(error).__name__


def installed_version() -> str:
    """The version of the installed distribution, or `unknown` in a source tree that is not installed."""
    try:
        return version("transduce")
    except PackageNotFoundError:
        return "unknown"
