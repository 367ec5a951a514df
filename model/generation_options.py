"""The options of Hugging Face's `generate()`: those that an import keeps, and those that it leaves out.

Each is a field of generation_config.json. Older models have no such file, and the fields are in config.json.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from model.huggingface_files import CONFIG, GENERATION

MAX_LENGTH_PENALTY = 10.0  # the largest that a bundle's manifest may have
# The fields that config.json and generation_config.json may both have, with the same meaning.
IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
# Options that the server's search does not have, with the values that change nothing. Null also changes nothing. The
# server's shortest translation has one token. min_length also counts the start token. min_length and min_new_tokens do
# not count the end token.
LEFT_OUT: dict[str, tuple[Any, ...]] = {
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "min_length": (0, 1, 2),
    "min_new_tokens": (0, 1),
    "forced_bos_token_id": (),
    "bad_words_ids": ([],),
    "force_words_ids": ([],),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ([], {}),
    "exponential_decay_length_penalty": (),
    "do_sample": (False,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
}


def _field(name: str, facts: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[str, Any]:
    """A field's file and value, null if it is missing.

    As in `transformers`, all fields are read from generation_config.json, or, without that file, from config.json.
    """
    file, fields = (GENERATION, generation) if generation else (CONFIG, facts)
    return file, fields.get(name)


def search_defaults(facts: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[int, float]:
    """The beam size and the length penalty: 1 and 1.0 where they are missing or null.

    facts: config.json. generation: generation_config.json; empty if it is missing.
    Raises ValueError.
    """
    found = []
    for name, default in (("num_beams", 1), ("length_penalty", 1.0)):
        file, value = _field(name, facts, generation)
        found.append((f"{name} of {file}", default if value is None else value))
    return checked_search(*found)


def checked_search(beam_size: tuple[str, Any], length_penalty: tuple[str, Any]) -> tuple[int, float]:
    """Check the beam size and the length penalty, and return them. Raises ValueError.

    Each argument is a pair: the option's name for messages, and its value.
    """
    problems = []
    name, beams = beam_size
    if type(beams) is not int or beams < 1:
        problems.append(f"{name} is {beams!r}; it must be a whole number of at least 1")
    name, penalty = length_penalty
    if type(penalty) not in (int, float) or not 0 <= penalty <= MAX_LENGTH_PENALTY:
        problems.append(f"{name} is {penalty!r}; it must be a number from 0 to {MAX_LENGTH_PENALTY:g}")
    if problems:
        raise ValueError("; ".join(problems))
    return beams, float(penalty)


def left_out_options(
    facts: Mapping[str, Any], generation: Mapping[str, Any], *, kept: Sequence[str] = ()
) -> tuple[str, ...]:
    """A note for each option that changes translations and that the import leaves out.

    kept: options of LEFT_OUT that this import expresses in another way.
    """
    padding = [[facts.get("pad_token_id")]]  # no translation of a bundle contains it
    notes = []
    for name, neutral in LEFT_OUT.items():
        file, value = _field(name, facts, generation)
        is_neutral = value is None or value in neutral or (name == "bad_words_ids" and value == padding)
        if name not in kept and not is_neutral:
            notes.append(left_out(f"{name} of {file}", value))
    return tuple(notes)


def left_out(name: str, value: Any) -> str:
    """The note about an option of the search. name: the option and its file, as `NAME of FILE`."""
    return f"{name} is {reprlib.repr(value)}; the bundle does not have this option"


def contradictions(facts: Mapping[str, Any], generation: Mapping[str, Any]) -> list[str]:
    """The ids that have different values in config.json and generation_config.json."""
    return [
        f"{name} of {CONFIG} is {facts[name]!r}, of {GENERATION} it is {generation[name]!r}"
        for name in IDS
        if facts.get(name) is not None
        and generation.get(name) is not None
        and facts[name] != generation[name]
    ]
