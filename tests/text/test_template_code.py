"""Branches and loops of a template keep their order in a translation, and its variables may change theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from app.text.parsed_text import ParseOptions, TextFormat
from app.text.template_code import is_control, is_else
from benchmarks.roundtrip import run_text_layer
from benchmarks.roundtrip_models import MODELS

IFS = [
    ("{% if a %}", "{% else %}", "{% endif %}"),
    ("{%- if a -%}", "{%- elsif b -%}", "{%- endif -%}"),
    ("{{#if a}}", "{{else}}", "{{/if}}"),
    ("<% if (a) { %>", "<% else %>", "<% end %>"),
    ("<#if a>", "<#elseif b>", "</#if>"),
    ("*|IF:A|*", "*|ELSE:|*", "*|END:IF|*"),
]


def _with_code(frame: str, code: Iterable[str]) -> str:
    parts = iter(code)
    return re.sub("@", lambda _: next(parts), frame)


@pytest.mark.parametrize("code", IFS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("frame", ["The goods @come today@come later@ by post.", "@One {{n}} two@three@."])
@pytest.mark.parametrize("text_format", [TextFormat.PLAIN, TextFormat.HTML])
def test_branches_keep_their_order(
    code: tuple[str, str, str], model: str, frame: str, text_format: TextFormat
) -> None:
    options = ParseOptions("en", "de", text_format)
    written = run_text_layer(_with_code(frame, code), options, MODELS[model])
    assert tuple(re.findall("|".join(map(re.escape, code)), written.text)) == code


def test_variables_may_change_their_order() -> None:
    written = run_text_layer("One {{a}} two {{b}} three", ParseOptions("en", "de"), MODELS["reversed"])
    assert written.text == "three {{b}} two {{a}} One"


def test_a_branch_without_else_encloses_the_translation_of_its_words() -> None:
    text = "One two {% if a %}three{% endif %} four"
    written = run_text_layer(text, ParseOptions("en", "de"), MODELS["reversed"])
    assert written.text == "four {% if a %}three{% endif %} two One"


@pytest.mark.parametrize(
    "code", ["{{name}}", "{{ else_name }}", "<%= name %>", "*|FNAME|*", "${else}", "{else}", "<?= a ?>"]
)
def test_a_variable_is_no_branch(code: str) -> None:
    assert not is_else(code)
    assert not is_control(code)
