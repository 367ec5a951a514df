#!/usr/bin/env bash
# Build Marian as Firefox does, for CPUs with int8 (intgemm), and the program that `benchmarks.marian` times.
#   benchmarks/marian/build.sh FOLDER
# Needs git, cmake, ninja, a C++ compiler, OpenBLAS's headers (libopenblas-dev) and half an hour. The programs are in
# FOLDER/build. Matrix products of floats use MKL, whose static libraries come from PyPI.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
folder=$PWD
if [ ! -d marian-dev ]; then
    git clone -q https://github.com/browsermt/marian-dev
    git -C marian-dev checkout -q 2781d735d4a10dca876d61be587afdab2726293c
    git -C marian-dev submodule update -q --init src/3rd_party/{intgemm,sentencepiece,simd_utils}
    # Marian with the environment variable PAPER_NETWORK is the network of the bundled model (trained.py).
    git -C marian-dev apply --unidiff-zero "$here/paper_network.patch"
    # GCC 12 warns in its own AVX-512 headers.
    sed -i 's/-Wall; -Werror; -Wextra/-Wall; -Wextra/' marian-dev/CMakeLists.txt
fi
if [ ! -e mkl/lib/libmkl_core.a ]; then
    python3 -m pip download -q --no-deps mkl-static mkl-include -d wheels
    for wheel in wheels/mkl_*.whl; do
        python3 -m zipfile -e "$wheel" unpacked
    done
    mkdir -p mkl
    cp -r unpacked/mkl_*.data/data/* mkl/
fi
export MKLROOT=$folder/mkl
cmake -G Ninja -S marian-dev -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_ARCH=native -DCOMPILE_CPU=on -DCOMPILE_CUDA=off \
    -DCOMPILE_SERVER=off -DCOMPILE_TESTS=off -DUSE_INTGEMM=on -DUSE_MKL=on -DMKL_ROOT="$MKLROOT" \
    -DUSE_SENTENCEPIECE=on -DUSE_STATIC_LIBS=on -DUSE_FBGEMM=off -DUSE_DOXYGEN=off -DUSE_NCCL=off
ninja -C build marian_decoder marian_conv
# Compile and link bench.cpp with the commands that compile and link Marian's decoder.
cd build
object=src/CMakeFiles/marian_decoder.dir/command/marian_decoder.cpp.o
compile=$(ninja -t commands marian_decoder | grep -- "-c $folder/marian-dev/src/command/marian_decoder.cpp" | tail -n 1)
link=$(ninja -t commands marian_decoder | tail -n 1)
compile=${compile//$folder\/marian-dev\/src\/command\/marian_decoder.cpp/$here\/bench.cpp}
eval "${compile//$object/bench.o}"
link=${link//$object/bench.o}
eval "${link/-o marian-decoder/-o marian-bench}"
