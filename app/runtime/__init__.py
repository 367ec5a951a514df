"""Mechanism only, the one importer of ONNX Runtime."""

import os

# Since 1.31 its wheels keep an identifier of the machine and a file of events in the user's cache folder, with a thread
# that is to send them. It reads this when it is imported; who has set the variable has chosen.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
