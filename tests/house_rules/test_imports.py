"""Import rules beyond the import contracts in pyproject.toml."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.house_rules.project import ROOT, python_files

NOT_IN_THE_SERVER = {
    "torch",
    "onnx",
    "safetensors",
    "sacrebleu",
    "model",
    "export",
    "transduce",
    "matplotlib",
}


# These modules parse files. Only file workers, which are processes of their own, load them.
FILE_READERS = {"app.files.reading", "markdown_it"}
# Only a server with file routes needs these modules.
OF_FILE_ROUTES = {
    "app.api.files.document_jobs",
    "app.api.files.routes",
    "app.api.v2.documents",
    "app.file_worker.workers",
}


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after `statement`."""
    return {name.partition(".")[0] for name in all_modules_after(statement)}


def all_modules_after(statement: str) -> set[str]:
    """The full names of all modules and submodules that a fresh interpreter has loaded after `statement`."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_server_loads_no_training_code() -> None:
    modules = modules_after("import app.main")
    assert "app" in modules
    assert modules & NOT_IN_THE_SERVER == set()


@pytest.mark.parametrize("files_enabled", [True, False])
def test_a_server_loads_file_routes_if_files_are_enabled_and_never_file_readers(files_enabled: bool) -> None:
    settings = f"load_settings({{'files_enabled': {files_enabled}}})"
    modules = all_modules_after(
        f"from app.main import create_app; from app.settings import load_settings; create_app({settings})"
    )
    assert modules & FILE_READERS == set()
    assert modules & OF_FILE_ROUTES == (OF_FILE_ROUTES if files_enabled else set())


def test_a_worker_process_and_its_server_load_different_modules() -> None:
    """A worker reads no manifest and serves no HTTP; the server runs no graph."""
    worker = modules_after(
        "import app.workers.model_spec, app.workers.fork_server_main, app.runtime.ort_runner"
    )
    assert "onnxruntime" in worker
    assert worker & {"pydantic", "fastapi", "uvicorn", "sentencepiece", "asyncio", "ssl"} == set()
    server = modules_after(
        "import app.main; from app.runtime.device import known_device; known_device('auto')"
    )
    assert "onnxruntime" not in server


def test_the_start_of_the_workers_imports_nothing_large() -> None:
    modules = modules_after("import app.workers.early_start, transduce.serve")
    assert "app" in modules
    assert modules & {"numpy", "msgspec", "asyncio", "pydantic", "onnxruntime", "typing_extensions"} == set()


def test_the_translate_command_loads_no_other_package_of_the_project() -> None:
    modules = modules_after("import transduce.cli, transduce.translate")
    assert modules & (NOT_IN_THE_SERVER | {"app", "onnxruntime", "numpy", "fastapi"}) == {"transduce"}


def test_exactly_one_onnxruntime_is_installed() -> None:
    names = {(distribution.name or "").lower().replace("_", "-") for distribution in distributions()}
    assert len(names & {"onnxruntime", "onnxruntime-gpu"}) == 1


def files_with(*words: str) -> list[Path]:
    """The files of the server that contain one of these words. A search for words is faster than parsing all files."""
    texts = {path: (ROOT / path).read_text("utf-8") for path in python_files("app")}
    return [path for path, text in texts.items() if any(word in text for word in words)]


def imported(path: Path) -> Iterator[str]:
    """Every module that the file at `path` imports, also inside functions and conditions."""
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_searches_import_only_numpy_and_errors() -> None:
    files = [path for path in python_files("app") if path.parts[:2] == ("app", "decoding")]
    assert files
    allowed = sys.stdlib_module_names | {"numpy"}
    foreign = {
        f"{path}: {name}"
        for path in files
        for name in imported(path)
        if name.partition(".")[0] not in allowed and not name.startswith(("app.decoding", "app.errors"))
    }
    assert foreign == set()


def test_only_the_runtime_imports_onnxruntime() -> None:
    importing = {
        path.parent.as_posix()
        for path in files_with("onnxruntime")
        if any(name.partition(".")[0] == "onnxruntime" for name in imported(path))
    }
    assert importing == {"app/runtime"}


def test_no_middleware_that_hides_disconnects() -> None:
    """Starlette's BaseHTTPMiddleware, also as @app.middleware("http"), hides a client's disconnect from the handler."""
    used = [
        str(path)
        for path in files_with("BaseHTTPMiddleware", ".middleware")
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
        if (isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("BaseHTTPMiddleware"))
        or (
            isinstance(node, ast.ImportFrom)
            and any(alias.name == "BaseHTTPMiddleware" for alias in node.names)
        )
        or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".middleware"))
    ]
    assert used == []
