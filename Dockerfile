# Two images from one recipe:
#   docker build --target cpu -t transduce:cpu .
#   docker build --target gpu -t transduce:gpu .    (runs with a driver for CUDA 13 and the NVIDIA container toolkit)
# Neither holds a C++ compiler, PyTorch, model/ or export/, and the server's environment has no pip. BASE can name the base
# by digest. Python packages are pinned by hash. Debian's g++, which compiles the native kernels, is not pinned.
#   docker build --target cpu -t transduce:cpu --build-arg BASE=python:3.12-slim@sha256:... .
ARG BASE=python:3.12-slim

FROM ${BASE} AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements/build.txt requirements/
RUN ["python", "-m", "pip", "install", "--require-hashes", "-r", "requirements/build.txt"]
RUN ["python", "-m", "venv", "--without-pip", "/opt/venv"]

# The project's wheel holds app and transduce, the packages that .dockerignore lets through. It also holds the native
# operators, compiled for the image's architecture. The server checks the processor's instructions when it starts.
FROM builder AS wheel
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml setup.py README.md LICENSE ./
COPY app app
COPY transduce transduce
RUN ["python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."]

# The layer of dependencies comes first: it is slow to build and seldom changes. Then the project is installed, and the
# arrays of its language detector are unpacked. The last step fails if the environment holds a package that serving does
# not need.
FROM builder AS venv-cpu
COPY requirements/cpu.txt requirements/
RUN ["python", "-m", "pip", "--python", "/opt/venv", "install", "--require-hashes", "-r", "requirements/cpu.txt"]
COPY --from=wheel /build/dist dist
RUN ["python", "-m", "pip", "--python", "/opt/venv", "install", "--no-deps", "--no-index", "--find-links", "dist", "transduce"]
RUN ["/opt/venv/bin/python", "-m", "app.text.detector_arrays"]
RUN ["/opt/venv/bin/python", "-c", "import importlib.util as u, sys; sys.exit(', '.join(m for m in ('torch', 'onnx', 'model', 'export', 'pip') if u.find_spec(m)) or 0)"]

FROM builder AS venv-gpu
COPY requirements/gpu.txt requirements/
RUN ["python", "-m", "pip", "--python", "/opt/venv", "install", "--require-hashes", "-r", "requirements/gpu.txt"]
COPY --from=wheel /build/dist dist
RUN ["python", "-m", "pip", "--python", "/opt/venv", "install", "--no-deps", "--no-index", "--find-links", "dist", "transduce"]
RUN ["/opt/venv/bin/python", "-m", "app.text.detector_arrays"]
RUN ["/opt/venv/bin/python", "-c", "import importlib.util as u, sys; sys.exit(', '.join(m for m in ('torch', 'onnx', 'model', 'export', 'pip') if u.find_spec(m)) or 0)"]

# The base of both images. All files belong to root and are only read. The server can write to /tmp and to the glossaries'
# folder.
FROM ${BASE} AS runtime
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    TRANSDUCE_HOST=0.0.0.0 \
    TRANSDUCE_BUNDLE=/srv/transduce/bundles/en-de
WORKDIR /srv/transduce
COPY bundles bundles
# The glossaries' folder belongs to the server's user, and so does a new volume that is mounted there.
RUN ["install", "--directory", "--owner=65532", "--group=65532", "--mode=0700", "/var/lib/transduce"]
USER 65532:65532
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["/opt/venv/bin/python", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.environ.get('TRANSDUCE_PROBE_PORT') or os.environ.get('TRANSDUCE_PORT') or '8000'), timeout=2); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["/opt/venv/bin/transduce", "serve"]

# Without a GPU this image refuses to start. Otherwise nobody would notice that it runs on the CPU.
FROM runtime AS gpu
ENV TRANSDUCE_DEVICE=cuda NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=venv-gpu /opt/venv /opt/venv

# A build without --target builds the last stage.
FROM runtime AS cpu
COPY --from=venv-cpu /opt/venv /opt/venv
