# make             every variant: dist/lm-NAME.wasm, and the unreleased ones into build/
# make setup       gets a compiler for WebAssembly where there is none
# make check       native unit checks under sanitizers, with every compiler that is here
# make tsan        the same checks under ThreadSanitizer
# make native      build/run: token ids in, logits out, for perf and gdb
# make fuzz        the fuzzers, into build/fuzz/ (clang with libFuzzer); tests/fuzz/README.md tells how to run them
# make regress     replays the fuzzers' seeds and what they have found
# make layers      C files include only lower levels
# make clean       removes build/ and dist/
# V=1 shows the commands. WASM_CC=... WASM_LD=... names a compiler and its wasm-ld; otherwise
# wasm/toolchain/find.sh finds one.

# The table of variants: one module each, of the same sources.
RELEASED   := simd relaxed relaxed-dot simd-mt relaxed-mt relaxed-dot-mt relaxed-m64 relaxed-m64-mt
UNRELEASED := ref grow flipped
FLAGS_simd       :=
FLAGS_relaxed    := -mrelaxed-simd
FLAGS_relaxed-dot := -mrelaxed-simd -DVEC_DOT
FLAGS_simd-mt    := -matomics
FLAGS_relaxed-mt := -mrelaxed-simd -matomics
FLAGS_relaxed-dot-mt := -mrelaxed-simd -DVEC_DOT -matomics
FLAGS_relaxed-m64     = -mrelaxed-simd $(WIDE)
FLAGS_relaxed-m64-mt  = -mrelaxed-simd -matomics $(WIDE)
FLAGS_ref        := -DLM_KERNELS=kernels_ref
FLAGS_grow       := -DLM_DEBUG -DLM_ALWAYS_GROW
FLAGS_flipped    := -DLM_ARCH_TABLE='"tests/native/flipped.def"'

SRC     := $(wildcard src/*.c src/quants/*.c wasm/*.c wasm/kernels/*.c)
HEADERS := $(wildcard src/*.h src/*.def wasm/*.h wasm/kernels/*.h tests/native/*.h tests/native/*.def)
DIST    := dist
BUILD   := build
MODULES := $(RELEASED:%=$(DIST)/lm-%.wasm) $(UNRELEASED:%=$(BUILD)/lm-%.wasm)

# Freestanding, so the objects are the same whichever driver an LLVM came with. The three features
# after bulk-memory are on by default from LLVM 20 on; said for 19.
WARN    := -Wall -Wextra
WASM_CFLAGS := -std=c11 -O3 -ffreestanding -ffp-contract=off -fno-math-errno -fvisibility=hidden $(WARN) -Isrc -Iwasm \
  -msimd128 -mbulk-memory -mnontrapping-fptoint -msign-ext -mmutable-globals
# --stack-first: a stack that overflows traps instead of running into data. FIRST_PAGES of
# web/instance.js is at least the initial memory.
WASM_LDFLAGS := --no-entry --import-memory --initial-memory=4194304 --max-memory=4294967296 --stack-first \
  -z stack-size=1048576 --export-dynamic --gc-sections --strip-debug --fatal-warnings
# 64-bit addresses: a later --target wins over an earlier one; emcc has a switch of its own. 16 GiB is
# what V8 gives to one memory (MOST of wasm/platform.c).
WIDE = $(if $(findstring --target,$(call tool,1)),--target=wasm64,-sMEMORY64)
WASM_LDFLAGS_m64 := -mwasm64 --max-memory=17179869184
THREADS := --shared-memory --export=__stack_pointer

Q := $(if $(V),,@)

all: $(MODULES)

# The compiler and the linker, looked for when the first recipe needs them.
FIND = WASM_CC='$(WASM_CC)' WASM_LD='$(WASM_LD)' sh wasm/toolchain/find.sh | tr '\n' '|'
TOOLCHAIN = $(eval TOOLCHAIN := $(shell $(FIND)))$(TOOLCHAIN)
comma := ,
space := $() $()
tool = $(subst ~,$(space),$(word $(1),$(subst |,$(space),$(subst $(space),~,$(TOOLCHAIN)))))

define variant
$(2): $(SRC) $(HEADERS) Makefile
	@mkdir -p $(BUILD) $(DIST)
	@$$(if $$(TOOLCHAIN),echo "wasm: $$@",exit 1)
	$(Q)printf '#include "%s"\n' $(SRC) | $$(call tool,1) $(WASM_CFLAGS) $$(FLAGS_$(1)) -I. -x c -c - -o $(BUILD)/$(1).o
	$(Q)$$(call tool,2) $(WASM_LDFLAGS) $(if $(findstring -m64,$(1)),$(WASM_LDFLAGS_m64)) \
	  $(if $(findstring -mt,$(1)),$(THREADS)) $(BUILD)/$(1).o -o $$@
endef
$(foreach v,$(RELEASED),$(eval $(call variant,$(v),$(DIST)/lm-$(v).wasm)))
$(foreach v,$(UNRELEASED),$(eval $(call variant,$(v),$(BUILD)/lm-$(v).wasm)))

# Native builds: the same C file by file, over the emulated vectors and tests/native/host.c. One
# program per check_*.c. Rows: name, compiler, flags.
CLANGS   := clang-25 clang-24 clang-23 clang-22 clang-21 clang-20 clang-19 clang
CC_CLANG := $(firstword $(foreach c,$(CLANGS),$(shell command -v $(c))))
SANITIZE := -g -O1 -DLM_DEBUG -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CHECKS   := clang clang-relaxed clang-32 gcc
CC_clang         := $(CC_CLANG)
FLAGS_clang      := $(SANITIZE)
CC_clang-relaxed    := $(CC_CLANG)
FLAGS_clang-relaxed := $(SANITIZE) -DVEC_RELAXED
CC_clang-32      := $(CC_CLANG)
FLAGS_clang-32   := $(SANITIZE) -m32 -msse2 -mfpmath=sse
# Both sanitizers at once on the emulated vectors take gcc five times as long as clang.
CC_gcc           := gcc
FLAGS_gcc        := $(subst $(comma)undefined,,$(SANITIZE))
CC_tsan        := gcc
FLAGS_tsan     := -g -O1 -DLM_DEBUG -fsanitize=thread
# Kernels know no threads.
NAMES_tsan     := check_engine
CC_run         := $(CC)
FLAGS_run      := -g -O3

NATIVE_CFLAGS := -std=c11 -ffp-contract=off -fno-math-errno $(WARN) -Werror -Isrc -Iwasm -Itests/native -pthread
NATIVE_SRC    := $(filter-out wasm/platform.c wasm/libc.c,$(SRC)) $(wildcard tests/native/host.c)
CHECK_NAMES   := $(basename $(notdir $(wildcard tests/native/check_*.c)))

define native
$(BUILD)/$(1)/%.o: %.c $(HEADERS) Makefile
	@mkdir -p $$(@D)
	$(Q)$(CC_$(1)) $(NATIVE_CFLAGS) $(FLAGS_$(1)) -c $$< -o $$@
$(BUILD)/$(1)/%: $(BUILD)/$(1)/tests/native/%.o $(NATIVE_SRC:%.c=$(BUILD)/$(1)/%.o)
	$(Q)$(CC_$(1)) $(FLAGS_$(1)) -pthread $$^ -lm -o $$@
$(BUILD)/$(1)/%.passed: $(BUILD)/$(1)/%
	@echo "check: $(1) $$(notdir $$<)"
	$(Q)$(3) $$<
	@touch $$@
check-$(1): $(patsubst %,$(BUILD)/$(1)/%.passed,$(or $(NAMES_$(1)),$(CHECK_NAMES)))
.PHONY: check-$(1)
.PRECIOUS: $(BUILD)/$(1)/%.o $(BUILD)/$(1)/%
endef
$(foreach c,$(CHECKS) run,$(eval $(call native,$(c))))
# Without address randomisation: gcc's ThreadSanitizer refuses the memory maps of newer kernels.
$(eval $(call native,tsan,,$(shell command -v setarch >/dev/null && echo setarch -R)))

# A compiler or a 32-bit library that is not here is said, and fails where CI asks for all of them.
EMPTY := int main(void) { return 0; }
links = $(if $(CC_$(1)),$(shell echo '$(EMPTY)' | $(CC_$(1)) $(FLAGS_$(1)) -x c - -o /dev/null 2>/dev/null && echo yes))
check:
	@$(MAKE) --no-print-directory $(foreach c,$(CHECKS),$(if $(call links,$(c)),check-$(c),no-$(c)))
no-%:
	@echo "make check: $* left out: no compiler or sanitizer library for it" >&2; test -z "$$CI"
# Whether a row of CHECKS has its compiler and libraries here.
links-%:
	@test -n '$(call links,$*)'
tsan: check-tsan
# A fuzz target is a check program with libFuzzer's main, or with one that replays files.
FUZZERS := $(basename $(notdir $(wildcard tests/fuzz/fuzz_*.c)))
fuzz: $(FUZZERS:%=$(BUILD)/fuzz/%) $(BUILD)/seeds
$(BUILD)/fuzz/%: tests/fuzz/%.c $(NATIVE_SRC) $(HEADERS) tests/fuzz/fuzz.h Makefile
	@mkdir -p $(@D)
	$(Q)$(CC_CLANG) $(NATIVE_CFLAGS) -g -O2 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all $< $(NATIVE_SRC) -o $@
regress: $(FUZZERS:%=$(BUILD)/regress/%) $(BUILD)/seeds
	$(Q)for f in $(filter $(BUILD)/regress/%,$^); do $$f $(BUILD)/seeds/* $(wildcard tests/fuzz/corpus/*) || exit 1; done
REGRESS := $(if $(CC_CLANG),clang,gcc)
$(BUILD)/regress/%: $(BUILD)/$(REGRESS)/tests/fuzz/%.o $(BUILD)/$(REGRESS)/tests/fuzz/regress.o $(NATIVE_SRC:%.c=$(BUILD)/$(REGRESS)/%.o)
	@mkdir -p $(@D)
	$(Q)$(CC_$(REGRESS)) $(FLAGS_$(REGRESS)) -pthread $^ -lm -o $@
$(BUILD)/seeds: tests/fuzz/seeds.js tests/kit/make-model.js
	node $< $@
native: $(BUILD)/run/run
	cp $< $(BUILD)/run-native
layers:
	$(Q)awk -f tests/native/layers.awk $(SRC) $(filter-out tests/%,$(filter %.h,$(HEADERS)))
setup:
	sh wasm/toolchain/setup.sh
clean:
	rm -rf $(BUILD) $(DIST)
.PHONY: all check tsan fuzz regress native layers setup clean
.DELETE_ON_ERROR:
