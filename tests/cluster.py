"""A Kubernetes cluster of the tests' own: etcd, API server, scheduler, controllers and one machine, on an own engine.

The programs are those that scripts/kubernetes_build.sh built of Debian's source package. The machine is a kubelet whose
pods are containers of an engine that only it uses. All of it listens on addresses that nobody else has, and ends with
the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.engine import Daemon, bridged_engine, own_bridge, query, run
from tests.ports import free_port
from tests.programs import Program
from tests.service_network import DOMAIN, ServiceNetwork, ServiceRange

START_SECONDS = 180.0
TOKEN, USER_TOKEN, WATCHED_TOKEN = "test-administrator", "test-nobody", "test-watched"
WATCHED = "watched"
"""An administrator whose requests are in the audit log, as are those of service accounts."""

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        *({"level": "Metadata", **who} for who in ({"users": [WATCHED]}, {"userGroups": ["system:serviceaccounts"]})),
        {"level": "None"},
    ],
}
NAMESPACE = "sandboxes"
PAUSE = "sandmesh-test/pause:1"
NODE = "machine"

# Where the kernel lets no process below its own score, a container that asks for less does not start. And what a
# kubelet gives to pods that state no processors, a 500th of what other programs get, is little on a busy machine.
RUNTIME = r"""#!/bin/sh
bundle=. before=
for argument in "$@"; do
    [ "$before" = --bundle ] && bundle=$argument
    before=$argument
done
[ -f "$bundle/config.json" ] && sed -i \
    -e 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' -e 's/"shares":2\([,}]\)/"shares":1024\1/' "$bundle/config.json"
exec runc "$@"
"""

# A shell that waits ends at once when it is asked to, which a program without a handler does not as PID 1.
WAIT = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; sleep infinity & wait"]

KERNEL = tuple(Path("/proc/sys") / name for name in ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"))
"""What a kubelet sets."""


def programs() -> Path:
    """Return the folder of the programs."""
    named = os.environ.get("SANDMESH_TEST_KUBERNETES")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(named) if named else cache / "sandmesh" / "kubernetes-1.20.2"


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    url: str
    kubeconfig: Path
    engine: str
    """The URL of the engine whose containers its pods are."""
    server: Program
    kubelet: Program
    folder: Path
    services: ServiceNetwork | None = None
    """What leads to its Services, where they are served."""

    def request(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> Any:
        """Request a path of the API server; return its JSON.

        Raises:
            OSError: It does not answer, or refuses (urllib.error.HTTPError).
        """
        return _request(self.url, self.folder, method, path, body, token)

    def wait_for_server(self) -> None:
        """Return when the API server answers."""
        _wait(self.server, lambda: self.request("GET", "/api/v1/namespaces/default"))

    def names(self, kind: str, selector: str = "", api: str = "/api/v1") -> list[str]:
        """Return the names of the resources of a kind with some labels."""
        query_part = f"?labelSelector={selector}" if selector else ""
        items = self.request("GET", f"{api}/namespaces/{NAMESPACE}/{kind}{query_part}")["items"]
        return [f"{kind} {item['metadata']['name']}" for item in items]

    def audit(self, user: str) -> list[tuple[str, str]]:
        """Return the verb and the kind of resources of each request of a user."""
        entries = map(json.loads, (self.folder / "audit.log").read_text().splitlines())
        return [
            (str(entry["verb"]), _kind(entry["objectRef"]))
            for entry in entries
            if entry["user"]["username"] == user and "objectRef" in entry
        ]

    def write_kubeconfig(self, path: Path, token: str, namespace: str = NAMESPACE) -> None:
        """Write a kubeconfig for a token."""
        _write_kubeconfig(path, self.url, self.folder / "ca.pem", token, namespace)


def _kind(reference: dict[str, str]) -> str:
    part = reference.get("subresource")
    kind = f"{reference['resource']}/{part}" if part else reference["resource"]
    return f"{kind}.{reference['apiGroup']}" if "apiGroup" in reference else kind


def _request(url: str, folder: Path, method: str, path: str, body: Any, token: str) -> Any:
    import ssl  # noqa: PLC0415 - only here

    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}{path}", data, headers, method=method)  # noqa: S310 - of the tests
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with opener.open(request, timeout=30) as response:
        return json.loads(response.read() or b"null")


@contextmanager
def own_cluster(folder: Path, *, serves: bool = False) -> Generator[Cluster]:
    """Run a cluster with everything in a folder, one machine that is ready, and the namespace of the sandboxes.

    Where it serves, pods have accounts and reach Services by name and address.
    """
    with ExitStack() as stack:
        bridge, address = stack.enter_context(own_bridge())
        services = ServiceRange.beside(bridge, address) if serves else None
        runtime = folder / "runtime"
        runtime.write_text(RUNTIME)
        runtime.chmod(0o755)
        engine = folder / "engine"
        engine.mkdir()
        config = {"runtimes": {"own": {"path": str(runtime)}}, "default-runtime": "own"}
        daemon = stack.enter_context(bridged_engine(engine, bridge, config))
        # A kubelet does not start beside pods of an earlier one, which a killed run leaves on an engine that is kept.
        _remove_containers(daemon)
        _make_pause(daemon)
        stack.enter_context(_kernel_as_before())
        cluster = stack.enter_context(_servers(folder, address, daemon, services))
        if services is not None:
            api = ("127.0.0.1", int(cluster.url.rpartition(":")[2]))
            network = ServiceNetwork(services, lambda path: cluster.request("GET", path), api)
            stack.enter_context(network.serve())
            cluster = replace(cluster, services=network)
        yield cluster


@contextmanager
def _servers(folder: Path, address: str, daemon: Daemon, services: ServiceRange | None) -> Generator[Cluster]:
    with control_plane(folder, services) as cluster:
        own = _kubelet(folder, cluster.kubeconfig, address, free_port(address), daemon)
        if services is not None:
            own += [f"--cluster-dns={address}", f"--cluster-domain={DOMAIN}"]
        kubelet = Program(folder, "kubelet", own)
        try:
            kubelet.start()
            _wait(kubelet, lambda: _check_ready(cluster))
            yield replace(cluster, engine=daemon.url, kubelet=kubelet)
        finally:
            kubelet.kill()
            _remove_containers(daemon)
            _unmount(folder / "kubelet-root")


@contextmanager
def control_plane(
    folder: Path, services: ServiceRange | None = None, features: Sequence[str] = ()
) -> Generator[Cluster]:
    """Run a cluster without a machine, with everything in a folder and the namespace of the sandboxes.

    Features that its version has but does not offer by itself are turned on.
    """
    ports = {name: free_port() for name in ("etcd", "peer", "api", "scheduler", "controllers")}
    url = f"https://127.0.0.1:{ports['api']}"
    _write_keys(folder, *([services.api_address] if services else []))
    kubeconfig = folder / "kubeconfig"
    _write_kubeconfig(kubeconfig, url, folder / "ca.pem", TOKEN, NAMESPACE)
    commands = {
        "etcd": _etcd(folder, ports),
        "api": _api_server(folder, ports, services),
        "scheduler": _scheduler(kubeconfig, ports),
        "controllers": _controllers(folder, kubeconfig, ports),
    }
    gates = [f"--feature-gates={','.join(f'{feature}=true' for feature in features)}"] if features else []
    started = {
        name: Program(folder, name, [*command, *(gates if name != "etcd" else ())])
        for name, command in commands.items()
    }
    cluster = Cluster(url, kubeconfig, "", started["api"], Program(folder, "none", []), folder)
    try:
        started["etcd"].start()
        started["api"].start()
        cluster.wait_for_server()
        for name in ("scheduler", "controllers"):
            started[name].start()
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield cluster
    finally:
        # Nothing of it is used again, and a server's orderly end waits for whoever still watches.
        for program in started.values():
            program.kill()


def _check_ready(cluster: Cluster) -> None:
    node = cluster.request("GET", f"/api/v1/nodes/{NODE}")
    ready = [condition["status"] for condition in node["status"]["conditions"] if condition["type"] == "Ready"]
    if ready != ["True"] or node["spec"].get("taints"):
        raise OSError(f"the machine is not ready: {node['status']['conditions']}")


def _wait(program: Program, check: Any) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        program.check()
        try:
            check()
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not ready after {START_SECONDS:g} s: {error}\n{program.log()}") from None
        else:
            return
        # It has no way to tell but its answers.
        time.sleep(0.1)


def _write_keys(folder: Path, *addresses: str) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own = authority.issue_cert("127.0.0.1", *addresses)
    own.cert_chain_pems[0].write_to_path(folder / "server.pem")
    own.private_key_pem.write_to_path(folder / "server.key")
    key = rsa.generate_private_key(65537, 2048)
    clear = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, clear)
    (folder / "accounts.key").write_bytes(pem)
    users = (f"{TOKEN},administrator,1,system:masters", f"{USER_TOKEN},nobody,2")
    (folder / "tokens.csv").write_text("\n".join((*users, f"{WATCHED_TOKEN},{WATCHED},3,system:masters\n")))
    (folder / "audit.json").write_text(json.dumps(AUDIT))


def _write_kubeconfig(path: Path, url: str, authority: Path, token: str, namespace: str) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(authority)}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(content))


def _etcd(folder: Path, ports: dict[str, int]) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['peer']}"
    listen = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
    cluster = ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    return ["etcd", "--data-dir", str(folder / "etcd"), *listen, *cluster]


def _api_server(folder: Path, ports: dict[str, int], services: ServiceRange | None) -> list[str]:
    # Without Services no pod of the tests has an account, and waits for one.
    accounts = [] if services else ["--disable-admission-plugins=ServiceAccount"]
    return [
        str(programs() / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={ports['api']}",
        f"--tls-cert-file={folder / 'server.pem'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--cert-dir={folder / 'certificates'}",
        f"--service-account-key-file={folder / 'accounts.key'}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        "--service-account-issuer=https://cluster.test",
        f"--service-cluster-ip-range={services.network if services else '10.96.0.0/24'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--audit-policy-file={folder / 'audit.json'}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--authorization-mode=RBAC",
        "--kubelet-preferred-address-types=InternalIP",
        *accounts,
    ]


def _scheduler(kubeconfig: Path, ports: dict[str, int]) -> list[str]:
    program = str(programs() / "kube-scheduler")
    return [program, *_own_ports(kubeconfig, ports["scheduler"])]


def _controllers(folder: Path, kubeconfig: Path, ports: dict[str, int]) -> list[str]:
    program = str(programs() / "kube-controller-manager")
    keys = [f"--service-account-private-key-file={folder / 'accounts.key'}", f"--root-ca-file={folder / 'ca.pem'}"]
    return [program, *_own_ports(kubeconfig, ports["controllers"]), *keys]


def _own_ports(kubeconfig: Path, port: int) -> list[str]:
    listen = ["--bind-address=127.0.0.1", "--port=0", f"--secure-port={port}"]
    return [f"--kubeconfig={kubeconfig}", "--leader-elect=false", *listen]


def _kubelet(folder: Path, kubeconfig: Path, address: str, port: int, daemon: Daemon) -> list[str]:
    return [
        str(programs() / "kubelet"),
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NODE}",
        # Not that of the loopback, which the API server does not take for a machine's.
        f"--node-ip={address}",
        f"--address={address}",
        f"--port={port}",
        "--healthz-port=0",
        "--read-only-port=0",
        f"--docker-endpoint={daemon.url}",
        f"--pod-infra-container-image={PAUSE}",
        f"--root-dir={folder / 'kubelet-root'}",
        f"--cert-dir={folder / 'kubelet-certificates'}",
        f"--volume-plugin-dir={folder / 'plugins'}",
        f"--experimental-dockershim-root-directory={folder / 'dockershim'}",
        "--authorization-mode=AlwaysAllow",
        "--cgroup-driver=cgroupfs",
        "--cgroups-per-qos=false",
        "--enforce-node-allocatable=",
        "--make-iptables-util-chains=false",
        "--oom-score-adj=0",
        "--fail-swap-on=false",
        "--resolv-conf=",
        # The machine's own disk may be as full as it is, and images stay.
        "--eviction-hard=memory.available<50Mi",
        "--image-gc-high-threshold=100",
        # Pods that end are looked at again so often; then they go.
        "--sync-frequency=1s",
    ]


def _make_pause(daemon: Daemon) -> None:
    docker = ["docker", "--host", daemon.url]
    created = subprocess.run(
        [*docker, "create", "debian:bookworm-slim", "true"], check=True, capture_output=True, text=True
    )
    name = created.stdout.strip()
    run(*docker, "commit", "--change", f"ENTRYPOINT {json.dumps(WAIT)}", name, PAUSE)
    run(*docker, "rm", name)


@contextmanager
def _kernel_as_before() -> Generator[None]:
    before = {path: path.read_text() for path in KERNEL if path.exists()}
    yield
    for path, value in before.items():
        with suppress(OSError):
            path.write_text(value)


def _remove_containers(daemon: Daemon) -> None:
    for one in query(daemon.url, "/containers/json?all=1") or ():
        with suppress(OSError):
            query(daemon.url, f"/containers/{one['Id']}?force=1&v=1", "DELETE")


def _unmount(folder: Path) -> None:
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    # A kubelet mounts its folder on itself.
    for place in sorted((place for place in places if f"{place}/".startswith(f"{folder}/")), reverse=True):
        run("umount", "--lazy", place)
