"""OpenSSH's own clients in a sandbox: commands, files and ports, with this user's key and no other."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from tests.mesh.commands import Commands, running_mesh
from tests.ports import free_port
from tests.proxies import Faults, broken_socket
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.timeout(300), pytest.mark.needs("ssh")]

MEBIBYTE = 1 << 20
# The short form; `make faults` gives 1024.
BROKEN_MEBIBYTES = int(os.environ.get("SANDMESH_TEST_STREAM_MIB", "32"))
PAGE = Path(__file__).resolve().parents[3] / "docs" / "ssh.md"


@dataclass(frozen=True)
class SshWorld:
    """A mesh, a sandbox on it, and the configuration of OpenSSH's clients."""

    commands: Commands
    host: str
    folder: Path

    def run(
        self, program: str, *arguments: str, stdin: str = "", key: str = "", address: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run one of OpenSSH's clients, or rsync, to its end."""
        config = self.folder / "config"
        if key:
            lines = [line for line in config.read_text().splitlines() if "IdentityFile" not in line]
            config = self.folder / "other"
            config.write_text("\n".join([*lines, f"    IdentityFile {key}", ""]))
        own = ["-e", f"ssh -F {config}"] if program == "rsync" else ["-F", str(config), "-o", "BatchMode=yes"]
        return subprocess.run(
            [program, *own, *arguments],
            env={**self.commands.variables, **({"SANDMESH_ADDRESS": address} if address else {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120 + 8 * BROKEN_MEBIBYTES,
            check=False,
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[SshWorld]:
    """Run a mesh with one sandbox that a session keeps."""
    with running_mesh() as commands:
        commands.run("run", "--session", "ssh", "--", "true")
        sandbox = commands.run("ls", "-o", "id").out.split()[0]
        folder = tmp_path_factory.mktemp("ssh")
        (folder / "config").write_text(commands.run("ssh-config").out)
        yield SshWorld(commands, f"{sandbox}.sandmesh", folder)


def test_a_command_has_input_output_and_exit_code_and_no_key_of_the_user(world: SshWorld) -> None:
    done = world.run("ssh", "-A", world.host, "cat; echo problem >&2; echo [$SSH_AUTH_SOCK]; pwd; exit 7", stdin="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "in\n[]\n/workspace\n", "problem\n")
    # OpenSSH asks for its agent to be forwarded where there is one.
    command = ["ssh-agent", "ssh", "-F", str(world.folder / "config"), "-A", world.host, "echo [$SSH_AUTH_SOCK]"]
    kept = subprocess.run(
        command, env=world.commands.variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert (kept.returncode, kept.stdout) == (0, "[]\n")
    assert "your SSH agent is not forwarded" in kept.stderr
    assert world.run("ssh", "-tt", world.host, "stty size; tty").stdout.split()[-1].startswith("/dev/pts/")
    own = world.commands.run("ssh", world.host, "-aoLogLevel=ERROR", "-x", "echo", "by", "name")
    assert own.out == "by name\n"
    killed = world.run("ssh", world.host, "kill -9 $$")
    assert killed.returncode == 255


def test_a_command_whose_output_is_no_longer_read_ends(world: SshWorld) -> None:
    # Without a terminal the first command ends by its closed pipe; a command whose output is read to its end does not.
    ssh = f"ssh -F {world.folder}/config -o BatchMode=yes {world.host}"
    script = f"{ssh} 'yes' | head -1; echo ${{PIPESTATUS[0]}}; {ssh} 'seq 200000 >&2; seq 300000' 2>/dev/null | tail -1"
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        env=world.commands.variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "y\n255\n300000\n"
    assert world.run("ssh", world.host, "pgrep -x yes || echo none").stdout == "none\n"


def test_the_page_says_what_works(world: SshWorld, tmp_path: Path) -> None:
    [steps] = re.findall(r"^```bash\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    variables = world.commands.variables
    path = f"{Path(sys.executable).parent}:{variables['PATH']}"
    script = ["/bin/bash", "-euo", "pipefail", "-c", steps]
    done = subprocess.run(
        script, env={**variables, "PATH": path}, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "in /workspace\n"), done.stderr
    assert (tmp_path / "sorted").read_text().splitlines() == sorted(Path("/etc/passwd").read_text().splitlines())
    assert (tmp_path / "copy" / "sorted").read_bytes() == (tmp_path / "sorted").read_bytes()


def test_sixty_four_mebibytes_go_up_and_down_by_sftp_and_a_tree_by_rsync(world: SshWorld) -> None:
    content = os.urandom(64 * MEBIBYTE)
    (world.folder / "big").write_bytes(content)
    tree = world.folder / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "run.sh").write_text("echo run\n")
    (tree / "sub" / "run.sh").chmod(0o750)
    (tree / "link").symlink_to("sub/run.sh")
    (tree / "sub" / "empty").write_bytes(b"")
    batch = f"""put {world.folder}/big up
get up {world.folder}/back
mkdir made
put {tree}/sub/run.sh made/run.sh
chmod 600 made/run.sh
rename made/run.sh made/moved.sh
ln -s moved.sh made/link
ls -l made
"""
    done = world.run("sftp", "-q", "-b", "-", world.host, stdin=batch)
    assert done.returncode == 0, done.stderr
    assert (world.folder / "back").read_bytes() == content
    assert "-rw-------" in done.stdout
    digest = world.run("ssh", world.host, "sha256sum up; cat made/link")
    assert digest.stdout == f"{hashlib.sha256(content).hexdigest()}  up\necho run\n"
    copied = world.run("scp", f"{world.host}:up", f"{world.folder}/copied")
    assert (copied.returncode, copied.stderr) == (0, "")
    assert (world.folder / "copied").read_bytes() == content
    # What is shorter than what was there leaves nothing of it.
    over = world.run("scp", "-p", f"{tree}/sub/run.sh", f"{world.host}:up")
    assert (over.returncode, over.stderr) == (0, "")
    assert world.run("ssh", world.host, "cat up; stat -c %a up").stdout == "echo run\n750\n"
    refused = world.run("sftp", "-q", "-b", "-", world.host, stdin="get absent\n")
    assert "not found" in refused.stderr or "No such file" in refused.stderr
    assert world.run("rsync", "-a", f"{tree}/", f"{world.host}:tree/").returncode == 0
    assert world.run("rsync", "-a", f"{world.host}:tree/", f"{world.folder}/again/").returncode == 0
    again = world.folder / "again"
    assert (again / "sub" / "run.sh").stat().st_mode & 0o777 == 0o750
    assert str((again / "link").readlink()) == "sub/run.sh"


@pytest.mark.timeout(300 + 16 * BROKEN_MEBIBYTES)
async def test_files_go_up_and_down_whole_over_a_connection_that_is_cut_each_second(world: SshWorld) -> None:
    size = BROKEN_MEBIBYTES * MEBIBYTE
    content, faults = os.urandom(size), Faults(period=1.0, most=size)
    (world.folder / "cut").write_bytes(content)
    with tempfile.TemporaryDirectory(prefix="sm-") as short:
        gateway, between = str(world.commands.settings.paths.gateway), f"{short}/socket"
        async with broken_socket(between, gateway, faults) as proxy:
            faults.go.set()
            batch = f"put {world.folder}/cut cut\nget cut {world.folder}/sftp\n"
            address = f"unix://{between}"
            done = await asyncio.to_thread(world.run, "sftp", "-q", "-b", "-", world.host, stdin=batch, address=address)
            assert done.returncode == 0, done.stderr
            for ends in (
                (f"{world.folder}/cut", f"{world.host}:up.rsync"),
                (f"{world.host}:up.rsync", f"{world.folder}/rsync"),
            ):
                done = await asyncio.to_thread(world.run, "rsync", *ends, address=address)
                assert done.returncode == 0, done.stderr
            proxy.heal()
    assert {name: (world.folder / name).read_bytes() == content for name in ("sftp", "rsync")} == {
        "sftp": True,
        "rsync": True,
    }
    assert faults.cuts > 0


async def test_a_client_of_another_library_reads_and_writes_and_no_file_of_this_machine(world: SshWorld) -> None:
    config = (world.folder / "config").read_text()
    found = dict(line.strip().split(" ", 1) for line in config.splitlines()[1:])
    command = found["ProxyCommand"].replace("'%n'", world.host)
    key, known = found["IdentityFile"].strip('"'), found["UserKnownHostsFile"].strip('"')
    async with (
        asyncssh.connect(
            "sandmesh", proxy_command=["env", *settings(world), *command.split()], client_keys=[key], known_hosts=known
        ) as connection,
        connection.start_sftp_client() as client,
    ):
        (world.folder / "local").write_text("of this machine")
        await client.put(str(world.folder / "local"), "remote")
        await client.get("remote", str(world.folder / "again.txt"))
        assert (world.folder / "again.txt").read_text() == "of this machine"
        for operation in (client.statvfs("/"), client.link("remote", "hard"), client.stat(str(world.folder / "local"))):
            with pytest.raises(asyncssh.SFTPError):
                await operation
        async with client.open("remote", "r+") as file:
            await file.write("OF")
            assert await file.read(offset=0) == "OF this machine"
        assert {"remote", "."} <= set(await client.listdir("."))


def settings(world: SshWorld) -> list[str]:
    return [f"{name}={value}" for name, value in world.commands.variables.items() if name.startswith("SANDMESH_")]


async def test_a_port_of_the_sandbox_is_reached_and_none_of_the_users_machine(world: SshWorld) -> None:
    serve = "setsid python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 </dev/null & echo started"
    assert (await asyncio.to_thread(world.run, "ssh", world.host, serve)).stdout == "started\n"
    # As editors reach their servers: by a port, or by a SOCKS proxy.
    port, proxy = free_port(), free_port()
    both = ["-L", f"{port}:localhost:8123", "-D", f"127.0.0.1:{proxy}"]
    forward = ["ssh", "-F", str(world.folder / "config"), "-N", *both, world.host]
    process = await asyncio.create_subprocess_exec(*forward, env=world.commands.variables)

    async def status(*options: str) -> str:
        wanted = ("-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}")
        curl = await asyncio.create_subprocess_exec("curl", *wanted, *options, stdout=subprocess.PIPE)
        return (await curl.communicate())[0].decode()

    async def answers() -> bool:
        return await status(f"http://127.0.0.1:{port}/") == "200"

    try:
        await until(answers, 60)
        socks = ("--socks5-hostname", f"127.0.0.1:{proxy}")
        assert await status(*socks, "http://localhost:8123/") == "200"
        # The sandbox has no network: neither has what is forwarded into it.
        assert await status(*socks, "http://example.org/") == "000"
    finally:
        process.terminate()
        await process.wait()
    through = await asyncio.to_thread(
        world.run, "ssh", "-W", "localhost:8123", world.host, stdin="GET / HTTP/1.0\r\n\r\n"
    )
    assert through.stdout.startswith("HTTP/1.0 200")
    sent = await asyncio.to_thread(world.run, "ssh", "-o", "SetEnv=LC_TEST=sent", world.host, "echo $LC_TEST")
    assert sent.stdout == "sent\n"
    back = ["-R", f"{free_port()}:localhost:22", "-o", "ExitOnForwardFailure=yes", world.host, "true"]
    refused = await asyncio.to_thread(world.run, "ssh", *back)
    assert "remote port forwarding failed" in refused.stderr


def test_another_users_key_and_another_sandbox_are_refused(world: SshWorld) -> None:
    key = str(world.folder / f"key-{secrets.token_hex(4)}")
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key]
    subprocess.run(command, check=True)
    refused = world.run("ssh", world.host, "true", key=key)
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr
    absent = world.run("ssh", "sb_aaaaaaaaaaaaaaaaaaaaaaaaaa.sandmesh", "true")
    assert absent.returncode == 255
    assert "SANDBOX_NOT_FOUND" in absent.stderr
