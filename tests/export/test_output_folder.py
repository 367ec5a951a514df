"""The folder of a new bundle is checked before the model is read, and a symbolic link to it stays a link."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.bundle import load_bundle
from export.bundle_shortlist import tables_of, write_with_shortlist
from export.bundle_writer import BundleRequest, write_bundle
from export.cli import run_export
from export.output_folder import ExportError, check_output, replace_folder
from export.portable import write_new_folder
from export.shortlist import make_table
from tests.export.tiny import bundle_request, export_arguments, names
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


def test_a_current_folder_that_is_removed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ExportError, match=r"new cannot be resolved \(No such file or directory\)"):
        check_output(Path("new"))


def test_a_replacement_leaves_other_hidden_folders(tmp_path: Path) -> None:
    for name in ("new", "bundle", ".bundle.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    replace_folder(tmp_path / "new", tmp_path / "bundle")
    assert names(tmp_path) == [".bundle.old", "bundle"]
    assert (names(tmp_path / "bundle"), names(tmp_path / ".bundle.old")) == (["new"], [".bundle.old"])


@pytest.mark.seconds
def test_exports_to_one_bundle_at_the_same_time_are_both_complete(tiny: Path, tmp_path: Path) -> None:
    found: list[str] = []

    def export_too(stage: str) -> None:
        if stage == "checking":
            bundle = write_bundle(tiny / "checkpoint", tmp_path / "out", replace(SMALL, version="2"))
            found.append(bundle.manifest.version)

    bundle = write_bundle(tiny / "checkpoint", tmp_path / "out", SMALL, on_progress=export_too)
    assert (found, bundle.manifest.version) == (["2"], "1")
    assert names(tmp_path) == ["out"]


def test_exports_to_one_new_folder_at_the_same_time_are_both_complete(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "first").touch()
        write_new_folder(tmp_path / "out", Path.mkdir)

    write_new_folder(tmp_path / "out", write)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["first"]


def test_another_format_is_readable_for_everyone(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        folder.mkdir(0o700)
        (folder / "file").touch(0o600)

    write_new_folder(tmp_path / "out", write)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "out", tmp_path / "out" / "file")]
    assert modes == [0o755, 0o644]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (replace(SMALL, name="Mein Modell"), "--name: 'Mein Modell' is not of 1 to 64 lower-case letters"),
        (replace(SMALL, name="a\n"), "--name: "),
        (replace(SMALL, version="a b"), "--version: 'a b' is not of 1 to 64 letters, digits"),
        (replace(SMALL, source="EN"), "--source: 'EN' is no BCP 47 tag, such as en or pt-BR"),
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
