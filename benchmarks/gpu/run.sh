#!/usr/bin/env bash
# Measures everything that the list in benchmarks/gpu/README.md asks of a GPU: no network, under 8 minutes.
#   benchmarks/gpu/run.sh [--device cpu --quick] [--data FILE] [--output FILE]
# PYTHON names the interpreter (default: python3). SITE is a folder of packages that were carried here, if any.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
export PYTHONPATH="${SITE:+$SITE:}$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1
# CUDA's libraries, where they came as wheels: beside PyTorch, say. ONNX Runtime looks beside itself only.
libraries=$("$PYTHON" - <<'PY'
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
places = spec.submodule_search_locations if spec else ()
print(":".join(str(path) for place in places for path in sorted(pathlib.Path(place).glob("*/lib"))))
PY
)
export LD_LIBRARY_PATH="${libraries:+$libraries:}${LD_LIBRARY_PATH:-}"
exec timeout -k 10 470 "$PYTHON" -m benchmarks.gpu "$@"
