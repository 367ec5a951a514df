"""`transduce distill`: writes a served model's translations as training data.

Translations of sources train a student that learns from a teacher (Kim and Rush 2016, sequence-level knowledge
distillation). Translations of targets train a model of the other direction (Sennrich et al. 2016, back-translation).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.corpus_cache import file_facts
from model.data_arguments import DATA_HELP, files_of
from transduce.api_key import find_api_key
from transduce.arguments import above_zero, not_negative, number, positive, server_url
from transduce.client import Client, Model, ModelName, TransduceError
from transduce.distill_corpus import PairForm, Sentence, read_sentences
from transduce.errors import CommandError, ExitCode
from transduce.own_server import OwnServer
from transduce.signals import sigterm_as_interrupt
from transduce.teacher import RequestParams, Teacher
from transduce.translate import MAX_RETRIES, batch_size
from transduce.translate_batch import error_line, model_facts

if TYPE_CHECKING:
    from model.progress import Progress
    from transduce.distill_output import ResumableOutput

# The number of a batch's first sentence is added to --seed, and the server takes seeds up to 2**63 - 1.
MAX_SEED = 2**62


def add_distill_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transduce distill`."""
    add = parser.add_argument_group("input").add_argument
    add("--data", action="append", default=[], metavar="FILES", help=f"parallel text: {DATA_HELP}")
    add(
        "--text",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="monolingual text, plain, .gz or .xz: one sentence per line, or domain, tab and sentence",
    )
    add("--source", required=True, metavar="LANG", help="language of the sentences to translate")
    add("--target", required=True, metavar="LANG", help="language to translate into")
    add("--limit", type=positive, metavar="N", help="only the first N sentences")
    add = parser.add_argument_group("output").add_argument
    add(
        "--output",
        required=True,
        type=Path,
        metavar="FILE",
        help="FILE.tsv[.gz|.xz]; the same command resumes after an interruption",
    )
    add(
        "--back-translation",
        action="store_true",
        help="write each sentence as the target and its translation as the source; translate the target side of --data",
    )
    add("--source-tag", default="", metavar="TEXT", help="text before each written source, such as '<BT>'")
    add(
        "--domain-tag",
        default="",
        metavar="TEXT",
        help="text after each domain and a dash: bt turns the domain news into news-bt",
    )
    _add_decoding_arguments(parser)
    _add_server_arguments(parser)


def _add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("decoding").add_argument
    add("--beam-size", type=positive, metavar="N", help="beam size (default: the model's own)")
    add(
        "--sample",
        action="store_true",
        help="sample each subword by its probability instead of a beam search",
    )
    add(
        "--temperature",
        type=number,
        metavar="X",
        help="with --sample: below 1 favours the more probable subwords",
    )
    add("--top-k", type=positive, metavar="N", help="with --sample: sample from the N most probable tokens")
    add(
        "--top-p",
        type=number,
        metavar="X",
        help="with --sample: sample from the smallest set of subwords with at least this total probability",
    )
    add("--seed", type=int, default=1, help="with --sample: the seed, at most 2**62 (default: %(default)s)")


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("teacher")
    where = group.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--bundle", type=Path, metavar="DIR", help="start a server with this bundle, and stop it at the end"
    )
    where.add_argument(
        "--url", type=server_url, help="root of a running server, such as http://127.0.0.1:8000"
    )
    add = group.add_argument
    add(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="with --url: file with the API key (default: TRANSDUCE_API_KEY)",
    )
    add(
        "--batch-size",
        type=batch_size,
        default=32,
        metavar="N",
        help="texts per request (default: %(default)s)",
    )
    add(
        "--concurrency",
        type=positive,
        default=4,
        metavar="N",
        help="number of concurrent requests (default: %(default)s)",
    )
    add(
        "--timeout",
        type=above_zero,
        default=120.0,
        metavar="S",
        help="seconds to wait for one response (default: %(default)g)",
    )
    add(
        "--max-wait",
        type=not_negative,
        default=600.0,
        metavar="S",
        help="seconds to keep retrying while the server is overloaded or loading (default: %(default)g)",
    )


def run_distill(args: argparse.Namespace) -> int:
    """Translate the input sentences and write the pairs. Returns 0.

    Raises:
        CommandError: the arguments contradict one another, the API key is invalid, or the unfinished output belongs to
            another run; also as in `OwnServer`, `served_model`, `Teacher.translations` and `check_output`.
        CorpusError: an input file does not exist or cannot be read.
        OSError: the key cannot be read, or the output cannot be written.
    """
    from model.progress import Progress
    from transduce.distill_output import ResumableOutput, check_output

    params = request_params(args)
    check_inputs(args)
    check_output(args.output)
    form = PairForm(args.back_translation, args.source_tag, args.domain_tag)
    with ExitStack() as stack:
        stack.enter_context(sigterm_as_interrupt())
        url = args.url or stack.enter_context(OwnServer(args.bundle)).url
        key = None if args.url is None else find_api_key(args.api_key_file)
        client = stack.enter_context(
            Client(
                url, api_key=key, timeout_s=args.timeout, max_retries=MAX_RETRIES, max_wait_s=args.max_wait
            )
        )
        model = served_model(client, params)
        output = stack.enter_context(
            ResumableOutput(args.output, run_key(args, model), batch_size=args.batch_size)
        )
        progress = stack.enter_context(Progress("distill", unit="sentences", total=args.limit))
        progress.start_at(output.num_done)
        teacher = Teacher(
            client,
            params,
            model=ModelName(model["name"], model["version"]),
            batch_size=args.batch_size,
            concurrency=args.concurrency,
            has_succeeded=output.has_lines,
        )
        sentences = read_sentences(args.data, args.text, is_back_translation=args.back_translation)
        try:
            write_pairs(teacher, islice(sentences, args.limit), form, output, progress)
        except CommandError as error:
            if not output.num_done:
                raise
            raise CommandError(f"{error.message}; run the same command again to resume") from error
        num_done, count = output.num_done, output.finish()
    print(f"{args.output}: {count:,} pairs of {num_done:,} sentences", file=sys.stderr)
    return 0


def write_pairs(
    teacher: Teacher,
    sentences: Iterator[Sentence],
    form: PairForm,
    output: ResumableOutput,
    progress: Progress,
) -> None:
    """Translate the sentences that the output does not have yet, and append the pairs batch by batch.

    Raises CommandError, CorpusError, OSError.
    """
    first = output.num_done
    for _ in islice(sentences, first):
        pass
    domains: list[str] = []

    def texts() -> Iterator[str]:
        for sentence in sentences:
            domains.append(sentence.domain)
            yield sentence.text

    num_untranslated = 0
    with closing(teacher.translations(texts(), first=first)) as batches:
        for batch in batches:
            lines = [
                form.line(Sentence(text, domain), translation) if translation and translation.strip() else ""
                for (text, translation), domain in zip(batch, domains, strict=False)
            ]
            del domains[: len(batch)]
            output.write(lines)
            num_untranslated += lines.count("")
            progress.advance(
                len(batch), f"{num_untranslated:,} without a translation" if num_untranslated else ""
            )


def request_params(args: argparse.Namespace) -> RequestParams:
    """Languages and options of every request.

    Raises:
        CommandError: no input is named, options exclude one another, or the seed is out of range.
    """
    if not args.data and not args.text:
        raise CommandError("give --data, --text or both", exit_code=ExitCode.USAGE)
    sampling = {
        name: value
        for name in ("temperature", "top_k", "top_p")
        if (value := getattr(args, name)) is not None
    }
    if not args.sample:
        if sampling:
            raise CommandError(
                f"--{next(iter(sampling)).replace('_', '-')} needs --sample", exit_code=ExitCode.USAGE
            )
        options: dict[str, Any] = {} if args.beam_size is None else {"beam_size": args.beam_size}
        return RequestParams(args.source, args.target, options)
    if args.beam_size not in (None, 1):
        raise CommandError("--sample excludes --beam-size", exit_code=ExitCode.USAGE)
    if not 0 <= args.seed <= MAX_SEED:
        raise CommandError("--seed is not from 0 to 2**62", exit_code=ExitCode.USAGE)
    return RequestParams(
        args.source, args.target, {"beam_size": 1, "sampling": {"temperature": 1.0, **sampling}}, args.seed
    )


def served_model(client: Client, params: RequestParams) -> dict[str, str]:
    """Name, version and precision of the server's model for the pair of languages.

    Raises:
        CommandError: no single model translates the pair, or the server cannot be reached.
    """
    from app.api.languages import served_pair

    try:
        models = client.models()
    except TransduceError as error:
        raise CommandError(error_line(error)) from error
    pairs: dict[tuple[str, str], Model] = {}
    for model in models:
        for pair in model.language_pairs:
            pairs.setdefault((pair.source, pair.target), model)  # the server, too, takes a pair's first model
    wanted = served_pair(params.source, params.target, pairs)
    if wanted not in pairs:
        known = ", ".join(f"{source} to {target}" for source, target in pairs)
        raise CommandError(f"the server has no model for {params.source} to {params.target}: it has {known}")
    return model_facts(pairs[wanted])


def run_key(args: argparse.Namespace, model: dict[str, str]) -> dict[str, object]:
    """Everything that determines the output's lines, as JSON values."""
    names = "data source target limit back_translation source_tag domain_tag beam_size sample"
    if args.sample:  # each batch has its own seed
        names += " temperature top_k top_p seed batch_size"
    options = {name: getattr(args, name) for name in names.split()}
    files = [list(facts) for facts in file_facts(check_inputs(args))]
    return {"model": model, **options, "text": list(map(str, args.text)), "input": files}


def check_inputs(args: argparse.Namespace) -> list[Path]:
    """Return the input's files.

    Raises:
        CorpusError: a file does not exist or cannot be read as text, or a folder holds no TSV file.
    """
    from model.corpus import check_file

    files = [*files_of(args.data), *args.text]
    for path in files:
        check_file(path)
    return files
