"""The gateway beyond loopback: over TLS, with tokens, and not otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandmesh import BaseSandboxAsync
from sandmesh._client.addresses import parse, trusting
from sandmesh._client.channel import make_metadata
from sandmesh._client.tcp import tcp_calls
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument, MeshUnavailable, Unauthenticated
from sandmesh.shared.wire_errors import translated
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.gateway import GatewaySettings
from sandmeshd.gateway.door.addresses import check_addresses, token_required
from tests.mesh.cli.test_up import run
from tests.mesh.commands import own_mesh_id
from tests.mesh.conftest import run_mesh

TOKEN = "smallest-of-secrets"  # noqa: S105 - a test's


@pytest.fixture
async def files(tmp_path: Path) -> Path:
    """Make a certificate as a person does, and give its folder."""
    await run("-m", "sandmeshd.cli.user", "certificate", "--directory", str(tmp_path / "tls"))
    return tmp_path / "tls"


def tls_settings(files: Path) -> dict[str, object]:
    return {
        "listen": ("0.0.0.0:0",),
        "tls_cert": files / "cert.pem",
        "tls_key": files / "key.pem",
        "bearer_token": TOKEN,
    }


def port_of(addresses: tuple[str, ...]) -> str:
    return addresses[1].rpartition(":")[2]


async def test_a_box_comes_in_over_tls_with_a_token(files: Path) -> None:
    async with run_mesh(**tls_settings(files)) as mesh:
        for scheme in ("https", "grpcs"):
            url = f"{scheme}://localhost:{port_of(mesh.addresses)}"
            async with BaseSandboxAsync(base_url=url, bearer_token=TOKEN, ca_cert=files / "ca.pem") as box:
                assert (await box.run_ipython_cell("1+1")).text.strip() == "2"
        with pytest.raises(Unauthenticated, match="wants a token"):
            await BaseSandboxAsync(base_url=url, ca_cert=files / "ca.pem").start()


async def test_calls_over_tls_have_a_connection_of_the_sdks_own_that_lets_nobody_in_without_a_token(
    files: Path,
) -> None:
    async with asyncio.timeout(60), run_mesh(**tls_settings(files)) as mesh:
        target = trusting(parse(f"grpcs://localhost:{port_of(mesh.addresses)}"), files / "ca.pem")
        for token, refusal in ((TOKEN, None), ("another", Unauthenticated), (None, Unauthenticated)):
            stream = await tcp_calls.connect(target, make_metadata(token), lambda: False, lambda: None)
            assert stream is not None
            await stream.write(pb.MultiplexRequest())
            if refusal is None:
                assert await stream.read() == pb.MultiplexResponse()
                stream.cancel()
            else:
                with pytest.raises(refusal), translated():
                    await stream.read()


def test_what_up_prints_is_an_address_that_clients_take(files: Path) -> None:
    pair = ("--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem"))
    with own_mesh_id() as commands:
        addresses = commands.run("up", "-d", "-o", "json", "--listen", "localhost:0", *pair).json["base_urls"]
        token = commands.run("token", "create", "laptop").out.strip()
        client = replace(commands, environment={"SANDMESH_CA_FILE": str(files / "ca.pem"), "SANDMESH_TOKEN": token})
        for address in addresses:
            assert client.run("ls", "-o", "id", "--base-url", address).out == ""
    assert [address.partition(":")[0] for address in addresses] == ["unix", "grpcs"]


async def test_who_does_not_know_the_authority_or_speaks_no_tls_stays_outside(files: Path) -> None:
    async with run_mesh(**tls_settings(files)) as mesh:
        address = f"localhost:{port_of(mesh.addresses)}"
        for url in (f"https://{address}", f"grpc://{address}"):
            with pytest.raises(MeshUnavailable):
                await BaseSandboxAsync(base_url=url, bearer_token=TOKEN, timeout=5).start()


async def test_the_commands_come_in_with_what_the_environment_says(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_mesh(**tls_settings(files)) as mesh:
        monkeypatch.setenv("SANDMESH_ADDRESS", f"https://localhost:{port_of(mesh.addresses)}")
        monkeypatch.setenv("SANDMESH_CA_FILE", str(files / "ca.pem"))
        monkeypatch.setenv("SANDMESH_TOKEN", TOKEN)
        _, out, _ = await run("-m", "sandmeshd.cli.user", "ls", "-o", "json")
        assert out.strip() == "[]"
        _, out, _ = await run("-c", "from sandmesh import BaseSandbox\nwith BaseSandbox() as b: print(b.sandbox_id)")
        assert out.startswith("sb_")


async def test_a_renewed_certificate_is_used_without_a_restart(files: Path, tmp_path: Path) -> None:
    async with run_mesh(**tls_settings(files)) as mesh:
        url = f"https://localhost:{port_of(mesh.addresses)}"
        await run("-m", "sandmeshd.cli.user", "certificate", "--directory", str(tmp_path / "new"))
        for name in ("cert.pem", "key.pem"):
            (tmp_path / "new" / name).replace(files / name)
        async with BaseSandboxAsync(base_url=url, bearer_token=TOKEN, ca_cert=tmp_path / "new" / "ca.pem") as box:
            assert box.sandbox_id


@pytest.mark.parametrize("what", ["cert.pem", "key.pem"])
async def test_a_file_that_is_no_certificate_or_key_is_named(files: Path, what: str) -> None:
    (files / what).write_text("hello")
    with pytest.raises(InvalidArgument, match=what):
        async with run_mesh(**tls_settings(files)):
            pass


@pytest.mark.parametrize("address", ["0.0.0.0:80", "[::]:80", "10.1.2.3:80", "example.org:80"])
def test_an_address_open_to_others_needs_tls_and_tokens_or_plain_words(address: str, tmp_path: Path) -> None:
    def check(**more: object) -> None:
        check_addresses(GatewaySettings.model_validate({"listen": (address,), **more}))

    tls = {"tls_cert": tmp_path / "c", "tls_key": tmp_path / "k"}
    with pytest.raises(InvalidArgument, match=r"there is no TLS.*--tls-cert.*--allow-insecure"):
        check()
    with pytest.raises(InvalidArgument, match="no token is required"):
        check(require_token=False, **tls)
    check(**tls)
    check(allow_insecure=True)


def test_a_refused_address_names_the_lines_that_make_a_trial_certificate_or_accept_the_risk() -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_addresses(GatewaySettings(listen=("0.0.0.0:8000",)))
    for line in (
        "`sandmesh certificate --name HOST --directory tls`",
        "--tls-cert tls/cert.pem --tls-key tls/key.pem",
        "SANDMESH_ALLOW_INSECURE=true",
    ):
        assert line in str(refused.value)


def test_tokens_are_asked_for_wherever_others_can_come() -> None:
    assert token_required(GatewaySettings(listen=("0.0.0.0:80",), allow_insecure=True))
    assert not token_required(GatewaySettings(listen=("127.0.0.1:80", "unix:///s")))
    assert token_required(GatewaySettings(listen=("127.0.0.1:80",), require_token=True))


async def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="--tls-key"):
        read_settings(tls_cert=tmp_path)
    with pytest.raises(ValidationError, match="TLS_CERT and SANDMESH_TLS_KEY"):
        GatewaySettings(listen=(), tls_cert=tmp_path)


async def test_no_certificate_is_overwritten(files: Path) -> None:
    before = (files / "cert.pem").read_bytes()
    code, _, err = await run("-m", "sandmeshd.cli.user", "certificate", "--directory", str(files), check=False)
    assert (code, (files / "cert.pem").read_bytes()) == (1, before)
    assert "already exists" in err
    assert (files / "key.pem").stat().st_mode & 0o077 == 0
