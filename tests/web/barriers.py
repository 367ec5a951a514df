"""Barriers of a page: what axe finds in it, and texts with too little contrast, in both themes."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT

from tests.web.page_object import TranslatePage

MIN_CONTRAST = 4.5
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# The rules whose result depends on the theme. The themes differ only in colours.
RULES_OF_COLOURS = ["color-contrast", "link-in-text-block"]
# One element with text of each kind. Elements are of one kind if they and their ancestors have equal names, classes
# and colours.
ONE_OF_EACH_KIND = """() => {
  const kinds = new Map();
  for (const element of document.body.querySelectorAll("*")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!hasText || !element.checkVisibility()) continue;
    const kind = [];
    for (let at = element; at; at = at.parentElement) {
      const { color, backgroundColor, opacity } = getComputedStyle(at);
      kind.push(at.localName, at.className, color, backgroundColor, opacity);
    }
    if (!kinds.has(`${kind}`)) kinds.set(`${kind}`, element);
  }
  return [...kinds.values()];
}"""


# The contrast of text with the nearest opaque background. The opacity of the text and of its ancestors counts.
# Disabled and invisible texts are left out.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const pixels = new Map();  // by color, because the canvas is slow and most elements share a few colours
  const pixel = (color) => {
    if (!pixels.has(color)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      pixels.set(color, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return pixels.get(color);
  };
  const luminance = (channels) => {
    const [red, green, blue] = channels.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const backgroundOf = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const background = pixel(getComputedStyle(at).backgroundColor);
      if (background[3] === 255) return background;
    }
    return [255, 255, 255, 255];
  };
  const opacityOf = (element) => {
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= getComputedStyle(at).opacity;
    return opacity;
  };
  const blend = (color, background, share) =>
    color.slice(0, 3).map((value, channel) => share * value + (1 - share) * background[channel]);
  const hasText = (element) =>
    [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()) ||
    (element.matches("textarea, input, select") && element.checkVisibility());
  return [...document.body.querySelectorAll("*")]
    .filter((element) => element.checkVisibility() && hasText(element))
    .filter((element) => !element.closest(":disabled, [aria-disabled=true], noscript, option"))
    .filter((element) => !element.closest(".unseen, .mirror, .skip:not(:focus)"))
    .map((element) => {
      const background = backgroundOf(element);
      const color = pixel(getComputedStyle(element).color);
      const [dark, light] = [blend(color, background, (color[3] / 255) * opacityOf(element)), background]
        .map(luminance)
        .sort((one, other) => one - other);
      const name = element.id || element.className || element.parentElement.className || element.localName;
      return [`${name}: ${element.textContent.slice(0, 20)}`, (light + 0.05) / (dark + 0.05)];
    });
}"""


def barriers(ui: TranslatePage, *, has_many_alike: bool = False) -> list[Any]:
    """The violations that axe finds, and texts with a contrast below 4.5, in both themes. Leaves the light theme set.

    has_many_alike: the page has many texts of few kinds. axe then checks the colours of one text of each kind,
        because it takes long to find the background of a text.
    """
    if not ui.page.evaluate("() => 'axe' in window"):
        ui.page.evaluate(AXE_SCRIPT)
    texts = f"{{ include: ({ONE_OF_EACH_KIND})() }}" if has_many_alike else "document"
    found = _violations(ui, RULES, rules={name: {"enabled": False} for name in RULES_OF_COLOURS})
    for theme in ("dark", "light"):
        ui.page.emulate_media(color_scheme=theme)
        found += _violations(ui, RULES_OF_COLOURS, texts)
        contrasts = ui.page.evaluate(CONTRASTS)
        assert len(contrasts) >= 10
        found += [(name, ratio) for name, ratio in contrasts if ratio < MIN_CONTRAST]
    return found


def _violations(ui: TranslatePage, names: list[str], within: str = "document", **options: Any) -> list[Any]:
    """What axe finds by the rules with these names or tags. within: a context of axe, in JavaScript."""
    # resultTypes: for each rule that holds, axe describes one element. Otherwise it spends most of its time on these
    # descriptions.
    options |= {"runOnly": names, "resultTypes": ["violations"]}
    found = ui.page.evaluate(f"(options) => axe.run({within}, options)", options)
    assert found["passes"], "axe must run its rules"
    return [(each["id"], [node["target"] for node in each["nodes"]]) for each in found["violations"]]
