# What a clone can do. Everything is installed into .venv, from constraints.txt.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: help validate test suites faults benchmarks fuzz kernels nightly lint wheel clean

help:
	@echo "make validate    judge PyTorch's operators (installs the pinned PyTorch into $(VENV))"
	@echo "make test        d5test's own tests, with every backend"
	@echo "make suites      a short run of each suite"
	@echo "make faults      which of the faults made on purpose are found"
	@echo "make benchmarks  the performance budget, each bound as a measured ratio"
	@echo "make kernels     which native functions the suites enter, and real problems alone"
	@echo "make fuzz        every reader of files for an hour (FUZZ_SECONDS=3600)"
	@echo "make nightly     what takes hours: long tests, fuzz, faults, benchmarks"
	@echo "make lint        ruff and mypy --strict"
	@echo "make wheel       build the wheel into dist/"

$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

$(VENV)/torch.stamp: $(VENV)/pip.stamp pyproject.toml constraints.txt
	$(INSTALL) --editable '.[torch,training,report,xdist,mpi]'
	touch $@

# tensorflow-cpu, not the extra `tensorflow`: the same package without the GPU's gigabytes
$(VENV)/dev.stamp: $(VENV)/torch.stamp
	$(INSTALL) --editable '.[dev,torch,jax,onnxruntime]' tensorflow-cpu
	touch $@

# what takes three minutes: a default run draws 25 cases a cell (`make nightly` has it)
validate: $(VENV)/torch.stamp
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators --backend=torch --examples=10 -n 2

# one thread for each of the two processes: threads that wait for each other's cores take ten times as long;
# a file in one process: what it compiles or starts for all of its tests is there once
# what tests start compiles nothing by itself
test: $(VENV)/dev.stamp
	$(BIN)/python -m compileall -q d5test
	OMP_NUM_THREADS=1 $(BIN)/pytest tests -m "not nightly" -n 2 --dist=loadfile --no-loadscope-reorder --durations=20

# PyTorch's operators are judged by `make validate`; NumPy's and ours briefly, which are the
# reference's own; jax, which compiles each shape, in one dtype by the checks that meet every function
# and form (`make nightly` has all)
JAX_BY_DAY := $(patsubst %,suites/operators/test_%.py,gradient forms)

suites: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators --backend=numpy,native \
	  --examples=1 --ignore-glob='*/test_accuracy*.py' -n 2
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators --backend=tensorflow,onnxruntime \
	  --examples=2 --ignore-glob='*/test_accuracy*.py' -n 2
	OMP_NUM_THREADS=1 $(BIN)/pytest $(JAX_BY_DAY) --backend=jax --dtype=float32 --examples=1 -n 2
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators/test_corpus.py --backend=torch -n 2
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/networks --backend=numpy,torch,tensorflow,jax,onnxruntime \
	  --network=mlp,lenet5 -n 2
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/training --backend=torch,tensorflow,jax --optimizer=Adam \
	  --examples=3 -n 2
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/distributed --examples=3 -n 2
	$(BIN)/pytest suites/*/test_plain.py --backend=numpy,torch,tensorflow,jax,onnxruntime

faults: $(VENV)/dev.stamp
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.faults.wrong_sizes

benchmarks: $(VENV)/dev.stamp
	$(BIN)/python -m tests.budget

FUZZ_SECONDS ?= 3600
fuzz: $(VENV)/dev.stamp
	$(BIN)/python -m tests.fuzz --seconds=$(FUZZ_SECONDS)

# the accuracy of functions is on fixed inputs, however few examples are drawn; jax in every dtype, and
# whole what compiles quickly
nightly: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators/test_accuracy*.py -n 2 \
	  --backend=numpy,native,torch,tensorflow,jax,onnxruntime
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators --backend=jax \
	  --examples=3 --ignore-glob='*/test_accuracy*.py' -n 2
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators -n 2 --backend=torch,tensorflow,onnxruntime
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators -n 2 \
	  --backend=tensorflow-compiled,tensorflow-xla,jax-compiled
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/operators -n 2 --backend=torch-compiled --examples=1
	OMP_NUM_THREADS=1 $(BIN)/pytest suites/training --backend=torch,tensorflow,jax -n 2
	$(BIN)/pytest suites/distributed/test_training.py --optimizer=$$($(BIN)/python -c \
	  "from d5test.distributed.optimizers import NAMED; print(','.join(NAMED))")
	$(INSTALL) --editable '.[deepspeed]'
	OMP_NUM_THREADS=1 $(BIN)/pytest tests -m nightly --durations=20
	$(MAKE) fuzz faults benchmarks kernels

kernels: $(VENV)/dev.stamp
	mkdir -p .d5test
	$(BIN)/d5test coverage --kernels --backend=torch --threads=2 -o .d5test/kernels.md

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

wheel: $(VENV)/dev.stamp
	$(BIN)/python -m build --wheel --outdir dist .

clean:
	rm -rf $(VENV) dist .d5test
