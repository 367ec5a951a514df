"""The contents of the wheel, the build of the native kernels, and the extras."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from app.runtime.native.cpu import targets_for
from tests.house_rules.project import PACKAGES, ROOT, project_files

PAGE = "app/web/pages/probe.html"
OWN_TARGETS = targets_for(platform.machine())
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="no C++ compiler for the native kernels"
)


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in a wheel. The installed build tools build it from a copy of the project.

    The copy has one more page. The C++ sources of the copy are empty, which saves 45 s of CPU time.
    """
    tree = tmp_path_factory.mktemp("tree")
    for path in project_files():
        if path.parts[0] in {*PACKAGES, "pyproject.toml", "setup.py", "README.md", "LICENSE"}:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, tree / path)
    (tree / PAGE).parent.mkdir(parents=True, exist_ok=True)
    (tree / PAGE).touch()
    for source in tree.rglob("*.cpp"):
        source.write_bytes(b"")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*command, "--wheel-dir", "dist", "."], cwd=tree, check=True, timeout=300)
    (wheel,) = (tree / "dist").glob("*.whl")
    return set(ZipFile(wheel).namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_holds_every_file_of_a_package(wheel_names: set[str], package: str) -> None:
    """The files are code, pages and the `py.typed` markers."""
    expected = {path.as_posix() for path in project_files() if path.parts[0] == package}
    assert f"{package}/py.typed" in expected
    assert expected - wheel_names == set()


def test_a_new_page_gets_into_the_wheel(wheel_names: set[str]) -> None:
    assert PAGE in wheel_names


@needs_compiler
def test_the_wheel_holds_the_native_operators(wheel_names: set[str]) -> None:
    """Without a compiler the kernels are left out."""
    for target in OWN_TARGETS:
        pattern = rf"app/runtime/native/_kernels_{target}\..*so"
        assert [name for name in wheel_names if re.fullmatch(pattern, name)]


@pytest.fixture
def one_source(tmp_path: Path) -> Path:
    """The single C++ source of a folder that has the project's build files."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    project = tmp_path / "pyproject.toml"
    text = project.read_text("utf-8")
    sources = re.search(r"(?s)\nsources = \[.*?\n\]\n", text)
    assert sources is not None
    project.write_text(text.replace(sources.group(), '\nsources = ["app/runtime/native/one.cpp"]\n'), "utf-8")
    native = tmp_path / "app" / "runtime" / "native"
    native.mkdir(parents=True)
    shutil.copyfile(ROOT / "app" / "runtime" / "native" / "cpu.py", native / "cpu.py")
    return native / "one.cpp"


@pytest.fixture
def broken_kernels(one_source: Path, tmp_path: Path) -> Path:
    """A folder with the project's build files and a single C++ source, which does not compile."""
    one_source.write_text("this is not C++\n", "utf-8")
    return tmp_path


def run_build(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build the kernels of a folder as `make` does.

    environment: environment variables of the build beside the inherited ones.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "NATIVE_KERNELS"}
    build = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"
    return subprocess.run(
        [sys.executable, "-c", build, str(tree)],
        cwd=tree,
        check=False,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def build_for_processor(
    tree: Path, *, supported: tuple[str, ...], **environment: str
) -> subprocess.CompletedProcess[str]:
    """As `run_build`, on a processor that the build takes for one that can run these targets."""
    cpu = tree / "app" / "runtime" / "native" / "cpu.py"
    text = (ROOT / "app" / "runtime" / "native" / "cpu.py").read_text("utf-8")
    supported_targets = f"\n\ndef supported_targets(cpu_info=None):\n    return {supported}\n"
    cpu.write_text(text + supported_targets, "utf-8")
    return run_build(tree, **environment)


@needs_compiler
def test_a_compile_error_ends_the_installation_if_the_kernels_can_be_used(broken_kernels: Path) -> None:
    done = build_for_processor(broken_kernels, supported=OWN_TARGETS)
    assert done.returncode != 0
    assert "one.cpp" in done.stderr
    assert "Set NATIVE_KERNELS=optional to install without them" in done.stderr
    done = build_for_processor(broken_kernels, supported=OWN_TARGETS, NATIVE_KERNELS="optional")
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("supported", "environment"),
    [((), {}), (OWN_TARGETS, {"CC": "no-such-compiler", "CXX": "no-such-compiler"})],
    ids=["another processor", "no compiler"],
)
def test_the_installation_goes_on_without_kernels_that_cannot_be_used(
    broken_kernels: Path, supported: tuple[str, ...], environment: dict[str, str]
) -> None:
    assert build_for_processor(broken_kernels, supported=supported, **environment).returncode == 0


@needs_compiler
@pytest.mark.skipif(len(OWN_TARGETS) < 2, reason="this architecture has fewer than two targets")
def test_an_editable_installation_compiles_only_the_fastest_target(one_source: Path, tmp_path: Path) -> None:
    """NATIVE_KERNELS=all adds the others, which stay as long as the sources are the same."""
    one_source.write_text("int answer = 1;\n", "utf-8")

    def built(supported: tuple[str, ...], **environment: str) -> list[str]:
        assert build_for_processor(tmp_path, supported=supported, **environment).returncode == 0
        names = [path.name.partition(".")[0] for path in one_source.parent.glob("*.so")]
        return sorted(name.removeprefix("_kernels_") for name in names)

    last = OWN_TARGETS[-1:]
    assert built(OWN_TARGETS) == [OWN_TARGETS[0]]
    assert built(last, NATIVE_KERNELS="all") == sorted(OWN_TARGETS)
    assert built(last) == sorted(OWN_TARGETS)
    one_source.write_text("int answer = 2;\n", "utf-8")
    assert built(last) == list(last)
    assert built(()) == sorted(OWN_TARGETS)


@needs_compiler
@pytest.mark.skipif(not OWN_TARGETS, reason="no kernels for this processor")
def test_the_next_virtual_environment_compiles_only_what_has_changed(
    one_source: Path, tmp_path: Path
) -> None:
    one_source.write_text("int answer = 1;\n", "utf-8")

    def compiles(**environment: str) -> bool:
        """Build the kernels as in a new virtual environment. Returns whether the compiler runs."""
        done = run_build(tmp_path, NATIVE_KERNELS="all", **environment)
        libraries = list(one_source.parent.glob("*.so"))
        assert len(libraries) == len(OWN_TARGETS)
        for library in libraries:
            library.unlink()
        return f" -c {one_source.relative_to(tmp_path)} " in done.stdout

    assert [compiles(), compiles()] == [True, False]
    one_source.write_text("int answer = 2;\n", "utf-8")
    assert [compiles(), compiles()] == [True, False]
    assert compiles(LDCXXSHARED="g++ -shared -Wl,-s")
    assert len(list((tmp_path / "build" / "kernels").iterdir())) == len(OWN_TARGETS)


def test_a_wheel_without_kernels_fits_every_platform(broken_kernels: Path) -> None:
    """The broken source is no error, because nothing is compiled for this wheel."""
    command = [sys.executable, "setup.py", "--quiet", "bdist_wheel"]
    shutil.copyfile(
        ROOT / "app" / "runtime" / "native" / "cpu.py",
        broken_kernels / "app" / "runtime" / "native" / "cpu.py",
    )
    environment = {**os.environ, "NATIVE_KERNELS": "none"}
    subprocess.run(command, cwd=broken_kernels, check=True, env=environment, capture_output=True, timeout=120)
    (wheel,) = (broken_kernels / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")


def test_every_source_of_the_native_operators_is_compiled() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    (extension,) = setuptools["ext-modules"]
    native = Path("app/runtime/native")
    found = sorted(
        path.as_posix() for path in project_files() if path.suffix == ".cpp" and native in path.parents
    )
    assert sorted(extension["sources"]) == found


def test_the_wheel_holds_only_the_packages_and_its_metadata(wheel_names: set[str]) -> None:
    tops = {Path(name).parts[0] for name in wheel_names}
    (metadata,) = {top for top in tops if top.endswith(".dist-info")}
    assert tops == {*PACKAGES, metadata}
    assert f"{metadata}/licenses/LICENSE" in wheel_names


def test_the_metadata_declares_the_pythons_the_command_and_the_extras_with_onnxruntime() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=3.11,<3.15"
    assert project["scripts"] == {"transduce": "transduce.cli:main"}
    extras = project["optional-dependencies"]
    both = [name for name, lines in extras.items() if any(line.startswith("onnxruntime") for line in lines)]
    assert both == ["cpu", "gpu"], "exactly the extras cpu and gpu bring an onnxruntime package"
    assert [line for line in project["dependencies"] if line.startswith(("torch", "onnx"))] == []
