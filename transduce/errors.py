"""Exit codes of the `transduce` command, and the one exception that ends it with a clear line."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell sees. 2 is argparse's own; 78 is EX_CONFIG of sysexits.h; 130 is 128 + SIGINT.

    `serve` has more of its own, told in docs/operations.md: 70, EX_SOFTWARE, where the engine died.
    """

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIGURATION = 78
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command: `message` is printed as one line on stderr, `exit_code` goes to the shell."""

    def __init__(self, message: str, *, exit_code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
