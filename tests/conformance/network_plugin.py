"""A stand-in for a network plugin that enforces NetworkPolicies, which the tests' machine has none of.

It shuts the network of pods that a policy lets nowhere out: all that leaves them is what their agent's port answers.
Like others it comes a moment after a pod.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

from sandmeshd.drivers.kubernetes.pods.pod import AGENT_PORT
from tests.cluster import NAMESPACE, Cluster
from tests.engine import query

POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
SANDBOXES = quote(json.dumps({"label": ["io.kubernetes.docker.type=podsandbox"]}))
RULES = (("-o", "lo", "-j", "ACCEPT"), ("-p", "tcp", "--sport", str(AGENT_PORT), "-j", "ACCEPT"), ("-j", "DROP"))
POLL_SECONDS = 0.1


@asynccontextmanager
async def network_plugin(cluster: Cluster) -> AsyncGenerator[None]:
    """Enforce the policies of the sandboxes' namespace."""
    enforcing = asyncio.create_task(_enforce(cluster))
    try:
        yield
    finally:
        enforcing.cancel()
        await asyncio.gather(enforcing, return_exceptions=True)


async def _enforce(cluster: Cluster) -> None:
    shut: set[str] = set()
    while True:
        with suppress(OSError, subprocess.CalledProcessError):
            await asyncio.to_thread(_shut_new, cluster, shut)
        await asyncio.sleep(POLL_SECONDS)


def _shut_new(cluster: Cluster, shut: set[str]) -> None:
    policies = [policy["spec"] for policy in cluster.request("GET", POLICIES)["items"]]
    for one in query(cluster.engine, f"/containers/json?filters={SANDBOXES}") or ():
        if one["Id"] not in shut and any(_lets_nowhere(policy, one["Labels"]) for policy in policies):
            pid = query(cluster.engine, f"/containers/{one['Id']}/json")["State"]["Pid"]
            for rule in RULES:
                command = ["nsenter", "--target", str(pid), "--net", "iptables", "--wait", "-A", "OUTPUT", *rule]
                subprocess.run(command, check=True, capture_output=True)
            shut.add(one["Id"])


def _lets_nowhere(policy: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = policy["podSelector"].get("matchLabels") or {}
    return "Egress" in policy["policyTypes"] and not policy.get("egress") and wanted.items() <= labels.items()
