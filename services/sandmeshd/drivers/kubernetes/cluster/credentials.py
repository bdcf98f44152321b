"""The cluster and credentials that the settings name, by a kubeconfig or the pod's own service account."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientSession, TCPConnector
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.stream import WsApiClient

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.api.connectors import open_connector
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster, ClusterClients
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REFRESH_SECONDS = 60
HEARTBEAT_SECONDS = 30.0
LARGEST_EVENT = 2 << 20
"""The bytes of a line that a watch may send: a resource is at most 1.5 MiB."""

LIBRARY: Any = config
"""Its signatures are untyped."""


@asynccontextmanager
async def open_cluster(settings: KubernetesSettings) -> AsyncGenerator[Cluster]:
    """Yield the API of the cluster that settings name; whether it answers shows at the first request.

    Raises:
        RuntimeUnavailable: There is no kubeconfig, or no such context in it, or its credentials cannot be read.
    """
    configuration: Any = Configuration()
    if _in_cluster(settings):
        LIBRARY.load_incluster_config(client_configuration=configuration)
        found, loader = (ACCOUNT / "namespace").read_text().strip(), None
    else:
        found, loader = await _load_file(settings, configuration)
    async with AsyncExitStack() as stack:
        tls = _tls(configuration)
        clients = ClusterClients(ApiClient(configuration), WsApiClient(configuration, heartbeat=HEARTBEAT_SECONDS))
        await _prepare(clients.plain, await stack.enter_async_context(open_connector(tls)), stack)
        # Each connection to an agent is a WebSocket.
        await _prepare(clients.websockets, await stack.enter_async_context(open_connector(tls, limit=0)), stack)
        if loader is not None:
            refresh = LIBRARY.refresh_token(loader, configuration, interval=REFRESH_SECONDS)
            stack.push_async_callback(_cancel, asyncio.ensure_future(refresh))
        namespace = settings.kubernetes_namespace or found or "default"
        yield Cluster(clients, str(configuration.host), namespace, is_inside=_in_cluster(settings))


async def _prepare(client: Any, connector: TCPConnector, stack: AsyncExitStack) -> None:
    stack.push_async_callback(client.close)
    await client.rest_client.pool_manager.close()
    # A proxy of the environment is for other addresses: one for the API stands in the kubeconfig.
    client.rest_client.pool_manager = ClientSession(connector=connector, read_bufsize=LARGEST_EVENT)


async def _cancel(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # An older cluster's authority lacks extensions that newer Pythons want.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _in_cluster(settings: KubernetesSettings) -> bool:
    named = settings.kubeconfig is not None or settings.context
    return not named and "KUBERNETES_SERVICE_HOST" in os.environ and (ACCOUNT / "token").exists()


async def _load_file(settings: KubernetesSettings, configuration: Any) -> tuple[str, Any]:
    paths = [settings.kubeconfig] if settings.kubeconfig else default_paths()
    there = [path for path in paths if path.is_file()]
    if not there:
        fix = "set SANDMESH_KUBERNETES_KUBECONFIG to the file that kubectl uses"
        raise RuntimeUnavailable(f"there is no kubeconfig at {', '.join(map(str, paths))}: {fix}", {"fix": fix})
    joined = os.pathsep.join(map(str, there))
    try:
        loader = await LIBRARY.load_kube_config(
            config_file=joined, context=settings.context or None, client_configuration=configuration
        )
    except (ConfigException, yaml.YAMLError, KeyError, OSError, TypeError, ValueError) as error:
        fix = "check it with: kubectl config view, and set SANDMESH_KUBERNETES_CONTEXT to a context that it has"
        raise RuntimeUnavailable(f"the kubeconfig {joined} cannot be used ({error}): {fix}", {"fix": fix}) from None
    if loader is None:
        return "", None
    # The library has no public name for it.
    user: Any = getattr(loader, "_user", None) or {}
    if "exec" in user and not configuration.api_key.get("BearerToken"):
        fix = "have it answer with a token, such as by ack-ram-tool's --mode ram-authenticator-token"
        message = f"the exec plugin of the kubeconfig {joined} gave no token: the client cannot renew certificates"
        raise RuntimeUnavailable(f"{message}: {fix}", {"fix": fix})
    current: dict[str, dict[str, str]] = loader.current_context
    return str(current["context"].get("namespace") or ""), loader


def default_paths() -> list[Path]:
    """Return the places where kubectl looks for its kubeconfig."""
    named = os.environ.get("KUBECONFIG", "")
    paths = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    return paths or [Path("~/.kube/config").expanduser()]
