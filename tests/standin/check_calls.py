#!/usr/bin/env python3
"""check_calls.py [INCLUDE...]: are the calls that Berth declares those of CUDA's and NCCL's headers?

It compares lib/backend/cuda_calls.def, nccl_calls.def and tests/standin/cuda_calls.def with each cuda.h and
its cudaTypedefs.h (the versions), and with each nccl.h: the number of arguments, and of each whether it is a
pointer, an integer or a struct, and its size.  The headers are those of the folders INCLUDE, or of this
machine and of the wheels that tests/wheels.py has unpacked.  It prints a line for each header that it has
compared, with the version.  Without headers it says so, and exits with 0.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

FOLDERS = ["/usr/include", "/usr/local/cuda*/include", "build/wheels/*/include"]

# Two types of functions are alike if they have as many arguments, each of the same class and size.
ALIKE = """
template <typename T> struct of { static constexpr int v = (__is_class(T) ? 3000 : 1000) + sizeof(T); };
template <typename T> struct of<T *> { static constexpr int v = 2000; };
template <typename F, typename G> struct alike { static constexpr bool v = false; };
template <typename R, typename... A, typename S, typename... B> struct alike<R (*)(A...), S (*)(B...)> {
	static constexpr bool compare() {
		const int a[] = { of<R>::v, of<A>::v... }, b[] = { of<S>::v, of<B>::v... };
		bool same = sizeof a == sizeof b;
		for (unsigned i = 0; same && i < sizeof a / sizeof *a; i++)
			same = a[i] == b[i];
		return same;
	}
	static constexpr bool v = compare();
};
struct nccl_id { char bytes[128]; };
struct nccl_config {
	size_t size; unsigned magic, version; int blocking, cga, min_ctas, max_ctas; const char *net; int split;
};
"""
CUDA_CONSTANTS = """
static_assert(CUDA_ERROR_NOT_READY == 600, "results");
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == 75, "attributes of a device");
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == 76, "attributes of a device");
static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == 2 && CU_POINTER_ATTRIBUTE_IS_MANAGED == 8, "of a pointer");
static_assert(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == 9 && CU_MEMORYTYPE_DEVICE == 2, "of a pointer");
static_assert(CU_EVENT_DISABLE_TIMING == 2 && CU_STREAM_NON_BLOCKING == 1, "flags");
static_assert(CU_MEMHOSTALLOC_PORTABLE == 1 && CU_STREAM_CAPTURE_MODE_RELAXED == 2, "flags");
"""
NCCL_CONSTANTS = """
static_assert(ncclUint8 == 1 && ncclInt8 == 0 && ncclInt32 == 2 && ncclUint32 == 3, "types");
static_assert(ncclInt64 == 4 && ncclUint64 == 5, "types");
static_assert(ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9, "types");
static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4, "operators");
static_assert(ncclInvalidUsage == 5 && ncclRemoteError == 6 && ncclInProgress == 7, "results");
static_assert(sizeof(ncclUniqueId) == sizeof(nccl_id), "the id");
static_assert(sizeof(ncclConfig_t) >= sizeof(nccl_config), "the configuration");
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(nccl_config, blocking), "blocking");
static_assert(offsetof(ncclConfig_t, maxCTAs) == offsetof(nccl_config, max_ctas), "maxCTAs");
static_assert(offsetof(ncclConfig_t, netName) == offsetof(nccl_config, net), "netName");
static_assert(offsetof(ncclConfig_t, splitShare) == offsetof(nccl_config, split), "splitShare");
constexpr ncclConfig_t unset = NCCL_CONFIG_INITIALIZER;
static_assert(unset.magic == 0xcafebeef && unset.blocking == INT_MIN, "what is not set");
static_assert(unset.cgaClusterSize == INT_MIN && unset.minCTAs == INT_MIN, "what is not set");
static_assert(unset.maxCTAs == INT_MIN && !unset.netName && unset.splitShare == INT_MIN, "what is not set");
"""


def calls(path):
    """[(name, version or result, arguments)] of a table of CALL()"""
    text = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.DOTALL)
    for a, b, arguments in re.findall(r"^CALL\((.*?), (\w+), \((.*)\)\)$", text, re.MULTILINE):
        yield (a, b, arguments) if b.isdigit() else (b, a, arguments)


def compiles(lines, includes):
    """What the compiler says against LINES."""
    # nccl.h includes these, and uses nothing of them but two types and the macro.
    unused = [f"-D__CUDA_{name}__" for name in ("RUNTIME_H", "FP16_H", "BF16_H", "FP8_H", "BF16_TYPES_EXIST")]
    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/calls.cc", "w").write("\n".join(lines))
        # g++ does not find its own headers if that folder comes first.
        folders = [f"-isystem{i}" for i in includes if i != "/usr/include"]
        command = ["g++", "-std=c++17", "-fsyntax-only", *unused, *folders, f"{folder}/calls.cc"]
        done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr[:2000] if done.returncode else ""


def with_header(patterns, header):
    """The folders of PATTERNS that have HEADER, each once."""
    found = [f for pattern in patterns for f in glob.glob(f"{pattern}/{header}")]
    return sorted({os.path.realpath(os.path.dirname(f)) for f in found})


def number(header, name):
    return int(re.search(rf"^#define {name} +(\d+)", open(header).read(), re.MULTILINE)[1])


def cuda_version(include):
    version = number(f"{include}/cuda.h", "CUDA_VERSION")
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def nccl_version(include):
    return "NCCL " + ".".join(str(number(f"{include}/nccl.h", f"NCCL_{part}"))
                              for part in ("MAJOR", "MINOR", "PATCH"))


def check_cuda(include):
    lines = ["#include <cuda.h>", "#include <cudaTypedefs.h>", "#include <cstdint>", "#include <cstddef>",
             ALIKE, CUDA_CONSTANTS]
    n = 0
    for path in ("lib/backend/cuda_calls.def", "tests/standin/cuda_calls.def"):
        for name, version, arguments in calls(path):
            ours = f"int (*)({arguments})"
            lines.append(f'static_assert(alike<{ours}, decltype(&{name})>::v, "{name} is another");')
            lines.append(f'static_assert(alike<{ours}, PFN_{name}_v{version}>::v, "{name} of {version}");')
            n += 1
    return f"{cuda_version(include)}: {n} calls, of {include}", compiles(lines, [include])


def check_nccl(include, cuda):
    lines = ["#include <cuda.h>", "typedef CUstream cudaStream_t;", "typedef CUevent cudaEvent_t;",
             "#include <nccl.h>", "#include <climits>", "#include <cstdint>", "#include <cstddef>",
             ALIKE, NCCL_CONSTANTS]
    table = list(calls("lib/backend/nccl_calls.def"))
    for name, result, arguments in table:
        ours = f"{result} (*)({'' if arguments == 'void' else arguments})"
        lines.append(f'static_assert(alike<{ours}, decltype(&{name})>::v, "{name} is another");')
    return f"{nccl_version(include)}: {len(table)} calls, of {include}", compiles(lines, [include, cuda])


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/../..")
    cuda = with_header(sys.argv[1:] or FOLDERS, "cudaTypedefs.h")
    nccl = with_header(sys.argv[1:] or FOLDERS, "nccl.h")
    if not cuda or not nccl:
        print(f"check_calls.py: no {'nccl.h' if cuda else 'cuda.h'} here")
    checked = [check_cuda(include) for include in cuda]
    checked += [check_nccl(include, cuda[0]) for include in nccl if cuda]
    for compared, wrong in checked:
        print(compared, *wrong.splitlines(), sep="\n    ")
    return 1 if any(wrong for _, wrong in checked) else 0


sys.exit(main())
