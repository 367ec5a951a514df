"""Write the first weights of a student of the bundled model: the teacher's encoder, and a shallower decoder of SSRUs.

    python training/en-de/student.py bundles/en-de/weights runs/student/start --layers 0 2

The student's decoder layers are layers of the teacher, with an SSRU (Simpler Simple Recurrent Unit) in the place of
self-attention. Only the SSRUs are new, with random weights.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch

from model import checkpoint
from model.transformer import Transformer


def student_of(teacher: Transformer, layers: list[int]) -> Transformer:
    """A model of the teacher's encoder, embedding and decoder `layers`, in which SSRUs replace self-attention.

    Raises KeyError for a layer that the teacher does not have.
    """
    config = dataclasses.replace(teacher.config, decoder="ssru", num_decoder_layers=len(layers))
    student, taught = Transformer(config), teacher.state_dict()
    state = student.state_dict()
    for name in state:
        stack, layer, *rest = name.split(".")
        if ".ssru." not in name:
            source = ".".join((stack, str(layers[int(layer)]), *rest)) if stack == "decoder" else name
            state[name] = taught[source]
    student.load_state_dict(state)
    return student


def main() -> None:
    """Read the teacher's checkpoint and write the student's, with a copy of the tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("teacher", type=Path, help="the folder of the teacher's weights")
    parser.add_argument("output", type=Path, help="the folder to write")
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[0, 2], help="the teacher's decoder layers to keep"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        default=Path("bundles/en-de/source.spm"),
        help="the teacher's SentencePiece model (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the new weights")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    student = student_of(checkpoint.load_model(args.teacher), args.layers)
    saved = checkpoint.Saved(student.state_dict(), {"model": student.config.to_json()}, {}, {})
    checkpoint.save(args.output, saved, args.tokenizer)


if __name__ == "__main__":
    main()
