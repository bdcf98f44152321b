"""Credentials from a kubeconfig's exec plugin: a token is used, and what is of no use is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from aiohttp import web

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.kubernetes.cluster.credentials import open_cluster
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths

WORD = "secret"
VERSION = "client.authentication.k8s.io/v1beta1"


def _settings(folder: Path, program: str, url: str = "http://127.0.0.1:9") -> KubernetesSettings:
    plugin = {"apiVersion": VERSION, "command": sys.executable, "args": ["-c", program]}
    config = {
        "clusters": [{"name": "one", "cluster": {"server": url}}],
        "users": [{"name": "one", "user": {"exec": plugin}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    return KubernetesSettings(paths=MeshPaths("one", folder, folder), kubeconfig=folder / "kubeconfig")


def _answer(**status: str) -> str:
    answer = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(json.dumps(answer))})"


async def test_a_plugins_token_is_what_requests_carry(tmp_path: Path) -> None:
    seen: list[str] = []

    async def version(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response({"major": "1"})

    app = web.Application()
    app.router.add_get("/version", version)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with open_cluster(_settings(tmp_path, _answer(token=WORD), url)) as cluster:
            assert await cluster.get("/version") == {"major": "1"}
    finally:
        await runner.cleanup()
    assert seen == [f"Bearer {WORD}"]


async def test_a_plugin_that_answers_with_a_certificate_is_named_with_what_to_do(tmp_path: Path) -> None:
    program = _answer(clientCertificateData="certificate", clientKeyData="key")
    with pytest.raises(RuntimeUnavailable, match=r"gave no token.*: have it answer with a token"):
        async with open_cluster(_settings(tmp_path, program)):
            pass


async def test_a_plugin_that_fails_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="log in again"):
        async with open_cluster(_settings(tmp_path, "raise SystemExit('log in again')")):
            pass
