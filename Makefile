# Berth.  `make` builds into build/.
#
#   make demo      installs what is missing, builds, and trains a network on this machine
#   make demo-torch             the same in PyTorch, which it downloads
#   make venv-tf   TensorFlow in build/venv-tf, which it downloads, for tests
#   make check     builds and runs the tests that a user runs
#   make check-all              builds and runs all tests (SAN=1: under address and undefined
#                  sanitizers; SAN=thread: the library, under the thread sanitizer)
#   make check-gpu the steps of NCCL's back end on the GPU of this machine
#   make gpu-pack  fills .gpu with what another machine needs for that: .gpu/run.sh
#   make check-aarch64          builds for aarch64 and runs the unit tests under qemu-user
#   make lint      the style, machine checked        make format   lays the sources out
#   make fuzz      a fuzzer per parser, FUZZ_S seconds each, with clang and its sanitizers
#   make bench     times against the peers           make golden   rewrites expected plans
#   make soak      the long tests: every fault, size and moment, then 30 minutes of chaos
#   make spank     srun --berth, Slurm's plugin      make install-spank
#   make install   PREFIX= DESTDIR=                  make uninstall

PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
FUZZ_S ?= 60
CC = gcc
CXX = g++
OBJCOPY = objcopy
CFLAGS ?= -O2 -g -D_FORTIFY_SOURCE=2

ifeq ($(SAN),1)
BUILD := $(patsubst %/san,%,$(BUILD))/san
CFLAGS := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer
endif
ifeq ($(SAN),thread)
BUILD := $(patsubst %/tsan,%,$(BUILD))/tsan
CFLAGS := -O1 -g -fsanitize=thread -Wno-tsan
endif
export BUILD SAN

WARN = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2
# A product is rounded before it is added, on every processor.
DIALECT = -std=c11 -D_GNU_SOURCE -ffp-contract=off -I. -I$(BUILD)
# After CFLAGS and LDFLAGS, so that those of a packager don't take these away.
HARDEN = -fPIE -fstack-protector-strong
HARDEN_LIBRARY = -Wl,-z,relro,-z,now
HARDEN_LINK = -pie $(HARDEN_LIBRARY)
FLAGS = $(DIALECT) $(WARN) $(CPPFLAGS) $(CFLAGS) $(HARDEN) -MMD -MP -MF $@.d -MT $@
O = $(BUILD)/obj

# What each program is made of, without its main: the files of a folder and of its rooms.
sources = $(filter-out $1/main.c,$(wildcard $1/*.c $1/*/*.c))
objects = $(patsubst %.c,$O/%.o,$(call sources,$1))
common := $(call objects,common)
launcher := $(call objects,launcher)
agent := $(call objects,agent)
ops := $(patsubst %.c,$O/%.o,$(wildcard lib/ops/*.c)) $O/lib/ops/tf_xla.cc.o
lib := $(filter-out $(ops),$(call objects,lib))
CXXFLAGS ?= $(if $(SAN),-O2 -g,$(CFLAGS))
LIBRARY_CXX := $(filter /%,$(shell $(CXX) -print-file-name=libstdc++.so 2> /dev/null))

# Static where archives exist: a runner that links shared libraries starts later, and an
# agent that does can't be sent to a host with nothing installed.
archive = $(if $(filter /%,$(shell $(CC) -print-file-name=lib$1.a)),-l:lib$1.a,-l$1)
EVENT := $(call archive,event_core)
SODIUM := $(call archive,sodium)
ZLIB := $(call archive,z)
# Of the agent in any case: a host that it is sent to may have no libsodium.
AGENT_SODIUM := $(call archive,sodium)
HWLOC := $(call archive,hwloc)

# hwloc does not look at what malloc() returns: our copy calls what ends the program.
ifeq ($(HWLOC),-l:libhwloc.a)
HWLOC_ARCHIVE := $(BUILD)/lib/libhwloc.a
HWLOC := $(HWLOC_ARCHIVE)
endif

version := $(shell awk '/define BERTH_VERSION_M|define BERTH_VERSION_PATCH/ { v = v s $$3; s = "." } \
	END { print v }' lib/berth.h)
# While the version is 0.x, each minor version has its own.
soname := libberth.so.$(word 1,$(subst ., ,$(version))).$(word 2,$(subst ., ,$(version)))
LIBBERTH := $(BUILD)/lib/libberth.so
LIBBERTH_TF := $(BUILD)/lib/libberth_tf.so
# As in an installation, so that one rule finds the package of both (common/package.h).
python := $(BUILD)/share/berth/python
library := $(LIBBERTH) $(BUILD)/include/berth.h $(BUILD)/lib/pkgconfig/berth.pc

examples := $(patsubst %.c,$(BUILD)/%,$(filter-out examples/mpi_hello.c,$(wildcard examples/*.c))) # mpicc builds that

all: $(BUILD)/bin/runner $(BUILD)/bin/berth-agent $(library) $(LIBBERTH_TF) $(python) $(BUILD)/bin/berth_bench $(examples)

$(BUILD)/bin/runner: $O/launcher/main.o $(launcher) $(common)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) $(HARDEN_LINK) -o $@ $^ $(EVENT) $(SODIUM) $(ZLIB) -ldl -lpthread

# libpmix, which it loads, takes its accept() before libc's (agent/pmi/pmix_accept.h).
EXPORT = -Wl,--export-dynamic-symbol=accept
$(BUILD)/bin/berth-agent: $O/agent/main.o $(agent) $(common) | $(HWLOC_ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) $(HARDEN_LINK) $(EXPORT) -o $@ $^ $(HWLOC) $(EVENT) $(AGENT_SODIUM) -lm -ldl -lpthread

$O/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(OF_LIB) -c -o $@ $<
# Vectors wider than the target's are passed between inlined functions only.
$O/launcher/job/warm.o: launcher/job/warm.py
$O/agent/ranks/stack.o: agent/ranks/sitecustomize.py
$O/lib/%.o: OF_LIB = -fPIC -fvisibility=hidden -Wno-psabi

# All that it takes from libsodium is inside and hidden.  It stays loaded: it has threads.
$(BUILD)/lib/$(soname): $(lib) lib/libberth.map Makefile
	@mkdir -p $(@D)
	$(if $(filter -lsodium,$(SODIUM)),@echo 'note: there is no libsodium.a: $@ needs libsodium.so')
	$(CC) $(CFLAGS) $(LDFLAGS) -shared $(HARDEN_LIBRARY) $(if $(SAN),,-Wl,-z,defs) -Wl,-soname,$(soname) -Wl,-z,nodelete \
		-Wl,--version-script=lib/libberth.map -Wl,--as-needed -o $@ $(lib) $(SODIUM) -lm -ldl -lpthread
$(LIBBERTH): $(BUILD)/lib/$(soname)
	ln -sf $(soname) $@
# TensorFlow's ops.  An empty library with the name of TensorFlow's gives an entry NEEDED, by which
# the loader finds the one that Python has loaded.
TF_STUB := $(BUILD)/lib/stub/libtensorflow_framework.so.2
$(TF_STUB): Makefile
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,$(@F) -o $@ -xc /dev/null
# XLA's part is C++.  Where that does not build, an empty object is in its place.
$O/lib/ops/tf_xla.cc.o: lib/ops/tf_xla.cc Makefile
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -D_GNU_SOURCE -D_GLIBCXX_USE_CXX11_ABI=1 -I. -Wall -Wextra $(CPPFLAGS) $(CXXFLAGS) -fPIC \
		-fvisibility=hidden -fno-exceptions -fno-rtti -fstack-protector-strong -MMD -MP -MF $@.d -MT $@ -c -o $@ $< || { \
		echo 'note: no C++: with TensorFlow, berth cannot be used in functions of jit_compile=True'; \
		$(CC) -c -o $@ -xc /dev/null; }
$(LIBBERTH_TF): $(ops) $(TF_STUB) lib/ops/libberth_tf.map $(LIBBERTH) Makefile
	$(CC) $(CFLAGS) $(LDFLAGS) -shared $(HARDEN_LIBRARY) -Wl,-soname,$(@F) -Wl,-z,nodelete \
		-Wl,--version-script=lib/ops/libberth_tf.map -Wl,-rpath,'$$ORIGIN' -o $@ $(ops) \
		-Wl,--no-as-needed $(TF_STUB) -L$(BUILD)/lib -lberth -Wl,--as-needed $(LIBRARY_CXX) -lpthread -ldl
$(BUILD)/include/berth.h: lib/berth.h
	@mkdir -p $(@D)
	install -m 644 $< $@
# Finds library and header beside it; installed, it names PREFIX.
$(BUILD)/lib/pkgconfig/berth.pc: lib/berth.pc.in lib/berth.h Makefile
	@mkdir -p $(@D)
	sed 's/@version@/$(version)/' $< > $@

$(python):
	@mkdir -p $(@D)
	ln -srfn lib/python $@

$(BUILD)/lib/libhwloc.a: $(shell $(CC) -print-file-name=libhwloc.a) Makefile
	@mkdir -p $(@D)
	$(OBJCOPY) $(foreach f,malloc calloc realloc strdup,--redefine-sym $f=x$f) $< $@

# examples/X.c: a program, as a user of the library builds it; so is berth_bench.
$(BUILD)/bin/berth_bench: bench/berth_bench.c $(library) Makefile
$(examples): $(BUILD)/%: %.c $(library) Makefile
$(BUILD)/bin/berth_bench $(examples):
	@mkdir -p $(@D)
	$(CC) $(WARN) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d -MT $@ -I$(BUILD)/include $(LDFLAGS) -o $@ $< \
		-L$(BUILD)/lib -lberth -Wl,-rpath,'$$ORIGIN/../lib' -lm

# ---- Slurm's plugin: `make all` does not need slurm/spank.h ----

spank := $(patsubst %.c,$O/%.o,$(wildcard contrib/slurm/*.c))
# What of it needs nothing of Slurm.
spank_pure := $(patsubst %,$O/contrib/slurm/%.o,answer ask gather)
SPANK := $(BUILD)/lib/berth_spank.so
$O/contrib/slurm/%.o: OF_LIB = -fPIC -fvisibility=hidden
# Slurm's own functions are in the program that loads it.
$(SPANK): $(spank) Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared $(HARDEN_LIBRARY) -Wl,--as-needed -o $@ $(spank)
spank: $(SPANK)

# ---- tests ----

# A program of the tests takes what it needs of these: what both programs are made of, and what
# the library is made of.  The copy of hwloc calls common/str.c.
PROGRAMS := $O/programs.a
LIBRARY := $O/library.a
$(PROGRAMS): $(launcher) $(agent) $(common) $(spank_pure)
$(LIBRARY): $(lib)
$(PROGRAMS) $(LIBRARY):
	@rm -f $@
	$(AR) rcs --thin $@ $^
taken = $(filter %.c %.o,$^) -Wl,--start-group $(filter %.a,$^) $(HWLOC) -Wl,--end-group

# tests/unit/test_ROOM_X.c: check, of what both programs are made of, or of the library.
unit := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
$(BUILD)/tests/test_output_output: WRAP = -Wl,--wrap=clock_ms
$(BUILD)/tests/test_job_walk $(BUILD)/tests/test_job_endings $(BUILD)/tests/test_job_exchange $(BUILD)/tests/test_job_fence $(BUILD)/tests/test_job_hang $(BUILD)/tests/test_job_mpi $(BUILD)/tests/test_job_names $(BUILD)/tests/test_job_rank_status: WRAP = -Wl,--wrap=clock_ms -Wl,--wrap=clock_ns -Wl,--wrap=raise
$(BUILD)/tests/test_job_exchange: WRAP += -Wl,--wrap=loop_after_ms
$(BUILD)/tests/test_boot_pmix_abi: CPPFLAGS += $(addprefix -isystem ,$(wildcard /usr/lib/*/pmix2/include))
$(BUILD)/tests/test_pmi_pmix_accept: WRAP = -Wl,--wrap=socket -Wl,--wrap=recvfrom -Wl,--wrap=fopen $(EXPORT)
$(BUILD)/tests/test_pmi_pmix $(BUILD)/tests/test_pmi_pmix_collect $(BUILD)/tests/test_pmi_pmix_ranks: WRAP = -Wl,--wrap=pmix_process_start -Wl,--wrap=pmix_process_end -Wl,--wrap=loop_after_ms
$(BUILD)/tests/test_transport_callback: WRAP = -Wl,--wrap=loop_after_ms -Wl,--wrap=getifaddrs -Wl,--wrap=freeifaddrs
$(BUILD)/tests/test_transport_callback_flood: WRAP = -Wl,--wrap=loop_after_ms -Wl,--wrap=accept4
$(BUILD)/tests/test_pmi_pmix_accept: | $(BUILD)/helpers/libaccept.so $(BUILD)/bin/berth-agent
$(BUILD)/tests/test_boot_pmix: WRAP = -Wl,--wrap=dlopen -rdynamic
$(BUILD)/tests/test_backend_cuda: WRAP = -Wl,--wrap=dlopen
$(BUILD)/tests/test_agent_call: WRAP = -Wl,--wrap=munge_unwrap
$(BUILD)/tests/test_common_munge: WRAP = -Wl,--wrap=dlopen
# With what it takes of Slurm's headers: those are not there where Slurm is not.
$(BUILD)/tests/test_slurm_berth_spank: WRAP = -Wl,--wrap=ask -Wl,--wrap=ask_distrust
$(BUILD)/tests/test_slurm_berth_spank: CPPFLAGS += -isystem tests/standin
$(BUILD)/tests/test_slurm_berth_spank: contrib/slurm/berth_spank.c
$(BUILD)/tests/test_common_munge: | $(BUILD)/helpers/libmunge.so
lib_rooms := $(notdir $(patsubst %/,%,$(sort $(dir $(wildcard lib/*/*.c)))))
# In a TensorFlow that is a file.
$(BUILD)/tests/test_ops_tf_run: tests/standin/tensorflow.c $(filter-out %.cc.o,$(ops))
lib_unit := $(filter $(foreach r,$(lib_rooms),$(BUILD)/tests/test_$r $(BUILD)/tests/test_$(r)_%),$(unit))
$(filter-out $(lib_unit),$(unit)): $(BUILD)/tests/%: tests/unit/%.c $(PROGRAMS) Makefile | $(HWLOC_ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes $(LDFLAGS) $(WRAP) -o $@ $(taken) \
		-lcheck -lsubunit -lrt $(EVENT) $(SODIUM) $(ZLIB) -lm -ldl -lpthread

$(lib_unit): $(BUILD)/tests/%: tests/unit/%.c $(LIBRARY) Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes -Wno-psabi $(LDFLAGS) $(WRAP) -o $@ $(filter %.c %.o,$^) $(filter %.a,$^) \
		-lcheck -lsubunit -lrt $(SODIUM) -lm -ldl -lpthread

# tests/helpers/X.c: a program, with the agent's parts if it includes them; tests/helpers/libX.c:
# a shared library.
helper_sources := $(wildcard tests/helpers/*.c)
helper_libraries := $(patsubst tests/helpers/%.c,$(BUILD)/helpers/%.so,$(filter \
	tests/helpers/lib%,$(helper_sources)))
helper_programs := $(patsubst tests/helpers/%.c,$(BUILD)/helpers/%,$(filter-out \
	tests/helpers/lib%,$(helper_sources)))
helpers := $(helper_programs) $(helper_libraries)
of_helpers = $(patsubst tests/%.c,$(BUILD)/%,$(if $(helper_sources),$(shell grep -lE '"$1/' $(helper_sources))))
$(call of_helpers,(launcher|agent|common)): $(PROGRAMS)
$(call of_helpers,lib): $(LIBRARY)
$(BUILD)/helpers/changes: WRAP = -Wl,--wrap=clock_gettime
$(BUILD)/helpers/real_nccl: WRAP = -Wl,--wrap=dlopen -Wl,--export-dynamic-symbol=cuGetProcAddress_v2
# A stand-in of a GPU: libcuda and libnccl, for programs that take the library's objects, which
# load them as they would the real ones.
standin := $(BUILD)/standin/libcuda.so.1 $(BUILD)/standin/libnccl.so.2
$O/tests/standin/%.o: OF_LIB = -Wno-psabi -fPIC
$(BUILD)/standin/libcuda.so.1: $O/tests/standin/cuda.o $O/tests/standin/counts.o
$(BUILD)/standin/libnccl.so.2: $O/tests/standin/nccl.o $(BUILD)/standin/libcuda.so.1
$(standin): $(filter $O/lib/base/kern%,$(lib)) Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $(filter %.o %.1,$^) -lm -lrt -lpthread
of_standin := $(call of_helpers,tests/standin)
$(of_standin): $(standin) $O/tests/standin/checked.o $(LIBRARY)
$(of_standin): WRAP = -Wl,--push-state,--no-as-needed $(standin) -Wl,--pop-state,-rpath,'$$ORIGIN/../standin'
# The steps of check-gpu: the back end on what libcuda and libnccl the machine has.
gpu_programs := $(BUILD)/gpu/gpu $(BUILD)/gpu/programs
$(BUILD)/gpu/gpu: tests/gpu/gpu.c $(LIBRARY) Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes $(LDFLAGS) -o $@ $(taken) $(SODIUM) -lm -ldl -lpthread
# Random programs, with that GPU in the place of the stand-in.
$(BUILD)/gpu/programs: tests/helpers/programs.c tests/gpu/there.c $(LIBRARY) Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes -Wno-psabi $(LDFLAGS) -o $@ $(taken) $(SODIUM) -lm -ldl -lpthread
$(helper_programs): $(BUILD)/helpers/%: tests/helpers/%.c Makefile | $(HWLOC_ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes $(LDFLAGS) $(WRAP) -o $@ $(taken) \
		$(EVENT) $(SODIUM) $(ZLIB) -lm -ldl -lpthread
$(helper_libraries): $(BUILD)/helpers/%.so: tests/helpers/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes -fPIC -shared $(LDFLAGS) -o $@ $<

# tests/fuzz/fuzz_X.c: a fuzzer; by gcc, to replay its corpus.
fuzz_names := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
replays := $(addprefix $(BUILD)/replay/,$(fuzz_names))
$(replays): $(BUILD)/replay/%: tests/fuzz/%.c tests/fuzz/replay.c $(PROGRAMS) $(LIBRARY) Makefile | $(HWLOC_ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -w $(LDFLAGS) $(WRAP) -o $@ $(taken) $(EVENT) $(SODIUM) $(ZLIB) -lm -ldl -lpthread

ifeq ($(SAN),thread)
# Its programs are started by a runner without it.
test-programs: $(addprefix $(BUILD)/helpers/,collectives programs devices worlds) $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(shell \
	grep -l pthread_create $(patsubst $(BUILD)/tests/%,tests/unit/%.c,$(lib_unit))))
	+$(MAKE) SAN= BUILD=$(patsubst %/tsan,%,$(BUILD)) all
else
test-programs: all $(unit) $(helpers) $(replays) $(gpu_programs)
endif

unit: $(unit)
	@for t in $(unit); do $$t || exit 1; done

check:
	+@tests/run
check-all:
	+@tests/run --all

# The kernel of lib/backend/move.cu, anew, by nvcc.
ptx:
	@lib/backend/move_ptx.sh

check-gpu: $(gpu_programs)
	@tests/gpu/run.sh

# What a machine with a GPU needs for it, without network or compiler.  Of the oldest NCCL, if `make
# wheels` has brought it, what a chip of compute capability 9.0 needs.
oldest_nccl = build/wheels/nvidia-nccl-cu12-2.18.1/lib/libnccl.so.2
gpu-pack: $(gpu_programs) all
	@rm -rf .gpu && mkdir -p .gpu/bin .gpu/lib
	@cp $(gpu_programs) tests/gpu/run.sh tests/gpu/torch_steps.py .gpu/
	@oldest=$(oldest_nccl); [ ! -f "$$oldest" ] || { \
		tests/gpu/one_chip.py "$$oldest" .gpu/oldest 90 && xz -T0 .gpu/oldest; }
	@cp $(BUILD)/bin/runner $(BUILD)/bin/berth-agent .gpu/bin/
	@cp $(BUILD)/lib/$(soname) .gpu/lib/
	@cp -rL lib/python .gpu/python && find .gpu -name __pycache__ -prune -exec rm -r {} +
	@strip -g .gpu/gpu .gpu/programs .gpu/bin/* .gpu/lib/*
	@du -sh .gpu

check-aarch64: all
	@tests/deps aarch64
	+@tests/soak/aarch64.sh

# One machine's expected plans and placements, written anew from what the programs say.
golden: test-programs
	UPDATE=1 tests/run golden

# By clang, with libFuzzer and sanitizers; what that found before is in tests/fuzz/corpus/X.
fuzzers := $(addprefix $(BUILD)/fuzz/,$(fuzz_names))
FUZZ_FLAGS = $(DIALECT) -O1 -g -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=undefined -MMD -MP -MF $@.d -MT $@
$(BUILD)/fuzz/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	clang $(FUZZ_FLAGS) -c -o $@ $<
# clang 14 has no _Float16 on x86: of lib/ only what needs none.
fuzzed := $(patsubst $O/%,$(BUILD)/fuzz/obj/%,$(launcher) $(agent) $(common) $(spank_pure)) \
	$(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(wildcard lib/net/*.c lib/p2p/*.c lib/base/nh*.c) lib/base/bell.c \
	lib/base/descriptor.c lib/base/fiber.c lib/base/members.c lib/base/sleep.c lib/base/thread.c lib/base/wait.c lib/core/cores.c)
$(BUILD)/fuzz/obj/all.a: $(fuzzed)
	@rm -f $@
	$(AR) rcs --thin $@ $^
$(BUILD)/fuzz/%: $(BUILD)/fuzz/obj/tests/fuzz/%.o $(BUILD)/fuzz/obj/all.a | $(HWLOC_ARCHIVE)
	clang -fsanitize=fuzzer,address,undefined $(WRAP) -o $@ $(taken) $(EVENT) $(SODIUM) $(ZLIB) -lm -ldl -lpthread
$(BUILD)/fuzz/fuzz_call $(BUILD)/replay/fuzz_call: WRAP = -Wl,--wrap=munge_unwrap
$(BUILD)/fuzz/fuzz_pmix $(BUILD)/replay/fuzz_pmix: WRAP = -Wl,--wrap=pmix_process_start -Wl,--wrap=pmix_process_end \
	-Wl,--wrap=pmix_folders_make -Wl,--wrap=pmix_folders_remove -Wl,--wrap=loop_after_ms
fuzz-programs: $(fuzzers)
fuzz: $(fuzzers)
	@for f in $(fuzzers); do tests/fuzz.sh $$f $(FUZZ_S) || exit 1; done
.PRECIOUS: $(BUILD)/fuzz/obj/%.o

# ---- the example ----

VENV = build/venv
venv: $(VENV)/installed
$(VENV)/installed: tests/requirements.txt examples/requirements.txt
	@tests/deps demo
	@tests/venv.sh $(VENV) $<

# JAX for tests/cli/jax.bats: `make check` does without it.
venv-jax: build/venv-jax/installed
build/venv-jax/installed: tests/jax.txt
	@tests/deps demo
	@tests/venv.sh build/venv-jax $<

# TensorFlow for cli/tensorflow: 1.5 GB.
venv-tf: build/venv-tf/installed
build/venv-tf/installed: tests/tensorflow.txt
	@tests/deps demo
	@tests/venv.sh build/venv-tf $<

demo:
	+@tests/demo.sh
demo-torch:
	+@tests/demo.sh torch

# ---- style, speed ----

lint:
	@tests/deps build check lint
	+@tests/lint.sh
format:
	clang-format -i $(wildcard lib/*/*.cc common/*.[ch] contrib/*/*.[ch] launcher/*.[ch] agent/*.[ch] lib/*.[ch] lib/*/*.[ch] launcher/*/*.[ch] agent/*/*.[ch] tests/*/*.[ch] tests/*/*/*.[ch] examples/*.c bench/*.c)

bench: all
	@tests/deps bench
	+@tests/bench/run.sh

# TensorFlow's part alone, 10 minutes; tests/bench/tensorflow.sh says how Horovod takes part.
bench-tf: all
	@tests/bench/tensorflow.sh

# tests/soak/trainers.sh says so if they are not there.
trainers: build/trainers/installed
build/trainers/installed: tests/trainers.txt
	@tests/deps demo
	@tests/venv.sh build/trainers $<

# Headers and libraries of several versions of CUDA and NCCL, for tests/cli/wheels.bats: 1.3 GB to
# download, 1.7 GB in build/.
wheels: venv
	@$(VENV)/bin/python3 tests/wheels.py build/wheels tests/wheels.txt

soak: test-programs venv
	@tests/deps check
	-+@$(MAKE) -s trainers
	+@tests/soak/run.sh

deps:
	@tests/deps build

# ---- install ----

reference := $(if $(shell command -v python3 2> /dev/null),$(addprefix $(BUILD)/man/berth.,torch.3 tensorflow.3))
pages := $(patsubst man/%.in,$(BUILD)/man/%,$(wildcard man/*.in)) $(wildcard man/*.[1-8]) $(reference)
# Other names of a page.
named := $(shell awk '/^.Nm berth_/ && names[FILENAME]++ { print $$2 }' man/berth_*.3)
# bash, zsh and fish look for these names.
completions := $(addprefix $(BUILD)/completion/,runner _runner runner.fish)
docs: $(pages) $(completions)

# The OPTIONS section and its like come from runner's own tables.
$(BUILD)/man/%: man/%.in man/splice.awk common/given.def lib/core/params.def $(BUILD)/bin/runner
	@mkdir -p $(@D)
	awk -v runner=$(BUILD)/bin/runner -f man/splice.awk $< > $@.new
	mv $@.new $@
# The docstrings of the Python package; no pages where there is no Python.
$(BUILD)/man/berth.%.3: man/reference.py $(wildcard lib/python/berth/*.py lib/python/berth/*/*.py lib/python/berth/*/*/*.py)
	@mkdir -p $(@D)
	python3 $< $* > $@.new
	mv $@.new $@
$(BUILD)/completion/runner: SHELL_OF = bash
$(BUILD)/completion/_runner: SHELL_OF = zsh
$(BUILD)/completion/runner.fish: SHELL_OF = fish
$(completions): man/completion.awk $(BUILD)/bin/runner
	@mkdir -p $(@D)
	$(BUILD)/bin/runner --print=tables | awk -v shell=$(SHELL_OF) -f man/completion.awk > $@.new
	mv $@.new $@

in_bash = share/bash-completion/completions/runner
in_zsh = share/zsh/site-functions/_runner
in_fish = share/fish/vendor_completions.d/runner.fish
in_python = share/berth/python
# README, and what it names.
in_doc = share/doc/berth
documents := README CHANGES LICENSE $(shell find contrib/batch examples -type f ! -path '*/__pycache__/*')
# Directories that an installation made, with those above them; those of a system stay.
made = share/berth $(if $(DESTDIR)$(filter-out /usr /usr/local,$(PREFIX)),bin include share/doc \
	$(dir $(in_bash) $(in_zsh) $(in_fish)) $(sort $(patsubst .%,share/man/man%,$(suffix $(pages)))))
packages := $(shell cd lib/python && find berth as_horovod -name '*.py' -o -name py.typed)
root = $(DESTDIR)$(PREFIX)
LIBDIR ?= $(PREFIX)/lib
libroot = $(DESTDIR)$(LIBDIR)
install: all docs
	install -d $(root)/bin $(root)/include $(libroot)/pkgconfig
	install $(BUILD)/bin/runner $(BUILD)/bin/berth-agent $(BUILD)/bin/berth_bench $(root)/bin
	install -D -m 644 $(BUILD)/completion/runner $(root)/$(in_bash)
	install -D -m 644 $(BUILD)/completion/_runner $(root)/$(in_zsh)
	install -D -m 644 $(BUILD)/completion/runner.fish $(root)/$(in_fish)
	install -m 644 lib/berth.h $(root)/include
	install -m 755 $(BUILD)/lib/$(soname) $(libroot)/libberth.so.$(version)
	ln -sf libberth.so.$(version) $(libroot)/$(soname)
	ln -sf $(soname) $(libroot)/libberth.so
	install -m 755 $(LIBBERTH_TF) $(libroot)
	sed 's,^prefix=.*,prefix=$(PREFIX),; s,^libdir=.*,libdir=$(LIBDIR),' \
		$(BUILD)/lib/pkgconfig/berth.pc | install -m 644 /dev/stdin $(libroot)/pkgconfig/berth.pc
	for p in $(packages); do \
		install -D -m 644 lib/python/$$p $(root)/$(in_python)/$$p || exit 1; done
	ln -srf $(libroot)/$(soname) $(libroot)/libberth_tf.so $(root)/$(in_python)/berth
	for d in $(documents); do install -D -m 644 $$d $(root)/$(in_doc)/$$d || exit 1; done
	for p in $(pages); do \
		install -D -m 644 $$p $(root)/share/man/man$${p##*.}/$${p##*/} || exit 1; done
	for n in $(named); do \
		p=$$(grep -lE "^.Nm $$n( ,)?$$" man/*.3) && ln -sf $${p##*/} $(root)/share/man/man3/$$n.3 || exit 1; done
	$(if $(DESTDIR),,-ldconfig 2> /dev/null)
install-spank: all spank
	install -d $(root)/bin $(libroot)/slurm
	install $(BUILD)/bin/berth-agent $(root)/bin
	install -m 644 $(SPANK) $(libroot)/slurm
uninstall:
	rm -f $(root)/bin/runner $(root)/bin/berth-agent $(root)/bin/berth_bench \
		$(addprefix $(root)/,$(in_bash) $(in_zsh) $(in_fish)) $(root)/include/berth.h \
		$(libroot)/slurm/berth_spank.so $(libroot)/libberth.so $(libroot)/libberth.so.* $(libroot)/libberth_tf.so $(libroot)/pkgconfig/berth.pc
	rm -rf $(root)/$(in_python) $(root)/$(in_doc)
	for p in $(pages) $(named:=.3); do rm -f $(root)/share/man/man$${p##*.}/$${p##*/}; done
	@cd $(root) && rmdir -p --ignore-fail-on-non-empty $(made) 2> /dev/null || true
	@rmdir --ignore-fail-on-non-empty $(libroot)/slurm $(libroot)/pkgconfig \
		$(if $(word 3,$(made)),$(libroot)) 2> /dev/null || true

clean:
	rm -rf build

.PHONY: all spank install-spank unit test-programs check check-all check-gpu gpu-pack ptx check-aarch64 golden fuzz fuzz-programs venv venv-jax venv-tf demo demo-torch trainers wheels \
	lint format bench bench-tf soak deps docs install uninstall clean
.DELETE_ON_ERROR:
-include $(shell find $O $(BUILD)/examples $(BUILD)/tests $(BUILD)/helpers $(BUILD)/fuzz $(BUILD)/replay -name '*.d' 2>/dev/null)
