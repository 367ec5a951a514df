"""Runners, caches and devices. This package computes but decides nothing. Only it imports ONNX Runtime."""

import os

# Since 1.31 the ONNX Runtime wheels write a machine identifier and a file of events to the user's cache folder, and
# start a thread to send them. The variable turns that off. It is read at import. A value set by the user is kept.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
