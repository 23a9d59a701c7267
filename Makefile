# Berth.  `make` builds into build/.
#
#   make demo      installs what is missing, builds, and trains a network on this machine
#   make check     builds and runs all tests (SAN=1: under address and undefined sanitizers)
#   make check-aarch64          builds for aarch64 and runs the unit tests under qemu-user
#   make lint      the style, machine checked        make format   lays the sources out
#   make fuzz      a fuzzer per parser, FUZZ_S seconds each
#   make bench     times against the peers           make golden   rewrites expected plans
#   make soak      the long tests: every fault, size and moment, then 30 minutes of chaos
#   make install   PREFIX= DESTDIR=                  make uninstall

PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
FUZZ_S ?= 60
CC = gcc
OBJCOPY = objcopy
CFLAGS ?= -O2 -g -fstack-protector-strong -D_FORTIFY_SOURCE=2

ifeq ($(SAN),1)
BUILD := $(patsubst %/san,%,$(BUILD))/san
CFLAGS := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer
endif
export BUILD SAN

WARN = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2
DIALECT = -std=c11 -D_GNU_SOURCE -I. -I$(BUILD)
FLAGS = $(DIALECT) $(WARN) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d -MT $@
O = $(BUILD)/obj

# What each program is made of, without its main.
sources = $(filter-out $1/main.c,$(wildcard $1/*.c))
objects = $(patsubst %.c,$O/%.o,$(call sources,$1))
common := $(call objects,common)
launcher := $(call objects,launcher)
agent := $(call objects,agent)
lib := $(call objects,lib)

# Static where archives exist: a runner that links shared libraries starts later, and an
# agent that does can't be sent to a host with nothing installed.
archive = $(if $(filter /%,$(shell $(CC) -print-file-name=lib$1.a)),-l:lib$1.a,-l$1)
EVENT := $(call archive,event_core)
SODIUM := $(call archive,sodium)
HWLOC := $(call archive,hwloc)

# hwloc does not look at what malloc() returns: our copy calls what ends the program.
ifeq ($(HWLOC),-l:libhwloc.a)
HWLOC_ARCHIVE := $(BUILD)/lib/libhwloc.a
HWLOC := $(HWLOC_ARCHIVE)
endif

all: $(BUILD)/bin/runner $(BUILD)/bin/berth-agent

$(BUILD)/bin/runner: $O/launcher/main.o $(launcher) $(common)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(EVENT) $(SODIUM) -ldl -lpthread

$(BUILD)/bin/berth-agent: $O/agent/main.o $(agent) $(common) | $(HWLOC_ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(HWLOC) $(EVENT) $(SODIUM) -lm -ldl

$O/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(OF_LIB) -c -o $@ $<
# Vectors wider than the target's are passed between inlined functions only.
$O/lib/%.o: OF_LIB = -fPIC -fvisibility=hidden -Wno-psabi

$(BUILD)/lib/libhwloc.a: $(shell $(CC) -print-file-name=libhwloc.a) Makefile
	@mkdir -p $(@D)
	$(OBJCOPY) $(foreach f,malloc calloc realloc strdup,--redefine-sym $f=x$f) $< $@

# ---- tests ----

# tests/unit/test_X.c: check, linked with what both programs are made of; test_lib_X.c: with
# what the library is made of.
unit := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
$(BUILD)/tests/test_output: WRAP = -Wl,--wrap=clock_ms
lib_unit := $(filter $(BUILD)/tests/test_lib_%,$(unit))
$(filter-out $(lib_unit),$(unit)): $(BUILD)/tests/%: tests/unit/%.c $(launcher) $(agent) $(common) Makefile | $(HWLOC_ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes $(LDFLAGS) $(WRAP) -o $@ $(filter %.c %.o,$^) \
		-lcheck -lsubunit -lrt $(HWLOC) $(EVENT) $(SODIUM) -lm -ldl -lpthread

$(lib_unit): $(BUILD)/tests/%: tests/unit/%.c $(lib) Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes -Wno-psabi $(LDFLAGS) -o $@ $(filter %.c %.o,$^) \
		-lcheck -lsubunit -lrt $(SODIUM) -lm -ldl -lpthread

# tests/helpers/X.c: a program, with the agent's parts if it includes them; tests/helpers/libX.c:
# a shared library.
helper_sources := $(wildcard tests/helpers/*.c)
helper_libraries := $(patsubst tests/helpers/%.c,$(BUILD)/helpers/%.so,$(filter \
	tests/helpers/lib%,$(helper_sources)))
helper_programs := $(patsubst tests/helpers/%.c,$(BUILD)/helpers/%,$(filter-out \
	tests/helpers/lib%,$(helper_sources)))
helpers := $(helper_programs) $(helper_libraries)
helpers_of_parts := $(patsubst tests/helpers/%.c,$(BUILD)/helpers/%,$(if \
	$(helper_sources),$(shell grep -lE '"(agent|common)/' $(helper_sources))))
$(helpers_of_parts): $(agent) $(common)
helpers_of_launcher := $(patsubst tests/helpers/%.c,$(BUILD)/helpers/%,$(if \
	$(helper_sources),$(shell grep -l '"launcher/' $(helper_sources))))
$(helpers_of_launcher): $(launcher)
$(helper_programs): $(BUILD)/helpers/%: tests/helpers/%.c Makefile | $(HWLOC_ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes $(LDFLAGS) -o $@ $(filter %.c %.o,$^) \
		$(HWLOC) $(EVENT) $(SODIUM) -lm -ldl -lpthread
$(helper_libraries): $(BUILD)/helpers/%.so: tests/helpers/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -Wno-missing-prototypes -fPIC -shared $(LDFLAGS) -o $@ $<

test-programs: all $(unit) $(helpers)

unit: $(unit)
	@for t in $(unit); do $$t || exit 1; done

check:
	+@tests/run

check-aarch64: all
	@tests/deps aarch64
	+@tests/soak/aarch64.sh

# One machine's expected plans and placements, written anew from what the programs say.
golden: test-programs
	UPDATE=1 tests/run golden

# tests/fuzz/X.c: libFuzzer on one parser; what it found before is in tests/fuzz/corpus/X.
fuzzers := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/*.c))
FUZZ_FLAGS = $(DIALECT) -O1 -g -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=undefined -MMD -MP -MF $@.d -MT $@
$(BUILD)/fuzz/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	clang $(FUZZ_FLAGS) -c -o $@ $<
fuzzed := $(patsubst $O/%,$(BUILD)/fuzz/obj/%,$(launcher) $(agent) $(common))
$(BUILD)/fuzz/%: $(BUILD)/fuzz/obj/tests/fuzz/%.o $(fuzzed) | $(HWLOC_ARCHIVE)
	clang -fsanitize=fuzzer,address,undefined -o $@ $^ $(HWLOC) $(EVENT) $(SODIUM) -lm -ldl -lpthread
fuzz-programs: $(fuzzers)
fuzz: $(fuzzers)
	@for f in $(fuzzers); do tests/fuzz.sh $$f $(FUZZ_S) || exit 1; done
.PRECIOUS: $(BUILD)/fuzz/obj/%.o

# ---- the example ----

VENV = build/venv
venv: $(VENV)/installed
$(VENV)/installed: examples/requirements.txt
	@tests/deps demo
	@tests/venv.sh $(VENV) $<

demo:
	+@tests/demo.sh

# ---- style, speed ----

lint:
	@tests/deps build check lint
	+@tests/lint.sh
format:
	clang-format -i $(wildcard common/*.[ch] launcher/*.[ch] agent/*.[ch] lib/*.[ch] tests/*/*.[ch])

bench: all
	@tests/deps bench
	+@tests/bench/run.sh

soak: test-programs venv
	@tests/deps check
	+@tests/soak/run.sh

deps:
	@tests/deps build

# ---- install ----

pages := $(patsubst man/%.in,$(BUILD)/man/%,$(wildcard man/*.in)) $(wildcard man/*.[1-8])
completion := $(BUILD)/completion/runner
docs: $(pages) $(completion)

# The OPTIONS section and its like come from runner's own tables.
$(BUILD)/man/%: man/%.in man/splice.awk agent/env.c $(BUILD)/bin/runner
	@mkdir -p $(@D)
	awk -v runner=$(BUILD)/bin/runner -f man/splice.awk $< > $@.new
	mv $@.new $@
$(completion): $(BUILD)/bin/runner
	@mkdir -p $(@D)
	$(BUILD)/bin/runner --print=completion > $@.new
	mv $@.new $@

root = $(DESTDIR)$(PREFIX)
install: all docs
	install -d $(root)/bin $(root)/share/bash-completion/completions
	install $(BUILD)/bin/runner $(BUILD)/bin/berth-agent $(root)/bin
	install -m 644 $(completion) $(root)/share/bash-completion/completions/runner
	for p in $(pages); do \
		install -D -m 644 $$p $(root)/share/man/man$${p##*.}/$${p##*/} || exit 1; done
uninstall:
	rm -f $(root)/bin/runner $(root)/bin/berth-agent \
		$(root)/share/bash-completion/completions/runner
	for p in $(pages); do rm -f $(root)/share/man/man$${p##*.}/$${p##*/}; done

clean:
	rm -rf build

.PHONY: all unit test-programs check check-aarch64 golden fuzz fuzz-programs venv demo \
	lint format bench soak deps docs install uninstall clean
.DELETE_ON_ERROR:
-include $(shell find $O $(BUILD)/tests $(BUILD)/helpers $(BUILD)/fuzz -name '*.d' 2>/dev/null)
