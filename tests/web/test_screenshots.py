"""Screenshots of the page in both themes and on a phone; `make screenshots` writes them into docs/."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi

TEXT = "Where is the station? It is late, and I would like to go home.\n\nCould you help me, please?"
TEXT_DE = "Wo ist der Bahnhof? Es ist spät, und ich möchte nach Hause gehen.\n\nKönnten Sie mir bitte helfen?"
MAX_BYTES = 120_000
COLORS = 224  # in the palette of the written file


@pytest.mark.parametrize(
    ("name", "theme", "size"),
    [
        ("page-light", "light", (1180, 960)),
        ("page-dark", "dark", (1180, 860)),
        ("page-phone", "light", (390, 860)),
    ],
)
def test_a_screenshot(
    open_ui: OpenUi,
    model_server: ServerProcess,
    tmp_path: Path,
    name: str,
    theme: str,
    size: tuple[int, int],
) -> None:
    """The file is small, and the page is not empty. Motion is reduced, so that no translation is half faded."""
    width, height = size
    size_of_window = {"width": width, "height": height}
    ui = open_ui(model_server, color_scheme=theme, reduced_motion="reduce", viewport=size_of_window).ready()
    ui.type(TEXT)
    ui.shows(TEXT_DE)
    if name == "page-dark":
        ui.word("Könnten").click()
        expect(ui["choices"].get_by_role("option").first).to_be_focused()
    else:
        ui.word("möchte").hover()
        expect(ui["which"]).to_have_text("2 of 3")
    shot = tmp_path / "shot.png"
    ui.page.screenshot(path=shot, full_page=name == "page-phone")
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    file = folder / f"{name}.png"
    with Image.open(shot) as picture:
        colors = picture.convert("RGB").getcolors(1 << 24)
        picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(file, optimize=True)
    assert colors is not None
    assert len(colors) > COLORS
    assert file.stat().st_size < MAX_BYTES
