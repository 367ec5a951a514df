"""Checks accuracy on a GPU: placement of all nodes, agreement with PyTorch in fp32, and batch consistency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from app.bundle import Bundle
from app.graphs import GraphSpec
from app.runtime.device import PROVIDERS
from app.runtime.interface import Floats, Runner, StepInput
from app.runtime.session import choose_device
from benchmarks.gpu.subject import (
    GpuBenchmarkOptions,
    SkipError,
    TranslationResult,
    bundled,
    encode,
    load,
    read_text,
    translate,
)

# Log-probability. Two candidates that are closer than this are a near-tie: rounding may decide between them.
NEAR_TIE = 2e-2
BATCH_ROWS = 64


def placement(options: GpuBenchmarkOptions) -> dict[str, Any]:
    """Count the nodes by provider and graph, and load the server's own runner."""
    choose_device(options.device)
    bundle = bundled(options)
    variant = bundle.manifest.variants["fp16"]
    found: dict[str, Any] = {}
    for name, spec in (("encoder", variant.encoder), ("decoder", variant.decoder)):
        found[name] = _nodes(options, bundle, spec)
    provider = PROVIDERS[options.device]
    found["elsewhere"] = sum(
        number
        for graph in ("encoder", "decoder")
        for where, number in found[graph].items()
        if where != provider
    )
    runner = load(options, bundle, num_rows=8)
    found["buckets_run"] = len([_first_step(runner, rows) for rows in (1, 2, 3, 8)])
    return found


def _first_step(runner: Runner, num_rows: int) -> Floats:
    """Run the same step twice and check that the results are equal. The second run replays a captured graph."""
    sources = [np.array([5 + row, runner.limits.eos_id], np.int32) for row in range(num_rows)]
    runner.encode(sources, list(range(num_rows)))
    step = StepInput(np.full(num_rows, runner.limits.bos_id, np.int32), np.zeros(num_rows, np.int32), 4)
    first = runner.decode(step).log_probabilities.copy()
    np.testing.assert_array_equal(runner.decode(step).log_probabilities, first)
    return first


def _nodes(options: GpuBenchmarkOptions, bundle: Bundle, spec: GraphSpec) -> dict[str, int]:
    """The number of nodes by provider, in a session that may also use the CPU."""
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = 3
    session_options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    providers = list(dict.fromkeys([PROVIDERS[options.device], PROVIDERS["cpu"]]))
    session = onnxruntime.InferenceSession(str(bundle.file(spec.file)), session_options, providers=providers)
    nodes: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] += len(part.get_nodes())
    return dict(nodes)


def agreement(options: GpuBenchmarkOptions) -> dict[str, Any]:
    """Compare with PyTorch in fp32: log-probabilities along PyTorch's greedy targets, ids of translations, BLEU."""
    try:
        import torch

        from model.checkpoint import load_model
        from model.evaluate import greedy_batch, score
    except ImportError as error:
        raise SkipError(f"not installed: {error.name}") from error
    bundle = bundled(options)
    weights: Path = bundle.path / "weights"
    if not weights.is_dir():
        raise SkipError("the bundle has no weights")
    torch.backends.cuda.matmul.allow_tf32 = False
    model = load_model(weights).to(options.device)
    tokenizer, sources, text = encode(bundle, read_text(options, options.pick(1000, 8)))
    targets: list[list[int]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for first in range(0, len(order), BATCH_ROWS):
        chosen = order[first : first + BATCH_ROWS]
        max_length = max(len(sources[index]) for index in chosen) + 50
        limit = min(bundle.manifest.max_target_length - 1, max_length)
        for index, ids in zip(
            chosen, greedy_batch(model, [sources[i] for i in chosen], max_target_length=limit), strict=True
        ):
            targets[index] = ids
    runner = load(options, bundle, num_rows=BATCH_ROWS)
    found = translate(runner, sources, beam_size=1)
    num_equal = sum(tuple(mine) == theirs for mine, theirs in zip(targets, found.ids, strict=True))
    result: dict[str, Any] = {
        "sentences": len(sources),
        "ids_equal_share": num_equal / len(sources),
        **_distances(options, model, runner, sources, targets),
    }
    if text.targets:
        decode = [[tokenizer.decode(ids).text for ids in each] for each in (targets, found.ids)]
        scores = [score(each, text.targets).bleu for each in decode]
        result |= {"bleu_pytorch_fp32": scores[0], "bleu_fp16": scores[1]}
    return result


def _distances(
    options: GpuBenchmarkOptions,
    model: Any,
    runner: Runner,
    sources: list[list[int]],
    targets: list[list[int]],
) -> dict[str, float]:
    """Differences of log-probabilities from PyTorch's: of the targets' subwords, and of all likely subwords.

    A subword is likely if its probability is above 0.001 in PyTorch.
    """
    import torch

    of_targets: list[Floats] = []
    of_likely: list[Floats] = []
    eos, bos = runner.limits.eos_id, runner.limits.bos_id
    for index in range(options.pick(256, 4)):
        if index >= len(sources):
            break
        ids = targets[index][: runner.limits.max_target_length - 1]
        mine = follow(runner, sources[index], ids)
        with torch.no_grad():
            inputs = (torch.tensor([each], device=options.device) for each in (sources[index], [bos, *ids]))
            theirs = model(*inputs).float().log_softmax(-1)[0].cpu().numpy()
        columns = np.array([*ids, eos])
        places = np.arange(len(columns))
        gap = np.abs(mine - theirs)
        of_targets.append(gap[places, columns])
        of_likely.append(gap[theirs > np.log(1e-3)])
    likely = np.concatenate(of_likely)
    return {
        "largest_gap_of_targets": float(np.concatenate(of_targets).max()),
        "largest_gap_of_likely": float(likely.max()),
        "gap_of_likely_p999": float(np.quantile(likely, 0.999)),
        "mean_gap_of_likely": float(likely.mean()),
    }


def follow(runner: Runner, source: Sequence[int], ids: Sequence[int]) -> Floats:
    """Distributions after the start token and after each id, decoded in one row: (len(ids) + 1, vocab_size)."""
    runner.encode([np.array(source, np.int32)], [0])
    found = []
    for position, token in enumerate((runner.limits.bos_id, *ids)):
        step = StepInput(
            np.array([token], np.int32), np.array([position], np.int32), 1, wants_distributions=True
        )
        distributions = runner.decode(step).distributions
        assert distributions is not None
        found.append(distributions[0].copy())
    return np.stack(found)


def batch_consistency(options: GpuBenchmarkOptions) -> dict[str, Any]:
    """Translate the same sentences in a batch and alone. With beam 4, translate only the first quarter of them.

    Returns the number of differences and their margins.
    """
    bundle = bundled(options)
    _, sources, _ = encode(bundle, read_text(options, options.pick(1000, 8)))
    runner = load(options, bundle, num_rows=256)
    result: dict[str, Any] = {"sentences": len(sources)}
    for beam_size, number in ((1, len(sources)), (4, len(sources) // 4)):
        chosen = sources[:number]
        together = translate(runner, chosen, beam_size=beam_size)
        alone = [translate(runner, [source], beam_size=beam_size) for source in chosen]
        differing = [i for i, each in enumerate(alone) if each.ids[0] != together.ids[i]]
        result[f"beam_{beam_size}"] = _differences(runner, chosen, alone, together, differing)
    return result


def _differences(
    runner: Runner,
    sources: list[list[int]],
    alone: list[TranslationResult],
    together: TranslationResult,
    differing: list[int],
) -> dict[str, Any]:
    """Differences between the answers alone and together.

    A margin is the difference of log-probability of the two candidates at the first position where the ids differ.
    """
    margins = []
    eos = runner.limits.eos_id
    for index in differing:
        mine, theirs = (*alone[index].ids[0], eos), (*together.ids[index], eos)
        place = next(i for i, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1])
        distribution = follow(runner, sources[index], mine[:place])[-1]
        margins.append(abs(float(distribution[mine[place]] - distribution[theirs[place]])))
    gaps = [abs(alone[index].scores[0] - together.scores[index]) for index in range(len(alone))]
    return {
        "sentences": len(sources),
        "differing": len(differing),
        "largest_margin": max(margins, default=0.0),
        "near_ties": sum(margin <= NEAR_TIE for margin in margins),
        "largest_score_gap_of_equal": max(
            (gap for index, gap in enumerate(gaps) if index not in set(differing)), default=0.0
        ),
        "largest_score_gap_of_differing": max((gaps[index] for index in differing), default=0.0),
    }
