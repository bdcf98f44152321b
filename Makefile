# Everything a person or a continuous integration runs here. Each target sets up what it needs in .venv by itself.
#   make demo             a job that an agent does, in real sandboxes; with ARGS=--browser in a browser
#   make test             the tests of every part that take minutes, files side by side in two processes
#   make test ARGS=...    tests that ARGS names; it goes to pytest, and WORKERS=3 runs files in three processes
#   make test-all         every test that this machine can run
#   make mutants          removes protections one by one: a named test must notice each
#   make fuzz             random input for every public RPC and for parsers of bytes from sandboxes
#   make docs             the documentation as a site; DOCS=--serve serves it
#   make release          the files of a release, checked as their users will use them; publishes nothing
#   make check            formatting, lints, types, import rules, protos
# PYTHON=/path/to/python3 chooses the interpreter of .venv (3.11 or newer).

ARGS ?=
WORKERS ?= $(if $(ARGS),0,2)
VENV := .venv/bin
export PYTHON
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Else each process of the tests compiles again what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all faults faults-free reliability docker-tests kubernetes-tests boxlite-tests cloud-hour mutants fuzz check bench docs stubs release format hooks clean set-up-local set-up-dev set-up-release

help:
	@sed -n 's/^#   //p' Makefile

# Where this machine has no Chromium, ARGS=--browser downloads Debian's to the state directory. Its test does so with
# SANDMESH_TEST_DEMO=1 make test ARGS=tests/mesh/cli/test_examples.py
demo: set-up-local
	@$(VENV)/python examples/demo.py $(ARGS)

# Where a run requires all, as in continuous integration, nothing is left out.
SHORT := tests/typing tests/unit tests/mesh/calls tests/mesh/files tests/mesh/network tests/conformance/test_bubblewrap.py \
	tests/mesh/cli/test_up.py tests/mesh/cli/test_cli_run.py tests/mesh/mcp/test_mcp_stdio.py tests/mesh/doors/test_doors.py
test: set-up-dev
	@$(VENV)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(or $(ARGS),$(if $(SANDMESH_TEST_REQUIRE),,$(SHORT)))

test-all: set-up-dev
	@$(VENV)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

# The tests without those that break things on purpose, which are the slow ones.
faults-free: set-up-dev
	@$(VENV)/python -m pytest --ignore=tests/faults $(ARGS)

# Those alone, in full: streams of 1 GiB over connections that are cut, kills at random during 10,000 cycles, a soak.
faults: set-up-dev
	@SANDMESH_TEST_STREAM_MIB=1024 $(VENV)/python -m pytest tests/faults $(ARGS)
	@$(MAKE) reliability

# Storms of 10,000 cycles and an hour's soak, and the page with their results; an interrupted run resumes.
# RELIABILITY="--cycles 2000 --soak-seconds 600" makes it shorter, and "--runtime docker" breaks an engine of its own
# and its containers (root, with what docker-tests needs); results are kept in .reliability.
reliability: set-up-dev
	@$(VENV)/python -m tests.faults.reliability $(RELIABILITY)
	@$(VENV)/python scripts/reliability_page.py

# The docker and gvisor drivers', on an engine of their own: needs root and docker.io, containerd, runc, iptables,
# iproute2, mmdebstrap, runsc, docker-compose. With SANDMESH_TEST_DOCKER=short, as in continuous integration, tests that
# overlap run once, and images are rebuilt.
FULL_DISK := tests/faults/test_disk.py::test_a_full_disk_is_an_error_that_says_so_and_passes
docker-tests: set-up-dev
	@SANDMESH_TEST_DOCKER=$${SANDMESH_TEST_DOCKER:-1} $(VENV)/python -m pytest tests/conformance/test_docker*.py tests/conformance/test_gvisor*.py tests/faults/test_docker*.py $(FULL_DISK) $(ARGS)

# The kubernetes driver's, on a cluster of their own: needs what docker-tests needs, and etcd-server, golang-go, rsync,
# patch, dpkg-dev, socat and xz-utils to build Kubernetes, which takes 5 to 15 minutes the first time. With
# SANDMESH_TEST_CLUSTER=short only the core of the conformance suite, and the demo.
ON_CLUSTER := tests/conformance/test_kubernetes*.py tests/faults/test_kubernetes*.py
kubernetes-tests: set-up-dev
	@scripts/kubernetes_build.sh
	@SANDMESH_TEST_CLUSTER=$${SANDMESH_TEST_CLUSTER:-1} SANDMESH_TEST_DOCKER=short $(VENV)/python -m pytest $(if $(filter short,$(SANDMESH_TEST_CLUSTER)),tests/conformance/test_kubernetes.py,$(ON_CLUSTER)) $(ARGS)

# The boxlite driver's, on a machine with KVM: needs root and what docker-tests needs, for an image.
boxlite-tests: set-up-dev
	@SANDMESH_TEST_BOXLITE=1 SANDMESH_TEST_REQUIRE=all $(VENV)/python -m pytest tests/unit/drivers/boxlite tests/conformance/test_boxlite.py $(ARGS)

# A call of an hour over a link that the stand-in of a cloud cuts every 30 seconds; takes no more than the time.
cloud-hour: set-up-dev
	@SANDMESH_TEST_CLOUD_SECONDS=3600 SANDMESH_TEST_CLOUD_CUT=30 $(VENV)/python -m pytest -s tests/faults/test_cloud_cuts.py $(ARGS)

# MUTANTS="cookie metrics" runs those whose protection has one of these words.
mutants: set-up-dev
	@$(VENV)/python -m tests.mutants $(MUTANTS)

# FUZZ="--minutes 60 --seed 7 tar kernel" fuzzes these two for an hour, with inputs of another seed; by default all
# targets for 10 minutes. What fails is kept in .fuzz, and printed with how to repeat it.
fuzz: set-up-dev
	@$(VENV)/python -m tests.fuzz $(FUZZ)

check: set-up-dev
	@$(VENV)/python scripts/check.py $(ARGS)

bench: set-up-dev
	@$(VENV)/python -m benchmarks $(ARGS)

stubs: set-up-dev
	@$(VENV)/python scripts/generate_stubs.py
	@$(VENV)/python scripts/tool_stubs.py

# The files of a release, built twice and compared, and installed with each extra on every Python that is found here;
# publishes nothing. RELEASE=--build only builds them. The version is in sdk/sandmesh/shared/version.py.
release: set-up-release
	@$(VENV)/python -m scripts.release $(RELEASE)

# The documentation as a site with search and references: build/site/VERSION, beside the versions that are there already.
# A link that leads nowhere fails. DOCS=--serve serves it at http://127.0.0.1:8000; DOCS="--into SITE" adds it to another site.
docs: set-up-dev
	@$(VENV)/python -m scripts.site $(DOCS)

# Lets git check the subject of each commit (scripts/commit_messages.py).
hooks:
	@git config core.hooksPath scripts/hooks

format: set-up-dev
	@$(VENV)/ruff check --fix --quiet . || true
	@$(VENV)/ruff format --quiet .
	@$(VENV)/buf format --write

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .fuzz demo-output build dist
	find sdk services tests benchmarks examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +

set-up-local:
	@sh scripts/set_up.sh local

set-up-dev:
	@sh scripts/set_up.sh dev

set-up-release:
	@sh scripts/set_up.sh release
