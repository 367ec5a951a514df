"""Source rules that no linter checks."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.house_rules.project import PACKAGES, ROOT, is_output, project_files, python_files

MAX_LINES = 400
DUMPING_GROUNDS = {"utils", "util", "helpers", "helper", "common", "misc"}
TOP_LEVEL = {
    ".ci", ".clang-format", ".clang-tidy", ".dockerignore", ".gitattributes", ".github", ".gitignore",
    "CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md", "SECURITY.md",
    "app", "benchmarks", "bundles", "deploy", "docker-compose.yml", "docs", "export", "model", "pyproject.toml",
    "requirements", "setup.py", "tests", "training", "transduce",
}  # fmt: skip
# The patterns have character classes of one letter, so that this file does not match its own rules.
# The look-behind follows the first slash, because a search for a literal first byte is 40 times as fast.
MACHINE_PATH = re.compile(rb"/(?<![\w.:-]/)(?:wor[k]|roo[t]|hom[e]|User[s])/[\w.-]+")
INDEX_HOST = re.compile(rb"(?:pyp[i]\.org|pythonhoste[d]\.org|download\.pytorc[h]\.org)")
# In the source of a regular expression: a group that is repeated possessively.
POSSESSIVE_GROUP = re.compile(r"[^(]\)(?:[*+?]|\{\d*,?\d*\})\+(?!\d)")
# Call -> why it is forbidden.
FORBIDDEN_CALLS = {
    "eval": "runs text as code",
    "exec": "runs text as code",
    "torch.load": "unpickles",
    "torch.save": "pickles",
    "yaml.load": "builds any object; use yaml.safe_load",
    "yaml.unsafe_load": "builds any object; use yaml.safe_load",
}
FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# Each reason of `dangerous` needs one of these names in the source.
SUSPICIOUS = re.compile("|".join(FORBIDDEN_IMPORTS | {name.partition(".")[0] for name in FORBIDDEN_CALLS}))


def test_the_source_is_found() -> None:
    packages = {path.parts[0] for path in python_files(*PACKAGES)}
    assert packages == set(PACKAGES)


@pytest.mark.parametrize(
    ("path", "is_generated"),
    [(".git/config", True), (".schemathesis/x", True), (".gitignore", False), (".github/x", False)],
)
def test_without_git_the_files_of_git_and_of_caches_are_left_out(path: str, is_generated: bool) -> None:
    assert is_output(Path(path)) == is_generated


def test_no_file_is_too_long() -> None:
    paths = [path for path in project_files() if path.suffix in {".py", ".js", ".css"}]
    lengths = {path: (ROOT / path).read_text("utf-8").count("\n") for path in paths}
    assert {str(path): lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_no_repeated_group_is_possessive() -> None:
    """If the last repetition of such a group fails, CPython before 3.11.5 loses the position in the text (gh-106052).

    `(?>(?:...)*)` is safe.
    """
    texts = {path: (ROOT / path).read_text("utf-8") for path in python_files(*PACKAGES)}
    assert {str(path) for path, text in texts.items() if POSSESSIVE_GROUP.search(text)} == set()


def test_no_module_is_a_dumping_ground() -> None:
    named = [str(path) for path in python_files() if DUMPING_GROUNDS & {*path.parts[:-1], path.stem}]
    assert named == []


def test_complexity_limits_are_set_and_not_disabled() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    assert lint["mccabe"]["max-complexity"] <= 10
    assert lint["pylint"]["max-statements"] <= 40
    assert lint["pylint"]["max-args"] <= 6
    assert {"C90", "PLR0913", "PLR0915"} <= set(lint["select"])
    silencing = re.compile(r"noqa:.*\b(?:C901|PLR0913|PLR0915)\b")
    silenced = [
        str(path) for path in python_files(*PACKAGES) if silencing.search((ROOT / path).read_text("utf-8"))
    ]
    assert silenced == []


def test_the_top_level_has_only_known_names() -> None:
    names = {path.parts[0] for path in project_files()}
    assert names - TOP_LEVEL == set(), "a new top-level file belongs in docs/architecture.md first"
    required = {
        "README.md",
        "Makefile",
        "Dockerfile",
        "docker-compose.yml",
        "LICENSE",
        "docs",
        "tests",
        "bundles",
    }
    assert required - names == set()


@pytest.mark.parametrize("pattern", [MACHINE_PATH, INDEX_HOST], ids=["path", "host"])
def test_no_file_has_a_path_of_a_machine_or_the_host_of_an_index(pattern: re.Pattern[bytes]) -> None:
    """Weights and tokenizers are checked too. SentencePiece writes the paths of its training files into its model."""
    found = {
        str(path): match[0]
        for path in project_files()
        if (match := pattern.search((ROOT / path).read_bytes()))
    }
    assert found == {}


def test_the_patterns_match_paths_and_hosts() -> None:
    assert MACHINE_PATH.search("see /{}/somebody/x".format("home").encode())
    assert MACHINE_PATH.search('"/{}/x"'.format("root").encode())
    assert not MACHINE_PATH.search(b"https://example.org/{}/x".replace(b"{}", b"work"))
    assert INDEX_HOST.search("https://{}.org/simple".format("pypi").encode())


def test_no_code_runs_what_it_reads() -> None:
    found = {str(path): dangers((ROOT / path).read_text("utf-8")) for path in python_files(*PACKAGES)}
    assert {path: problems for path, problems in found.items() if problems} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import load",
        "import torch\ntorch.load('x')",
        "torch.load('x', weights_only=False)",
        "yaml.load(x)",
        "eval('1')",
        "np.load(f, allow_pickle=True)",
    ],
)
def test_dangerous_code_is_detected(code: str) -> None:
    assert dangers(code)


def test_the_method_eval_of_a_model_is_allowed() -> None:
    assert dangers("model.eval()") == []


def test_a_load_of_tensors_only_is_allowed() -> None:
    code = "torch.load('x', weights_only=True)"
    assert dangers(code) == []


def dangers(code: str) -> list[str]:
    """The reasons why this source is forbidden. Only a source with a suspicious name is parsed."""
    if not SUSPICIOUS.search(code):
        return []
    return [problem for node in ast.walk(ast.parse(code)) for problem in dangerous(node)]


def _reads_tensors_only(call: ast.Call) -> bool:
    """Whether this call is a torch.load that executes no code from the file. The import of weights needs such calls."""
    return ast.unparse(call.func) == "torch.load" and any(
        word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in call.keywords
    )


def dangerous(node: ast.AST) -> list[str]:
    """The reasons why `node` is forbidden; empty if it is allowed."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN_IMPORTS]
    if isinstance(node, ast.ImportFrom):
        return (
            [node.module]
            if (node.module or "").partition(".")[0] in FORBIDDEN_IMPORTS and node.module
            else []
        )
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        allows_pickle = any(
            word.arg == "allow_pickle" and ast.unparse(word.value) != "False" for word in node.keywords
        )
        is_forbidden = name in FORBIDDEN_CALLS and not _reads_tensors_only(node)
        reasons = [f"{name}: {FORBIDDEN_CALLS[name]}"] if is_forbidden else []
        return reasons + ([f"{name}: allow_pickle"] if allows_pickle else [])
    return []
