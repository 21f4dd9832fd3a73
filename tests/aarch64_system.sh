# A 64-bit Arm Linux for programs in qemu, for scripts that are run in the repository's root and source this file:
# Debian's C library and Python, with packages of the index. Nothing of it is the machine's; it lies in
# build/aarch64-debian and build/aarch64-site.
arm_root=$PWD/build/aarch64-debian
arm_site=$PWD/build/aarch64-site
export QEMU_LD_PREFIX=$arm_root  # where programs in qemu look first

# arm_system: fetches Debian's packages, which takes a minute, once.
arm_system() {
  if [ ! -x "$arm_root/usr/bin/python3.11" ]; then
    mmdebstrap --quiet --architectures=arm64 --variant=extract --include=python3,libstdc++6 bookworm "$arm_root"
    mkdir -p "$arm_root/proc"
  fi
  # ONNX Runtime reads it, and would see the host's.
  printf '%s\n' 'processor : 0' 'BogoMIPS : 50.00' 'Features : fp asimd' 'CPU implementer : 0x41' \
    'CPU architecture: 8' 'CPU variant : 0x3' 'CPU part : 0xd0c' 'CPU revision : 1' >"$arm_root/proc/cpuinfo"
}

# arm_install WHEEL: a wheel of this project for aarch64 and what it needs on the CPU, in $arm_site; $arm_ort is ONNX
# Runtime's library.
arm_install() {
  rm -rf "$arm_site"
  local platform platforms=()
  for platform in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014; do
    platforms+=(--platform "${platform}_aarch64")
  done
  "${PYTHON:-python3}" -m pip install --quiet --target "$arm_site" "${platforms[@]}" --python-version 3.11 \
    --only-binary=:all: "$1[cpu]"
  arm_ort=$(echo "$arm_site"/onnxruntime/capi/libonnxruntime.so.*)
}

# arm_python ARGUMENT...
arm_python() { PYTHONPATH=$arm_site qemu-aarch64-static "$arm_root/usr/bin/python3.11" -s "$@"; }
