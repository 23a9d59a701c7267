# Berth.  `make` builds into build/; `make demo`, `make check`, `make lint`, `make bench`, `make install`.

PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
CC = gcc

WARN = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2
OPT ?= -O2 -g
ifeq ($(SAN),1)
BUILD := build/san
OPT := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
CFLAGS = -std=c11 -D_GNU_SOURCE $(WARN) $(OPT) -MMD -MP -I. -I$(BUILD)
O = $(BUILD)/obj

common = $(patsubst %.c,$(O)/%.o,$(wildcard common/*.c))
launcher = $(patsubst %.c,$(O)/%.o,$(filter-out launcher/main.c,$(wildcard launcher/*.c)))
agent = $(patsubst %.c,$(O)/%.o,$(filter-out agent/main.c,$(wildcard agent/*.c)))

# Static where archives exist: a runner that links shared libraries starts later, and an agent
# that does can't be sent to a host with nothing installed.
EVENT = -l:libevent_core.a
SODIUM = -l:libsodium.a
HWLOC = -l:libhwloc.a

all: $(BUILD)/bin/runner $(BUILD)/bin/berth-agent

$(BUILD)/bin/runner: $(O)/launcher/main.o $(launcher) $(common)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(EVENT) $(SODIUM) -ldl -lpthread

$(BUILD)/bin/berth-agent: $(O)/agent/main.o $(agent) $(common)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(HWLOC) $(EVENT) -lm -ldl

$(O)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c -o $@ $<

# Unit tests: tests/unit/test_X.c with check, linked with what both programs are made of.
unit = $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
$(BUILD)/tests/test_%: tests/unit/test_%.c $(launcher) $(agent) $(common)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -Wno-missing-prototypes $(LDFLAGS) -o $@ $^ -lcheck -lsubunit -lm -lrt -lpthread $(HWLOC) $(EVENT) $(SODIUM) -ldl
unit: $(unit)
	@for t in $(unit); do $$t || exit 1; done

clean:
	rm -rf build

.PHONY: all unit clean
-include $(shell find $(O) -name '*.d' 2>/dev/null)
