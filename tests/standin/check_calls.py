#!/usr/bin/env python3
"""check_calls.py [NCCL_INCLUDE...]: are the calls that Berth declares those of CUDA's and NCCL's headers?

It compares lib/backend/cuda_calls.def, nccl_calls.def and tests/standin/cuda_calls.def with cuda.h, with
cudaTypedefs.h (the versions) and with each nccl.h: the number of arguments, and of each whether it is a
pointer, an integer or a struct, and its size.  Without headers it says so, and exits with 0.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

CUDA = ["/usr/local/cuda/include", "/usr/include", *sorted(glob.glob("/usr/local/cuda-*/include"))]
NCCL = ["/usr/include", "/usr/local/cuda/include", *glob.glob("build/nccl*/include")]

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
CONSTANTS = """
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
"""


def calls(path):
    """[(name, version or result, arguments)] of a table of CALL()"""
    text = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.DOTALL)
    for a, b, arguments in re.findall(r"^CALL\((.*?), (\w+), \((.*)\)\)$", text, re.MULTILINE):
        yield (a, b, arguments) if b.isdigit() else (b, a, arguments)


def compiles(lines, includes):
    """What the compiler says against LINES."""
    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/calls.cc", "w").write("\n".join(lines))
        command = ["g++", "-std=c++17", "-fsyntax-only", "-D__CUDA_RUNTIME_H__"]
        done = subprocess.run([*command, *(f"-isystem{i}" for i in includes), f"{folder}/calls.cc"],
                              capture_output=True, text=True)
    return done.stderr[:2000] if done.returncode else ""


def with_header(folders, header):
    return [f for f in folders if os.path.exists(f"{f}/{header}")]


def check_cuda(include):
    lines = ["#include <cuda.h>", "#include <cudaTypedefs.h>", "#include <cstdint>", "#include <cstddef>",
             ALIKE]
    n = 0
    for path in ("lib/backend/cuda_calls.def", "tests/standin/cuda_calls.def"):
        for name, version, arguments in calls(path):
            ours = f"int (*)({arguments})"
            lines.append(f'static_assert(alike<{ours}, decltype(&{name})>::v, "{name} is another");')
            lines.append(f'static_assert(alike<{ours}, PFN_{name}_v{version}>::v, "{name} of {version}");')
            n += 1
    return n, compiles(lines, [include])


def check_nccl(include, cuda):
    lines = ["#include <cuda.h>", "typedef CUstream cudaStream_t;", "#include <nccl.h>", "#include <cstdint>",
             "#include <cstddef>", ALIKE, CONSTANTS]
    table = list(calls("lib/backend/nccl_calls.def"))
    for name, result, arguments in table:
        ours = f"{result} (*)({'' if arguments == 'void' else arguments})"
        lines.append(f'static_assert(alike<{ours}, decltype(&{name})>::v, "{name} is another");')
    return len(table), compiles(lines, [include, cuda])


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/../..")
    cuda = with_header(CUDA, "cudaTypedefs.h")
    nccl = with_header(sys.argv[1:] or NCCL, "nccl.h")
    wrong = ""
    if not cuda:
        print("check_calls.py: no cuda.h here")
        return 0
    n, said = check_cuda(cuda[0])
    print(f"{cuda[0]}: {n} calls of CUDA")
    wrong += said
    for include in nccl:
        n, said = check_nccl(include, cuda[0])
        print(f"{include}: {n} calls of NCCL")
        wrong += said
    if not nccl:
        print("check_calls.py: no nccl.h here")
    print(wrong, end="")
    return 1 if wrong else 0


sys.exit(main())
