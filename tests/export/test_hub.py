"""`transduce import` fetches a model that is named as on the Hugging Face hub, from a server on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.bundle import load_bundle
from export.hub import is_hub_name
from tests.export.hub_server import COMMIT, TOKEN, Hub, running
from tests.export.marian_folder import IMPORT_OPTIONS, write_marian, write_npz
from tests.forked import run_forked

pytestmark = [pytest.mark.training, pytest.mark.server]
NAME, PICKLED, GATED = "Helsinki-NLP/opus-mt-en-de", "Helsinki-NLP/pickled", "some_one/gated"
OWN = "Helsinki-NLP/own"
NEEDED = {"config.json", "generation_config.json", "vocab.json", "source.spm", "target.spm"}
Run = Callable[..., subprocess.CompletedProcess[str]]
# Prints the folder of the fetched model.
FETCH = "import sys; from export.hub import fetch; print(fetch(*sys.argv[1:]).folder)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "model"
    write_marian(folder)
    (folder / "tf_model.h5").write_bytes(b"the same weights for another library")
    (folder / "pytorch_model.bin").write_bytes(b"the same weights, older")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    return folder


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    with running(Hub({NAME: folder, GATED: folder}, gated={GATED})) as hub:
        yield hub


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """The environment of a process, with a cache of its own."""
    names = ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    repository = str(Path(__file__).parents[2])
    return environment | {
        "HF_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": repository,
        "HF_ENDPOINT": hub.url,
    }


@pytest.fixture
def fetch(environment: dict[str, str], tmp_path: Path) -> Run:
    """A function that fetches a model in a new process in tmp_path, and prints its folder."""

    def fetch(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", FETCH, *arguments], cwd=tmp_path, env=environment | variables,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return fetch


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """A function that runs `transduce import` in tmp_path, in a fork that has not imported the hub's client."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_forked(
            "transduce",
            "import",
            "--output",
            "out",
            *IMPORT_OPTIONS,
            *arguments,
            cwd=tmp_path,
            env=environment | variables,
            warnings_action="default",
        )

    return run


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1].removeprefix("transduce import: ")


def test_a_name_of_the_hub_becomes_a_bundle(fetch: Run, run: Run, hub: Hub, tmp_path: Path) -> None:
    done = run(NAME)
    assert done.returncode == 0, done.stderr
    assert set(hub.fetched) == NEEDED | {"model.safetensors"}, "other weights and folders are not fetched"
    bundle = load_bundle(tmp_path / "out")
    assert bundle.manifest.name == "opus-mt-en-de"
    card = (bundle.path / "MODEL_CARD.md").read_text("utf-8")
    assert f"Imported from the Marian model {NAME} (commit {COMMIT})." in card
    hub.fetched.clear()
    again = fetch(NAME, HF_ENDPOINT="http://127.0.0.1:9")
    assert again.returncode == 0, "the cache has all files"
    assert {path.name for path in Path(again.stdout.strip()).iterdir()} == NEEDED | {"model.safetensors"}


def test_weights_of_a_pickle_are_fetched_if_there_are_no_others(
    fetch: Run, hub: Hub, folder: Path, tmp_path: Path
) -> None:
    pickled = shutil.copytree(folder, tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    hub.models[PICKLED] = pickled
    done = fetch(PICKLED, "v2")
    assert done.returncode == 0, done.stderr
    assert set(hub.fetched) == NEEDED | {"pytorch_model.bin"}
    assert f"/api/models/{PICKLED}/revision/v2" in hub.requests
    assert f"/api/models/{PICKLED}/revision/main" not in hub.requests, "both downloads are of one commit"


def test_the_search_of_marians_own_files_is_fetched(
    fetch: Run, hub: Hub, folder: Path, tmp_path: Path
) -> None:
    hub.models[OWN] = tmp_path / "own"
    write_npz(folder, hub.models[OWN])
    (hub.models[OWN] / "preprocess.sh").write_text("")
    done = fetch(OWN)
    assert done.returncode == 0, done.stderr
    expected = {"opus.npz", "opus.spm32k-spm32k.vocab.yml", "source.spm", "target.spm", "decoder.yml"}
    assert set(hub.fetched) == expected


def test_a_gated_model_needs_a_token(fetch: Run, run: Run, hub: Hub, tmp_path: Path) -> None:
    expected = (
        f"{GATED} is no folder here, and the hub's model is gated: accept its conditions on its page, and set HF_TOKEN "
        "to a token that may read it"
    )
    assert last_line(run(GATED)) == expected
    assert not (tmp_path / "out").exists()
    done = fetch(GATED, HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    assert set(hub.fetched) == NEEDED | {"model.safetensors"}


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        (
            "Helsinki-NLP/nothing",
            (),
            "Helsinki-NLP/nothing is no folder here, and the hub has no such model; if it is private, set HF_TOKEN",
        ),
        (
            NAME,
            ("--revision", "v9"),
            f"{NAME} is no folder here, and the hub's model has no branch, tag or commit v9",
        ),
    ],
)
def test_what_the_hub_does_not_have_is_named(
    run: Run, name: str, more: tuple[str, ...], message: str
) -> None:
    assert last_line(run(name, *more)).startswith(message)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "http://127.0.0.1:9 does not answer"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
    ],
)
def test_an_unreachable_hub_gives_a_one_line_error(run: Run, variables: dict[str, str], reason: str) -> None:
    assert last_line(run(NAME, **variables)) == (
        f"{NAME} is no folder here, and the cache does not have all its files ({reason}): "
        "copy the model's folder from a machine that has it, and give the folder's path in place of the name"
    )


def test_a_proxy_that_refuses_the_connection_is_named(run: Run, hub: Hub) -> None:
    """The test's hub is the proxy here. It refuses CONNECT with 501."""
    message = last_line(
        run(NAME, HF_ENDPOINT="https://hub.invalid", HTTPS_PROXY=hub.url, https_proxy=hub.url)
    )
    expected = f"{NAME} is no folder here, and the connection to https://hub.invalid failed: 501"
    assert message.startswith(expected)


def test_an_existing_folder_of_that_name_is_read(run: Run, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    done = run(NAME)
    assert f"{NAME} exists here, so the model is not fetched from the hub" in done.stderr
    assert last_line(done).startswith(f"{NAME} cannot be imported: config.json is missing; ")
    assert (
        last_line(run(NAME, "--revision", "v2"))
        == f"--revision is for a model on the hub; {NAME} exists here"
    )
    assert hub.requests == []


@pytest.mark.parametrize(
    "name",
    ["opus-mt-en-de", "a/b/c", "../opus", "-a/b", "a/-b", "a/b--c", "a/b..c", "a/b.git", "a/b.", "a/b.zip", "a/", "/b",
     "a/b c", "a/b?c", "a/\u00e4", f"a/{'b' * 97}", "https://a/b"],
)  # fmt: skip
def test_an_argument_without_the_form_of_a_hub_name_is_not_fetched(name: str) -> None:
    assert not is_hub_name(name)


@pytest.mark.parametrize("name", [NAME, GATED, "facebook/m2m100_418M", "a/b.c_d-e", f"a/{'b' * 96}"])
def test_names_of_the_hub_are_recognised(name: str) -> None:
    assert is_hub_name(name)


@pytest.mark.parametrize(
    "path", ["models/of/mine", f"./{NAME}", f"{NAME}/", f"../{NAME}", f"/{NAME}"], ids=repr
)
def test_a_path_that_is_no_folder_and_no_name_of_the_hub_is_an_error(path: str, run: Run, hub: Hub) -> None:
    expected = f"{path} does not exist, and is no name on the hub, such as Helsinki-NLP/opus-mt-en-de"
    assert last_line(run(path)) == expected
    assert hub.requests == []
