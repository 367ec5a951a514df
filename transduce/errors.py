"""The exit codes of the `transduce` command and the exception that ends it with a one-line message."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes: 2 is argparse's own; 78 is EX_CONFIG of sysexits.h; 130 is 128 + SIGINT.

    `serve` has further codes, such as 70, EX_SOFTWARE, if the engine died (docs/operations.md). `loadtest` also exits
    with 3 if a run is not valid (docs/load-testing.md).
    """

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIGURATION = 78
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command: `message` is printed as one line on stderr and `exit_code` is returned to the shell."""

    def __init__(self, message: str, *, exit_code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
