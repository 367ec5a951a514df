"""The folder of an export: checks before the work, symbolic links, exports at the same time, and killed ones."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from app.bundle import load_bundle
from export.bundle_shortlist import tables_of, write_with_shortlist
from export.bundle_writer import BundleRequest, write_bundle
from export.cli import run_export
from export.huggingface_writer import write_huggingface
from export.output_folder import ExportError, check_output, new_folder_beside, replace_folder
from export.portable import FormatError, read_checkpoint, write_new_folder
from export.shortlist import make_table
from model.file_lock import LockedError
from tests.export.tiny import bundle_request, export_arguments, names
from tests.forked import start_fork
from transduce.cli import main

SMALL = replace(bundle_request(), precisions=("fp32",))


@pytest.mark.seconds
def test_the_folder_of_a_link_is_replaced_every_time(tiny: Path, tmp_path: Path) -> None:
    link, folder = tmp_path / "links" / "current", tmp_path / "bundles" / "v1"
    link.parent.mkdir()
    link.symlink_to(folder)
    for version in ("1", "2", "3"):
        write_bundle(tiny / "checkpoint", link, replace(SMALL, version=version))
        assert load_bundle(folder).manifest.version == version
    assert (link.readlink(), names(link.parent), names(folder.parent)) == (folder, ["current"], ["v1"])


def test_a_shortlist_is_written_behind_a_link_every_time(tiny: Path, tmp_path: Path) -> None:
    bundle = write_bundle(tiny / "checkpoint", tmp_path / "bundles" / "v1", SMALL)
    link = tmp_path / "current"
    link.symlink_to(bundle.path)
    files = {side: bundle.file(f"{side}.spm") for side in ("source", "target")}
    for frequent in ([100, 101], [100, 102]):
        table = make_table({}, frequent, **files)
        write_with_shortlist(load_bundle(link), link, {0: table}, -1.0)
        assert len(tables_of(load_bundle(bundle.path))) == 1
    assert (link.is_symlink(), names(tmp_path), names(tmp_path / "bundles")) == (
        True,
        ["bundles", "current"],
        ["v1"],
    )


def test_another_format_is_written_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write_new_folder(tmp_path / "link", lambda folder: (folder / "inner").mkdir(parents=True))
    assert names(tmp_path) == ["empty", "link"]
    assert names(tmp_path / "empty") == ["inner"]


def test_missing_parents_behind_a_link_are_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "new" / "er" / "folder")
    write_new_folder(tmp_path / "link", Path.mkdir)
    assert names(tmp_path) == ["link", "new"]
    assert names(tmp_path / "new" / "er") == ["folder"]


def test_a_file_behind_a_link_is_no_parent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file" / "folder")
    with pytest.raises(ExportError, match="file is not a folder"):
        check_output(tmp_path / "link")


@pytest.mark.parametrize("name", ["loop", "loop/folder", "link"])
def test_a_link_that_leads_to_itself_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "link").symlink_to(tmp_path / "loop")
    message = f"{name} cannot be resolved: the symbolic link {tmp_path / 'loop'} leads to itself"
    with pytest.raises(ExportError, match=message):
        check_output(tmp_path / name)
    with pytest.raises(ExportError, match=message):
        write_new_folder(tmp_path / name, Path.mkdir)
    assert names(tmp_path) == ["link", "loop"]


def test_a_link_to_the_root_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    message = "link cannot be replaced: name another folder"
    with pytest.raises(ExportError, match=message):
        check_output(tmp_path / "link")
    with pytest.raises(ExportError, match=message):
        write_new_folder(tmp_path / "link", Path.mkdir)


def test_a_current_folder_that_is_removed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ExportError, match=r"new cannot be resolved \(No such file or directory\)"):
        check_output(Path("new"))


def test_hidden_folders_of_the_user_stay(tmp_path: Path) -> None:
    theirs = [".bundle.lock", ".bundle.old", ".bundle.tmp"]
    for name in ("bundle", *theirs):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    with new_folder_beside(tmp_path / "bundle") as new:
        new.mkdir()
        replace_folder(new, tmp_path / "bundle")
    assert names(tmp_path) == [*theirs, "bundle"]
    assert [names(tmp_path / name) for name in (*theirs, "bundle")] == [*([name] for name in theirs), []]


@pytest.mark.seconds
def test_a_second_export_to_a_bundle_is_refused(tiny: Path, tmp_path: Path) -> None:
    stages = []

    def export_too(stage: str) -> None:
        stages.append(stage)
        with pytest.raises(LockedError, match=f"another run is writing {tmp_path / 'out'}$"):
            write_bundle(tiny / "checkpoint", tmp_path / "out", replace(SMALL, version="2"))

    bundle = write_bundle(tiny / "checkpoint", tmp_path / "out", SMALL, on_progress=export_too)
    assert "checking" in stages
    assert bundle.manifest.version == SMALL.version
    assert names(tmp_path) == ["out"]


def test_a_second_export_to_a_new_folder_is_refused(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "first").touch()
        with pytest.raises(LockedError, match=f"another run is writing {tmp_path / 'out'}$"):
            write_new_folder(tmp_path / "out", Path.mkdir)

    write_new_folder(tmp_path / "out", write)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["first"]


def replace_and_die(output: Path, num_renames: int) -> None:
    """An export that SIGKILL ends before or between the two renames of `replace_folder`."""
    rename, num_calls = Path.replace, 0

    def rename_or_die(path: Path, target: Path) -> Path:
        nonlocal num_calls
        if num_calls == num_renames:
            os.kill(os.getpid(), signal.SIGKILL)
        num_calls += 1
        return rename(path, target)

    with new_folder_beside(output) as new:
        new.mkdir()
        (new / "new").touch()
        pytest.MonkeyPatch().setattr(Path, "replace", rename_or_die)
        replace_folder(new, output)


@pytest.mark.seconds
@pytest.mark.parametrize("num_renames", [0, 1])
def test_the_next_export_restores_or_removes_what_a_killed_one_left(tmp_path: Path, num_renames: int) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "old").touch()
    for _ in range(2):
        process = start_fork(replace_and_die, output, num_renames)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert len(names(tmp_path)) == 3
        assert output.exists() == (num_renames == 0)
    with pytest.raises(FormatError, match="out exists: it is left as it is"):
        write_new_folder(output, Path.mkdir)
    assert names(tmp_path) == ["out"]
    assert names(output) == ["old"]


def test_the_old_bundle_is_restored_if_the_output_is_an_empty_folder(tmp_path: Path) -> None:
    for name in ("out", ".out.export.old"):
        (tmp_path / name).mkdir()
    (tmp_path / ".out.export.old" / "old").touch()
    with pytest.raises(FormatError, match="out exists: it is left as it is"):
        write_new_folder(tmp_path / "out", Path.mkdir)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["old"]


def test_the_old_bundle_is_restored_if_the_new_one_cannot_be_moved(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", tmp_path / "out")
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["old"]


def test_the_old_bundle_is_removed_if_the_new_one_is_there(tmp_path: Path) -> None:
    for name in ("out", ".out.export.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    with new_folder_beside(tmp_path / "out"):
        assert names(tmp_path) == [".out.export.lock", "out"]
    assert names(tmp_path / "out") == ["out"]


def test_a_part_of_a_bundle_never_has_the_name_of_the_old_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_a_part(folder: Path) -> None:
        (folder / "1").unlink()
        raise KeyboardInterrupt

    output, new, old = (tmp_path / name for name in ("out", ".out.export.tmp", ".out.export.old"))
    for folder in (output, new):
        folder.mkdir()
        for name in ("1", "2"):
            (folder / name).touch()
    monkeypatch.setattr(shutil, "rmtree", remove_a_part)
    with pytest.raises(KeyboardInterrupt):
        replace_folder(new, output)
    assert names(tmp_path) == [new.name, "out"]
    (new / "1").touch()
    new.replace(old)
    with pytest.raises(KeyboardInterrupt), new_folder_beside(output):
        pass
    assert names(tmp_path) == [new.name, "out"]
    assert names(output) == ["1", "2"]


@pytest.mark.parametrize("kind", ["tmp", "old"])
def test_an_export_names_what_it_cannot_remove(kind: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    (tmp_path / f".out.export.{kind}").touch()
    message = r"/\.out\.export\.tmp is left by a killed export and cannot be removed \(Not a directory\)$"
    with pytest.raises(ExportError, match=message), new_folder_beside(tmp_path / "out"):
        pass
    assert names(tmp_path) == [".out.export.tmp", "out"]


def test_a_lock_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".out.export.lock").mkdir()
    message = r"/\.out\.export\.lock cannot be opened \(Is a directory\)$"
    with pytest.raises(ExportError, match=message), new_folder_beside(tmp_path / "out"):
        pass


def test_an_error_of_the_export_itself_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), new_folder_beside(tmp_path / "out") as new:
        (new / "file").touch()


@pytest.mark.seconds
def test_a_bundle_is_readable_for_everyone(tiny: Path, tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        write_bundle(tiny / "checkpoint", tmp_path / "out", SMALL)
    finally:
        os.umask(umask)
    found = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in found if path.is_dir()} == {0o755}
    assert {path.stat().st_mode & 0o777 for path in found if path.is_file()} == {0o644}


@pytest.mark.parametrize(("umask", "modes"), [(0o022, (0o755, 0o644)), (0o077, (0o700, 0o600))])
def test_the_files_of_another_format_have_the_modes_of_the_umask(
    umask: int, modes: tuple[int, int], tiny: Path, tmp_path: Path
) -> None:
    portable = read_checkpoint(tiny / "checkpoint")
    before = os.umask(umask)
    try:
        write_new_folder(tmp_path / "out", lambda folder: write_huggingface(portable, folder))
    finally:
        os.umask(before)
    files = list((tmp_path / "out").iterdir())
    assert (tmp_path / "out" / "model.safetensors") in files
    assert (tmp_path / "out").stat().st_mode & 0o777 == modes[0]
    assert {path.stat().st_mode & 0o777 for path in files} == {modes[1]}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (replace(SMALL, name="Mein Modell"), "--name: 'Mein Modell' is not of 1 to 64 lower-case letters"),
        (replace(SMALL, name="a\n"), "--name: "),
        (replace(SMALL, version="1\n"), "--version: "),
        (replace(SMALL, version="a b"), "--version: 'a b' is not of 1 to 64 letters, digits"),
        (replace(SMALL, source="EN"), "--source: 'EN' is written 'en' here"),
        (replace(SMALL, source="en_GB"), "--source: 'en_GB' is no BCP 47 tag, such as en or pt-BR"),
        (replace(SMALL, target="deu-AT"), "--target: 'deu-AT' is written 'de-AT' here"),
        (replace(SMALL, target="deutsch"), "--target: 'deutsch' is no BCP 47 tag"),
        (replace(SMALL, more_targets=(("f", ">>f<<"),)), "--target: 'f' is no BCP 47 tag"),
        (
            replace(SMALL, more_targets=(("de", ">>x<<"),)),
            "--target: de is named 2 times; name the script, such as sr-Latn",
        ),
        (replace(SMALL, source="de", reverse_tag=">>x<<"), "language_pairs: de to de is there 2 times"),
    ],
)
def test_names_are_checked_before_the_model_is_read(
    request_: BundleRequest, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        write_bundle(tmp_path / "no checkpoint", tmp_path / "new", request_)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--output", "file"), "file exists and is not a bundle"),
        (("--output", "out", "--version", ""), "--version: '' is not of"),
        (("--output", "out", "--source", "English"), "--source: 'English' is no BCP 47 tag"),
        (("--output", "out", "--target", "german=>>de<<"), "--target: 'german' is no BCP 47 tag"),
        (
            ("--output", "out", *("--target", "sr=>>srp_Cyrl<<", "--target", "sr=>>srp_Latn<<")),
            "--target: sr is named 2 times; name the script, such as sr-Latn",
        ),
        (("--output", "out", "--name", "My"), "--name: 'My' is not of 1 to 64 lower-case letters"),
        (
            ("--output", "out"),
            "--name is needed: MODEL gives 'mein modell', which is not of 1 to 64 lower-case",
        ),
    ],
)
def test_an_import_checks_names_and_output_first(
    more: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("Mein Modell.zip").write_bytes(b"no archive")
    Path("file").touch()
    # Two cases test --name: one gives a wrong name, and one gives none.
    name = () if "--name" in more or more == ("--output", "out") else ("--name", "mine")
    assert main(["import", "Mein Modell.zip", "--licence", "MIT", *name, *more]) == 1
    assert message in capsys.readouterr().err


def test_an_import_names_a_missing_model_before_it_needs_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "Mein Modell"
    assert main(["import", str(missing), "--licence", "MIT", "--output", str(tmp_path / "out")]) == 1
    assert f"{missing} does not exist, and is no name on the hub" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["-1:0", "1:-1", "1", "1:", "a:b", "1:0,"])
def test_an_alignment_of_another_form_is_a_usage_error(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        export_arguments(tmp_path, tmp_path / "out", tmp_path / "facts.toml", f"--alignment={value}")
    message = f"argument --alignment: '{value}' is not of the form LAYER:HEAD,HEAD..., numbers from 0"
    assert message in capsys.readouterr().err


def test_an_alignment_is_read(tiny: Path, tmp_path: Path) -> None:
    arguments = export_arguments(
        tiny / "checkpoint", tmp_path / "new", tmp_path / "facts.toml", "--alignment", "1:0,1"
    )
    arguments.precisions = ("fp32",)
    assert run_export(arguments) == 0
    alignment = load_bundle(tmp_path / "new").manifest.alignment
    assert alignment is not None
    assert (alignment.layer, alignment.heads) == (1, (0, 1))


def write_to_full_disk(bundle: Path) -> None:
    with new_folder_beside(bundle), Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"x")


def test_a_failed_write_names_the_new_bundle(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'bundle'}'"):
        write_to_full_disk(tmp_path / "bundle")
