"""What holds for every test: needs that a machine may lack, a table at the end, and nothing left behind."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from . import leaks, needs, resuming, timeouts
from .cluster import Cluster, own_cluster
from .engine import Daemon, left_on, own_engine
from .kernel_log import KernelLog
from .machine import MachineOfAll
from .parts import PartsTable
from .s3 import s3_server


def pytest_configure(config: pytest.Config) -> None:
    """Add what watches the run, and have made-up examples be the same in each run and take the time that they take."""
    slow = [HealthCheck.too_slow]
    settings.register_profile("sandmesh", deadline=None, derandomize=True, suppress_health_check=slow)
    settings.load_profile("sandmesh")
    config.pluginmanager.register(needs, "sandmesh-needs")
    config.pluginmanager.register(timeouts, "sandmesh-timeouts")
    resuming.pytest_configure(config)
    config.pluginmanager.register(PartsTable(), "sandmesh-parts")
    config.pluginmanager.register(KernelLog(), "sandmesh-kernel-log")
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(MachineOfAll(), "sandmesh-machine")


@pytest.fixture(scope="session", autouse=True)
def machine_is_as_before(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Fail the run when it left processes, mounts, cgroups or folders; one of several processes of tests, its own."""
    beside_others = hasattr(request.config, "workerinput")
    inspect = leaks.inspect_own if beside_others else leaks.inspect
    temporary = tmp_path_factory.getbasetemp()
    mark = leaks.mark_process(fresh=beside_others)
    before = inspect(temporary)
    running = set(leaks.marked_processes(mark))
    yield
    leaks.wait_for_ends(iter(set(leaks.marked_processes(mark)) - running), leaks.GRACE_SECONDS)
    processes = [f"process {pid}: {what}" for pid, what in leaks.marked_processes(mark).items() if pid not in running]
    stays = leaks.settled(lambda: inspect(temporary), before, leaks.GRACE_SECONDS)
    left = [*processes, *stays.left_since(before)]
    if left:
        pytest.fail("the run left this on the machine:\n" + "\n".join(left), pytrace=False)


@pytest.fixture(scope="session")
def s3() -> Generator[str]:
    """The address of a server that speaks S3."""
    with s3_server() as address:
        yield address


@pytest.fixture(scope="session")
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[str, Daemon | None]]:
    """Yield the URL of an engine that has the image of the templates, and its process where that is the tests' own."""
    with own_engine(tmp_path_factory.mktemp("engine")) as (url, daemon):
        yield url, daemon
        left = [] if daemon is None else left_on(url)
    if left:
        pytest.fail("the run left this on its engine:\n" + "\n".join(left), pytrace=False)
    request.config.get_terminal_writer().line("the engine has no container, volume, network or published port left")


@pytest.fixture(scope="session")
def engine(served: tuple[str, Daemon | None]) -> str:
    """Return the URL of an engine that has the image of the templates."""
    return served[0]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    """Yield a Kubernetes cluster with one machine that has the image of the templates."""
    with own_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
        left = [name for kind in ("pods", "secrets") for name in running.names(kind, "app.kubernetes.io/managed-by")]
        left += running.names("leases", "app.kubernetes.io/managed-by", "/apis/coordination.k8s.io/v1")
    if left:
        pytest.fail("the run left this in its cluster:\n" + "\n".join(left), pytrace=False)
