"""The unpacking of Debian packages into a root directory, and the steps of their installation that matter there.

Their own scripts are not run: they expect to be root on a whole system. Ids of other users, devices and services, which
these scripts are about, do not exist in sandboxes.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path

from sandmesh.errors import TemplateBuildFailed
from sandmeshd.drivers.bubblewrap.systems.archive import DOWNLOADED
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.drivers.node.commands import RunningCommand, running

MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Directories of the root that are links into /usr; packages may still name them."""

MADE = ("dev", "proc", "tmp", "etc/alternatives", "var/lib/dpkg/alternatives", "var/log", "var/cache/fontconfig")

UNPACK = r"""
set -o pipefail
root=$1 scripts=$2; shift 2
: >"$scripts"
for deb in "$@"; do
    dpkg-deb --fsys-tarfile "$deb" |
        tar -x -C "$root" --keep-directory-symlink --no-same-owner \
            --exclude=./usr/share/man --exclude=./usr/share/info --exclude=./usr/share/lintian || exit 1
    dpkg-deb --info "$deb" postinst >>"$scripts" 2>/dev/null
    echo "unpacked"
done
"""

SETTLE = r"""
ldconfig || exit 1
# What scripts do that are not run: the programs of Java, the settings of R, the list of certificates.
for list in /usr/lib/jvm/.*.jinfo; do
    [ -f "$list" ] || continue
    while read -r _ name path _; do
        [ ! -x "$path" ] || update-alternatives --install "/usr/bin/$name" "$name" "$path" 1000
    done <"$list"
done
[ ! -f /usr/lib/R/etc/Renviron.ucf ] || [ -e /etc/R/Renviron ] || cp /usr/lib/R/etc/Renviron.ucf /etc/R/Renviron
run() { if command -v "$1" >/dev/null; then "$@" || echo "failed: $*"; fi; }
[ -e /etc/ca-certificates.conf ] || [ ! -d /usr/share/ca-certificates ] ||
    (cd /usr/share/ca-certificates && find * -name '*.crt' >/etc/ca-certificates.conf)
run update-ca-certificates >/dev/null 2>&1
certificates=/usr/share/ca-certificates-java/ca-certificates-java.jar
[ ! -f "$certificates" ] || { mkdir -p /etc/ssl/certs/java &&
    find /etc/ssl/certs -name '*.pem' | sed 's/^/+/' | run java -jar "$certificates" -storepass changeit >/dev/null; }
run update-mime-database /usr/share/mime
[ ! -d /usr/share/glib-2.0/schemas ] || run glib-compile-schemas /usr/share/glib-2.0/schemas
for query in /usr/lib/*/gdk-pixbuf-2.0/gdk-pixbuf-query-loaders; do run "$query" --update-cache; done
run fc-cache --system-only
"""


async def unpack(packages: list[Path], root: Path, scripts: Path) -> AsyncGenerator[BuildStep]:
    """Unpack packages below `root`, yielding the progress; their installation scripts are added to `scripts`.

    Raises:
        TemplateBuildFailed: One cannot be unpacked.
    """
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in MADE:
        (root / name).mkdir(parents=True, exist_ok=True)
    command = ["bash", "-c", UNPACK, "unpack", str(root), str(scripts), *map(str, packages)]
    count = 0
    async with running(command, cwd=root) as unpacking:
        async for line in unpacking.lines():
            count += line == "unpacked"
            yield BuildStep(f"unpacking {count} of {len(packages)} packages", DOWNLOADED + 0.3 * count / len(packages))
        if not await unpacking.succeeded():
            raise _failed(unpacking)


async def settle(bwrap: Path, root: Path, scripts: Path, generated: Mapping[str, str]) -> None:
    """Replace the packages' scripts: make caches of libraries, fonts, types and images; alternatives.

    It runs in a sandbox that sees nothing but the new root. `generated` are files of its /etc.

    Raises:
        TemplateBuildFailed: The programs of the root do not run.
    """
    found = alternatives(await asyncio.to_thread(scripts.read_text, "utf-8", "replace"))
    script = "\n".join([*(f"{shlex.join(line)} || true" for line in found), SETTLE])
    confined = ("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv")
    variables = ("--setenv", "PATH", "/usr/sbin:/usr/bin", "--setenv", "HOME", "/tmp", "--setenv", "LC_ALL", "C.UTF-8")  # noqa: S108 - inside
    mounts = ("--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")  # noqa: S108 - inside
    command = [str(bwrap), *confined, *variables, *mounts, "--chdir", "/", "--", "/bin/sh", "-c", script]
    async with running(command, cwd=root, env={}) as settling:
        if not await settling.succeeded():
            raise _failed(settling)
    for name, content in generated.items():
        path = root / "etc" / name
        path.unlink(missing_ok=True)
        path.write_text(content)


def alternatives(scripts: str) -> Iterable[list[str]]:
    """Return the commands among scripts' lines that install alternatives, those that need no shell to be read."""
    for line in re.sub(r"\\\n", " ", scripts).splitlines():
        words = line.strip().removesuffix("|| true").removesuffix(";")
        if words.startswith("update-alternatives ") and "--install" in words and not re.search(r"[$`&|;<>()]", words):
            yield shlex.split(words)


def _failed(command: RunningCommand) -> TemplateBuildFailed:
    detail = command.detail
    message = f"the template's system could not be made: {detail.splitlines()[-1]}"
    return TemplateBuildFailed(message, {"detail": detail})
