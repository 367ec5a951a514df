"""Runners, caches and devices. They compute what the engine decides. Only this package imports ONNX Runtime."""

import os

# Since 1.31 the ONNX Runtime wheels write a machine identifier and a file of events to the user's cache folder, and
# start a thread to send them. This variable turns that off. ONNX Runtime reads it when it is imported. A value set by
# the user is kept.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
