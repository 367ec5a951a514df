"""The `transduce` command: help without any extra, exit codes, and one line for every error."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from transduce.cli import SUBCOMMANDS, Subcommand, main
from transduce.errors import ExitCode
from transduce.serve import port_number

MODULES_OF_EXTRAS = ("torch", "onnx", "onnxruntime", "safetensors", "sacrebleu", "matplotlib", "tensorboard")


def run_without(modules: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in an interpreter without `modules`."""
    hide = f"import sys\nfor name in {modules!r}: sys.modules[name] = None\n"
    program = f"{hide}from transduce.cli import main\nsys.exit(main({list(arguments)!r}))"
    return subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def subcommand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A subcommand `probe`, which needs the train extra. Its code is the test's parameter."""
    module = f"probe_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(
        "from app.errors import BundleError, SettingsError\n"
        "from transduce.errors import CommandError, ExitCode\n"
        "def add_probe_arguments(parser): parser.add_argument('--steps', type=int)\n"
        f"def run_probe(args):\n    {request.param}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(SUBCOMMANDS, "probe", Subcommand("does what a test says", module, "probe", "train"))
    return "probe"


@pytest.mark.server
def test_help_lists_every_command_without_any_extra() -> None:
    done = run_without((*MODULES_OF_EXTRAS, "app", "model", "export", "numpy"), "--help")
    assert done.returncode == 0, done.stderr
    assert {"serve", "translate", "train", "evaluate", "export", "verify"} <= SUBCOMMANDS.keys()
    assert all(f"\n    {name} " in done.stdout for name in SUBCOMMANDS)
    assert all(
        code in done.stdout
        for code in ("0 success", "1 failure", "2 wrong", "78 wrong setting", "130 stopped", "`top`: 0")
    )


@pytest.mark.server
@pytest.mark.parametrize("name", list(SUBCOMMANDS))
def test_the_help_of_a_command_needs_no_extra(name: str) -> None:
    done = run_without(MODULES_OF_EXTRAS, name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: transduce {name}")
    assert "exit codes:" in done.stdout


def test_the_help_of_serve_has_the_exit_codes_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    for name, is_server in (("serve", True), ("models", False)):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        words = " ".join(capsys.readouterr().out.split())
        codes = ("0 stopped with Ctrl-C or SIGTERM", "70 any other failed start", "130, 143 a second Ctrl-C")
        assert [code in words for code in codes] == [is_server] * 3


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("transduce ")


@pytest.mark.parametrize(
    "arguments", [[], ["frobnicate"], ["translate"], ["serve", "--port", "70000"], ["--nonsense"]]
)
def test_a_wrong_command_line_is_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == ExitCode.USAGE
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "port"), [("0", 0), ("65535", 65535)])
def test_the_first_and_the_last_port_are_accepted(text: str, port: int) -> None:
    assert port_number(text) == port


@pytest.mark.parametrize("text", ["65536", "-1", "", "8_000", "\u0668\u0660"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a port from 0 to 65535"):
        port_number(text)


@pytest.mark.parametrize("subcommand", ["return 0 if args.steps == 3 else 1"], indirect=True)
def test_the_exit_code_of_the_subcommand_is_returned(subcommand: str) -> None:
    assert main([subcommand, "--steps", "3"]) == 0
    assert main([subcommand, "--steps", "4"]) == 1


@pytest.mark.parametrize(
    ("subcommand", "code", "line"),
    [
        (
            "raise BundleError('b', ['encoder.onnx: hash differs', 'x: not listed'])",
            78,
            "transduce probe: bundle b: encoder.onnx: hash differs; x: not listed",
        ),
        ("raise SettingsError(['PROT is no setting'])", 78, "transduce probe: PROT is no setting"),
        ("raise CommandError('no server')", 1, "transduce probe: no server"),
        ("raise CommandError('a text of\\n a library')", 1, "transduce probe: a text of a library"),
        ("raise CommandError('odd', exit_code=ExitCode.CONFIGURATION)", 78, "transduce probe: odd"),
        ("raise ValueError('two\\n lines')", 1, "transduce probe: two lines"),
        ("open('/nonexistent/x')", 1, "transduce probe: [Errno 2] No such file or directory: '/nonexistent/x'"),
        ("{}['key']", 1, "transduce probe: unexpected KeyError: 'key'; --debug shows where"),
        (
            "import surely_missing",
            78,
            "transduce probe needs the 'train' extra: pip install -e '.[train]' in the checkout",
        ),
        (
            "import transduce.gone",
            1,
            "transduce probe: unexpected ModuleNotFoundError: No module named 'transduce.gone'; --debug shows where",
        ),
        ("raise KeyboardInterrupt", 130, ""),
    ],
    indirect=["subcommand"],
)  # fmt: skip
def test_an_error_is_one_line_and_a_code(
    subcommand: str, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([subcommand]) == code
    assert capsys.readouterr().err == (f"{line}\n" if line else "")


@pytest.mark.parametrize("subcommand", ["raise ModuleNotFoundError(name='onnxruntime')"], indirect=True)
def test_a_missing_onnxruntime_names_both_extras(
    subcommand: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main([subcommand]) == ExitCode.CONFIGURATION
    expected = "transduce probe needs the 'cpu' or the 'gpu' extra: pip install -e '.[cpu]' in the checkout\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("subcommand", ["raise ModuleNotFoundError(name='huggingface_hub')"], indirect=True)
def test_a_missing_client_of_the_hub_names_its_extra(
    subcommand: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main([subcommand]) == ExitCode.CONFIGURATION
    expected = "transduce probe needs the 'hub' extra: pip install -e '.[hub]' in the checkout\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("subcommand", ["raise ValueError('odd')"], indirect=True)
@pytest.mark.parametrize("is_first", [True, False])
def test_debug_shows_the_traceback(
    subcommand: str, is_first: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--debug", subcommand] if is_first else [subcommand, "--debug"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.endswith("transduce probe: odd\n")


def test_a_closed_stdout_pipe_ends_the_command_quietly(tmp_path: Path) -> None:
    """`transduce translate ... | head -1` prints no traceback and no warning at exit."""
    (tmp_path / "chatter.py").write_text(
        "def add_chatter_arguments(parser): pass\n"
        "def run_chatter(args):\n    while True: print('x' * 9999, flush=True)\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from transduce.cli import SUBCOMMANDS, Subcommand, main\n"
        "SUBCOMMANDS['chatter'] = Subcommand('talks', 'chatter', 'chatter')\n"
        "sys.exit(main(['chatter']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == ExitCode.FAILURE


@pytest.mark.parametrize("argument", ["--version", "speak"])
@pytest.mark.parametrize(
    ("is_full", "message"), [(False, ""), (True, "[Errno 28] No space left on device\n")]
)
def test_a_stdout_that_cannot_be_written_is_an_error_when_the_command_ends(
    tmp_path: Path, argument: str, is_full: bool, message: str
) -> None:
    """What a command prints without a flush reaches stdout only when the command ends."""
    (tmp_path / "speaker.py").write_text(
        "def add_speak_arguments(parser): pass\ndef run_speak(args):\n    print('one line')\n    return 0\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from transduce.cli import SUBCOMMANDS, Subcommand, main\n"
        "SUBCOMMANDS['speak'] = Subcommand('talks', 'speaker', 'speak')\n"
        f"sys.exit(main([{argument!r}]))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(writer, "wb") as closed, Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            check=False,
            stdout=full if is_full else closed,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            timeout=60,
        )
    command = "transduce speak: " if argument == "speak" else "transduce: "
    assert done.stderr == (command + message if is_full else "")
    assert done.returncode == ExitCode.FAILURE


def test_closed_standard_files_lead_nowhere(tmp_path: Path) -> None:
    """A library may fail if one of its sockets or files gets the file descriptor of stdout."""
    (tmp_path / "looker.py").write_text(
        "import os, pathlib, sys\n"
        "def add_look_arguments(parser): pass\n"
        "def run_look(args):\n"
        "    found = [os.readlink(f'/proc/self/fd/{number}') for number in range(3)]\n"
        "    found += [str(os.get_inheritable(number)) for number in range(3)]\n"
        "    found += [str(file.isatty()) for file in (sys.stdin, sys.stdout, sys.stderr)]\n"
        "    sys.stdout.buffer.write(sys.stdin.buffer.read())\n"
        "    print('a file name may be \\udcff', file=sys.stderr)\n"
        f"    pathlib.Path({str(tmp_path / 'found')!r}).write_text(' '.join(found))\n"
        "    return 0\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from transduce.cli import SUBCOMMANDS, Subcommand, main\n"
        "SUBCOMMANDS['look'] = Subcommand('looks', 'looker', 'look')\n"
        "sys.exit(main(['look']))"
    )
    closed = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, program]
    assert subprocess.run(closed, check=False, timeout=60).returncode == 0
    assert (tmp_path / "found").read_text().split() == ["/dev/null"] * 3 + ["True"] * 3 + ["False"] * 3


def test_without_a_stderr_an_error_does_not_go_to_stdout() -> None:
    program = "import sys; from transduce.cli import main; sys.exit(main(['models', '/nonexistent']))"
    closed = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program]
    done = subprocess.run(closed, check=False, stdout=subprocess.PIPE, timeout=60)
    assert done.returncode not in {0, 127}
    assert done.stdout == b""


@pytest.mark.parametrize("subcommand", ["print('one line'); return 0"], indirect=True)
def test_a_process_without_a_stdout_prints_nothing(subcommand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main([subcommand]) == 0
