"""The names of the layers of our Transformer, and those of CTranslate2."""

from __future__ import annotations


def joined_linears(stack: str, layer: int) -> list[tuple[tuple[str, ...], str]]:
    """Our names of the linear layers that CTranslate2 joins into one, and CTranslate2's name of the joined layer."""
    ours, theirs = f"{stack}.{layer}", f"{stack}/layer_{layer}"
    own, cross = f"{ours}.self_attention.w_", f"{ours}.cross_attention.w_"
    found: list[tuple[tuple[str, ...], str]] = [
        ((own + "q", own + "k", own + "v"), f"{theirs}/self_attention/linear_0"),
        ((own + "o",), f"{theirs}/self_attention/linear_1"),
        ((f"{ours}.feed_forward.w_1",), f"{theirs}/ffn/linear_0"),
        ((f"{ours}.feed_forward.w_2",), f"{theirs}/ffn/linear_1"),
    ]
    if stack == "decoder":
        found += [
            ((cross + "q",), f"{theirs}/attention/linear_0"),
            ((cross + "k", cross + "v"), f"{theirs}/attention/linear_1"),
            ((cross + "o",), f"{theirs}/attention/linear_2"),
        ]
    return found


def norm_names(stack: str, num_layers: int, *, is_final: bool) -> list[tuple[str, str]]:
    """Our name and CTranslate2's of each norm. is_final: whether the stack ends with a norm, as in pre-norm."""
    blocks = ("self_attention", "ffn") if stack == "encoder" else ("self_attention", "attention", "ffn")
    found = [
        (f"{stack}.{layer}.residuals.{index}.norm", f"{stack}/layer_{layer}/{block}/layer_norm")
        for layer in range(num_layers)
        for index, block in enumerate(blocks)
    ]
    return [*found, (f"{stack}_norm", f"{stack}/layer_norm")] if is_final else found
