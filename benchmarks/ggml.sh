#!/usr/bin/env bash
# Builds llama.cpp's kernels for this processor, as libraries that benchmarks/ggml.py loads: of the sources that
# requirements-ggml.txt pins only ggml and its CPU backend, as llama.cpp's own build configures them. Two cores take some
# minutes.
# Usage: benchmarks/ggml.sh FOLDER PEERS    FOLDER gets lib/; PEERS is the environment whose pip and cmake are used.
set -euo pipefail
folder=$1 peers=$2
rm -rf "$folder" && mkdir -p "$folder/sources"
"$peers/bin/pip" download --disable-pip-version-check -q --no-deps --no-binary :all: -d "$folder" \
  -r "$(dirname "$0")/requirements-ggml.txt"
archive=$(ls "$folder"/*.tar.gz)
tar -xzf "$archive" -C "$folder/sources" --strip-components 3 "$(basename "$archive" .tar.gz)/vendor/llama.cpp/ggml"
# As part of a project: by itself ggml looks for files that are not among those sources. GCC 12 takes 8 of the 64 bytes that
# _tile_loadconfig reads for all of them, leaves the others unwritten, and the first product by AMX was an illegal
# instruction.
cat > "$folder/sources/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(kernels C CXX)
add_subdirectory(ggml)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set_source_files_properties(ggml/src/ggml-cpu/amx/mmq.cpp TARGET_DIRECTORY ggml-cpu
    PROPERTIES COMPILE_OPTIONS "-fno-dse;-fno-tree-dse")
endif()
END
"$peers/bin/cmake" -S "$folder/sources" -B "$folder/build" -G "Unix Makefiles" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$(cd "$folder" && pwd)/lib" -DBUILD_SHARED_LIBS=ON \
  -DGGML_NATIVE=ON -DGGML_LLAMAFILE=ON -DGGML_METAL=OFF -DGGML_BLAS=OFF
"$peers/bin/cmake" --build "$folder/build" --target ggml \
  --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}"
rm -rf "$archive" "$folder/sources" "$folder/build"
