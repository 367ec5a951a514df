"""Computation without decisions: runners, caches and devices. The only package that imports ONNX Runtime."""

import os

# Since 1.31 the ONNX Runtime wheels write a machine identifier and a file of events to the user's cache folder, and
# start a thread to send them. The variable is read at import; a value set by the user is kept.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
