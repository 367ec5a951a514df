#!/usr/bin/env bash
# Runs the measurements of benchmarks/gpu/README.md on a GPU. Needs no network and less than 8 minutes.
#   benchmarks/gpu/run.sh [--device cpu --quick] [--data FILE] [--output FILE]
# PYTHON names the interpreter (default: python3). SITE is a folder of extra packages, if any. LIMIT_S: seconds after which
# the script ends (default: 470).
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
export PYTHONPATH="${SITE:+$SITE:}$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1
# CUDA's libraries may be installed as wheels, for example with PyTorch. ONNX Runtime does not search those folders.
libraries=$("$PYTHON" - <<'PY'
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
places = spec.submodule_search_locations if spec else ()
print(":".join(str(path) for place in places for path in sorted(pathlib.Path(place).glob("*/lib"))))
PY
)
export LD_LIBRARY_PATH="${libraries:+$libraries:}${LD_LIBRARY_PATH:-}"
exec timeout -k 10 "${LIMIT_S:-470}" "$PYTHON" -m benchmarks.gpu "$@"
