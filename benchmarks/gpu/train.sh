#!/usr/bin/env bash
# Trains on a GPU for a given time, averages the last checkpoints, scores the average, and writes it as fp16 weights in
# parts of 15 MiB.
#   DATA=train.tsv.xz DEV=val.tsv.xz TOKENIZER=bundles/en-de/source.spm RUN=/tmp/base SECONDS_TO_TRAIN=1300 \
#     benchmarks/gpu/train.sh [further options of `transduce train`]
# TESTS: files of source and target to score with BLEU and chrF, separated by spaces. PRESET: default base. DEVICE:
# default cuda. RUN: a folder outside the checkout. RESUME=1 continues from its newest checkpoint. BATCH_TOKENS: default
# 25000. EVERY: updates between evaluations, and between checkpoints; default 500. LAST: averaged checkpoints; default 8.
# PYTHON and SITE: as in run.sh.
# To measure only the speed (target tokens/s, in train.csv): SECONDS_TO_TRAIN=120, with PRESET=base and with PRESET=big.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
export PYTHONPATH="${SITE:+$SITE:}$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1
transduce() { "$PYTHON" -m transduce "$@"; }
# A batch has about 25,000 subwords of source and of target, as in the paper (section 5.1). The paper's 4,000 warm-up
# steps are a sixth of the steps that a GPU runs in the time, so the warm-up has 2,000 steps.
transduce train --data "$DATA" --dev "$DEV" --tokenizer "$TOKENIZER" --run "$RUN" --device "${DEVICE:-cuda}" \
	--preset "${PRESET:-base}" --norm pre --max-length 256 --batch-tokens "${BATCH_TOKENS:-25000}" \
	--warmup-steps 2000 --evaluate-every "${EVERY:-500}" --save-every "${EVERY:-500}" --keep 12 \
	--max-time-s "$SECONDS_TO_TRAIN" ${RESUME:+--resume} "$@"
transduce average --run "$RUN" --last "${LAST:-8}" --output "$RUN/averaged"
for test in ${TESTS:-}; do
	transduce evaluate --checkpoint "$RUN/averaged" --data "$test" --json | tee -a "$RUN/scores.jsonl"
done
"$PYTHON" - "$RUN" <<'PY'
import csv, hashlib, pathlib, statistics, sys
import safetensors.torch
run = pathlib.Path(sys.argv[1])
path = run / "averaged" / "model.safetensors"
halves = {name: tensor.half().contiguous() for name, tensor in safetensors.torch.load_file(path).items()}
content = safetensors.torch.save(halves)
parts = run / "parts"
parts.mkdir(exist_ok=True)
size = 15 * 1024 * 1024
for number, start in enumerate(range(0, len(content), size)):
    (parts / f"model.safetensors.{number:02d}").write_bytes(content[start : start + size])
for name in ("config.json", "tokenizer.spm"):
    (parts / name).write_bytes((run / "averaged" / name).read_bytes())
(parts / "sha256").write_text(hashlib.sha256(content).hexdigest() + "\n")
rows = list(csv.DictReader((run / "train.csv").open()))
rates = [float(row["target_tokens_per_s"]) for row in rows if row["target_tokens_per_s"]]
rate, num_parameters = statistics.median(rates), sum(tensor.numel() for tensor in halves.values())
# Forward and backward pass take 6 operations per weight and token. Source and target count as equally long.
share = 6 * num_parameters * rate / 790e12
print(f"median target tokens/s: {rate:,.0f} over {len(rates)} measurements, {share:.1%} of 790 TFLOP/s")
print(f"{len(content) / 1e6:.1f} MB of weights in {parts}; join: cat model.safetensors.* > model.safetensors")
PY
