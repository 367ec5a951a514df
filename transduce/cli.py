"""The `transduce` command: one table of subcommands, each imported only when it is the one that was asked for.

So `transduce --help` needs no extra, and a subcommand whose extra is missing says which. Exit codes:
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
    "exit codes: 0 done; 1 failed; 2 the command line is wrong; 70 the engine died while serving; "
    "78 a setting, the bundle or a missing extra stands in the way; 130 stopped with Ctrl-C"
)


@dataclass(frozen=True)
class Subcommand:
    """One subcommand and where its code lives.

    Attributes:
        summary: one line for the list of subcommands.
        module: holds `add_<suffix>_arguments(parser)` and `run_<suffix>(args) -> int`.
        suffix: the ending of those two names.
        extra: the extra that brings what it imports beyond the base install; empty when there is nothing.
    """

    summary: str
    module: str
    suffix: str
    extra: str = ""


SUBCOMMANDS: dict[str, Subcommand] = {
    "serve": Subcommand("answer translation requests over HTTP", "transduce.serve", "serve"),
    "translate": Subcommand(
        "translate a text file or stdin on a running server", "transduce.translate", "translate"
    ),
    "loadtest": Subcommand(
        "measure a server under load", "transduce.loadtest.command", "loadtest", "loadtest"
    ),
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
    "export": Subcommand(
        "turn a checkpoint into a bundle that can be served", "export.cli", "export", "export"
    ),
    "verify": Subcommand("compare a bundle with its checkpoint", "export.cli", "verify", "export"),
}

# The subcommand that ends by signals.
SERVER = "serve"

# onnxruntime comes with either of two extras, whatever the subcommand.
RUNTIME_MODULE = "onnxruntime"


@dataclass(frozen=True)
class LoadedSubcommand:
    """The two functions of a subcommand, imported."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code.

    Every error becomes one line on stderr; `--debug` shows the traceback above it. Usage errors and --help
    leave through argparse's SystemExit (2 and 0).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = selected_subcommand(arguments)
    if argv is None and name == SERVER:
        # They wait until the server takes them on its event loop: one that comes this early ends it as any other.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    is_debug = "--debug" in arguments
    try:
        loaded = load_subcommand(name) if name else None
        parsed = build_parser(name, loaded).parse_args(arguments)
        if loaded is None:  # only reached with an unknown or no subcommand, which parse_args refuses
            return ExitCode.USAGE
        return loaded.run(parsed)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does. Stdout is pointed away, or the interpreter's own
        # flush at exit would fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILURE
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a clear line
        if is_debug:
            traceback.print_exc()
        failure = explain(error, name=name, is_debug=is_debug)
        print(failure.message, file=sys.stderr)
        return failure.exit_code


def selected_subcommand(arguments: Sequence[str]) -> str | None:
    """The subcommand that `arguments` name, or None. No option before it takes a value."""
    for argument in arguments:
        if not argument.startswith("-"):
            return argument if argument in SUBCOMMANDS else None
    return None


def load_subcommand(name: str) -> LoadedSubcommand:
    """Import the code of subcommand `name`.

    Raises:
        ImportError: a module that it needs is not installed.
    """
    subcommand = SUBCOMMANDS[name]
    module = importlib.import_module(subcommand.module)
    return LoadedSubcommand(
        add_arguments=getattr(module, f"add_{subcommand.suffix}_arguments"),
        run=getattr(module, f"run_{subcommand.suffix}"),
    )


def build_parser(selected: str | None, loaded: LoadedSubcommand | None) -> argparse.ArgumentParser:
    """The parser of the whole command, where only the `selected` subcommand has its own arguments."""
    wide = functools.partial(argparse.HelpFormatter, max_help_position=28)
    parser = argparse.ArgumentParser(
        prog="transduce",
        formatter_class=wide,
        description="Train the Transformer of the paper, export it to ONNX, serve translation over HTTP.",
        epilog=EXIT_CODES_HELP,
    )
    parser.add_argument("--version", action="version", version=f"transduce {installed_version()}")
    debug_help = "show the traceback of an error"
    parser.add_argument("--debug", action="store_true", help=debug_help)
    subparsers = parser.add_subparsers(
        dest="command", metavar="command [options]", required=True, title="commands"
    )
    for name, subcommand in SUBCOMMANDS.items():
        child = subparsers.add_parser(
            name,
            help=subcommand.summary,
            description=f"{subcommand.summary[0].upper()}{subcommand.summary[1:]}.",
            epilog=EXIT_CODES_HELP,
            formatter_class=wide,
        )
        # SUPPRESS: without it this default would overwrite a --debug given before the subcommand.
        child.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=debug_help)
        if loaded is not None and name == selected:
            loaded.add_arguments(child)
    return parser


def explain(error: Exception, *, name: str | None, is_debug: bool) -> CommandError:
    """The line and exit code that `error` ends the command with.

    What a user can mend is told in the words of the error itself; what is our bug is named as one.
    """
    command = f"transduce {name}" if name else "transduce"
    if isinstance(error, CommandError):
        return CommandError(f"{command}: {error.message}", exit_code=error.exit_code)
    if isinstance(error, ModuleNotFoundError) and (needed := missing_extra(error, name)):
        return CommandError(f"{command} needs {needed}", exit_code=ExitCode.CONFIGURATION)
    if is_configuration_error(error):
        return CommandError(f"{command}: {one_line(error)}", exit_code=ExitCode.CONFIGURATION)
    if isinstance(error, OSError | ValueError):
        return CommandError(f"{command}: {one_line(error)}")
    hint = "" if is_debug else "; --debug shows where"
    return CommandError(f"{command}: unexpected {type(error).__name__}: {one_line(error)}{hint}")


def missing_extra(error: ModuleNotFoundError, name: str | None) -> str | None:
    """Which extra would bring the module that `error` misses, and how to install it; None when it is our bug.

    It is our bug when a module is missing inside a package that is there.
    """
    package = (error.name or "").partition(".")[0]
    if not package or importlib.util.find_spec(package) is not None:
        return None
    if package == RUNTIME_MODULE:
        return f"the 'cpu' or the 'gpu' extra: {install_command('cpu')}"
    extra = SUBCOMMANDS[name].extra if name else ""
    return f"the '{extra}' extra: {install_command(extra)}" if extra else None


def install_command(extra: str) -> str:
    """How to install with an extra; the package is in no registry."""
    return f"pip install -e '.[{extra}]' in the checkout"


def is_configuration_error(error: Exception) -> bool:
    """Whether the server's settings or its bundle are at fault. Imports the error tree only when there is one."""
    errors = sys.modules.get("app.errors")
    return errors is not None and isinstance(error, errors.BundleError | errors.SettingsError)


def one_line(error: Exception) -> str:
    """The message of `error` on one line; its type's name when it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def installed_version() -> str:
    """The version of the installed distribution, or `unknown` in a bare source tree."""
    try:
        return version("transduce")
    except PackageNotFoundError:
        return "unknown"
