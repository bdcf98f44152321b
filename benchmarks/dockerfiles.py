"""Ten Dockerfiles of the forms that the public has, each built twice: `python -m benchmarks.dockerfiles [NAME...]`.

They build on a Debian root that mmdebstrap makes, with packages of the registries that this machine is configured with.
Prints seconds of both builds, how many steps were cached, and the bytes of new layers, beside the machine's load.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sandmesh.errors import SandmeshError
from sandmeshd.images.builds.context import Context
from sandmeshd.images.builds.options import ImageBuildOptions, Report
from sandmeshd.images.store import ImageStore
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.image_builds import build_image
from sandmeshd.runtime.user_namespaces.removal import remove_tree

CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
BASE: Final = "debian:12"


@dataclass(frozen=True)
class Form:
    """A Dockerfile, and the files beside it."""

    text: str
    files: dict[str, str] = field(default_factory=dict[str, str])


APT: Final = "RUN apt-get update && apt-get install -y --no-install-recommends"
CACHE: Final = "/root" + "/.cache"
CLEAN: Final = "&& rm -rf /var/lib/apt/lists/*"
PYTHON: Final = {
    "app/__init__.py": "",
    "app/main.py": "import six\n\nprint('six', six.__version__)\n",
    "requirements.txt": "six==1.16.0\nidna==3.7\n",
}
PROJECT: Final = """[project]
name = "app"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["six==1.16.0"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""
POETRY: Final = """[tool.poetry]
name = "app"
version = "1.0"
description = ""
authors = []

[tool.poetry.dependencies]
python = "^3.11"
six = "1.16.0"

[[tool.poetry.source]]
name = "index"
url = "https://pypi.org/simple/"
priority = "primary"
"""

FORMS: Final[dict[str, Form]] = {
    "node, two stages": Form(
        f"""FROM {BASE} AS build
{APT} nodejs npm {CLEAN}
WORKDIR /app
COPY package.json ./
RUN --mount=type=cache,target=/root/.npm npm install --omit=dev
COPY index.js ./
RUN node index.js

FROM {BASE}
ENV NODE_ENV=production
{APT} nodejs {CLEAN}
WORKDIR /app
COPY --from=build /app ./
USER nobody
EXPOSE 3000
CMD ["node", "index.js"]
""",
        {
            "package.json": '{"name": "app", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}}',
            "index.js": "console.log(require('ms')('2 days'))\n",
        },
    ),
    "python, pip": Form(
        f"""FROM {BASE}
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_BREAK_SYSTEM_PACKAGES=1
{APT} python3 python3-pip {CLEAN}
WORKDIR /srv
COPY requirements.txt .
RUN pip install -r requirements.txt
COPY app/ app/
RUN useradd --create-home app
USER app
CMD ["python3", "-m", "app.main"]
""",
        PYTHON,
    ),
    "python, poetry": Form(
        f"""FROM {BASE} AS builder
{APT} python3 python3-pip python3-venv {CLEAN}
RUN --mount=type=cache,target={CACHE}/pip pip install --break-system-packages poetry==1.8.3
ENV POETRY_VIRTUALENVS_IN_PROJECT=1 POETRY_NO_INTERACTION=1
WORKDIR /app
COPY pyproject.toml ./
RUN poetry lock && poetry install --no-root --only main
FROM {BASE}
{APT} python3 {CLEAN}
WORKDIR /app
COPY --from=builder /app/.venv .venv
COPY app app
ENV PATH="/app/.venv/bin:$PATH"
RUN python -m app.main
""",
        {**PYTHON, "pyproject.toml": POETRY},
    ),
    "python, uv": Form(
        f"""# syntax=docker/dockerfile:1
FROM {BASE}
{APT} python3 python3-pip python3-venv {CLEAN}
RUN pip install --break-system-packages uv
WORKDIR /app
ENV UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
RUN --mount=type=cache,target={CACHE}/uv \\
    --mount=type=bind,source=requirements.txt,target=requirements.txt \\
    uv venv && uv pip install -r requirements.txt
COPY . .
RUN .venv/bin/python -m app.main
""",
        {**PYTHON, ".dockerignore": "*.md\n"},
    ),
    "go, two stages": Form(
        f"""FROM {BASE} AS build
{APT} golang-go {CLEAN}
WORKDIR /src
COPY go.mod ./
COPY *.go ./
RUN --mount=type=cache,target={CACHE}/go-build CGO_ENABLED=0 go build -o /out/app .
FROM scratch
COPY --from=build /out/app /app
ENTRYPOINT ["/app"]
""",
        {
            "go.mod": "module example.org/app\n\ngo 1.19\n",
            "main.go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("go") }\n',
        },
    ),
    "rust, two stages": Form(
        f"""FROM {BASE} AS build
{APT} rustc cargo {CLEAN}
WORKDIR /src
COPY Cargo.toml .
COPY src src
RUN cargo build --release --offline
FROM {BASE}
COPY --from=build /src/target/release/app /usr/local/bin/app
RUN app
""",
        {
            "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/main.rs": 'fn main() { println!("rust"); }\n',
        },
    ),
    "java, two stages": Form(
        f"""FROM {BASE} AS build
{APT} default-jdk-headless {CLEAN}
WORKDIR /src
COPY Main.java .
RUN javac Main.java && jar --create --file app.jar --main-class Main Main.class
FROM {BASE}
{APT} default-jre-headless {CLEAN}
COPY --from=build /src/app.jar /opt/app.jar
RUN java -jar /opt/app.jar
""",
        {"Main.java": 'class Main { public static void main(String[] a) { System.out.println("java"); } }\n'},
    ),
    "a SWE-bench-like task": Form(
        f"""FROM {BASE}
ARG DEBIAN_FRONTEND=noninteractive
ENV TZ=Etc/UTC
{APT} git python3 python3-pip python3-venv patch {CLEAN}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /testbed
COPY app app
RUN <<END
git init -q .
git -c user.name=x -c user.email=x@example.org add -A
git -c user.name=x -c user.email=x@example.org commit -qm base
END
RUN python3 -m venv /opt/env && /opt/env/bin/pip install six==1.16.0 pytest
ENV PATH=/opt/env/bin:$PATH
COPY <<test.patch <<eval.sh /
--- a/app/main.py
+++ b/app/main.py
@@ -3 +3,2 @@
 print('six', six.__version__)
+print('patched')
test.patch
#!/bin/bash
cd /testbed && git apply --unidiff-zero /test.patch && python -m app.main
eval.sh
RUN bash /eval.sh && git checkout -q .
""",
        PYTHON,
    ),
    "a Terminal-Bench-like task": Form(
        f"""FROM {BASE}
{APT} tmux asciinema python3 curl {CLEAN}
WORKDIR /app
COPY --chmod=755 run.sh ./
RUN ./run.sh > expected && mkdir -p /logs /tests
ENV TEST_DIR=/tests
COPY tests /tests
CMD ["sleep", "infinity"]
""",
        {"run.sh": "#!/bin/sh\nseq 1 10\n", "tests/test_outputs.py": "assert open('/app/expected').read()\n"},
    ),
    "a web server's": Form(
        f"""FROM {BASE}
LABEL org.opencontainers.image.title=web
{APT} nginx-light {CLEAN} \\
 && ln -sf /dev/stdout /var/log/nginx/access.log
COPY --chown=www-data:www-data site/ /var/www/html/
ADD site.tar.gz /srv/
VOLUME /var/cache/nginx
EXPOSE 80 443/tcp
STOPSIGNAL SIGQUIT
RUN nginx -t
ENTRYPOINT ["nginx"]
CMD ["-g", "daemon off;"]
""",
        {"site/index.html": "<p>web\n"},
    ),
}


def write_files(form: Form, folder: Path) -> None:
    """Write what is beside a Dockerfile into a new directory."""
    folder.mkdir()
    for name, text in form.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if "site/index.html" in form.files:
        subprocess.run(["/usr/bin/tar", "-czf", folder / "site.tar.gz", "-C", folder, "site"], check=True)


async def build_twice(name: str, form: Form, settings: MeshSettings, folder: Path) -> str:
    """Build a form twice; return its row."""
    await asyncio.to_thread(write_files, form, folder)
    tail: list[str] = []
    options = ImageBuildOptions(dockerfile=form.text.encode(), context=Context(folder))
    seconds: list[float] = []
    written = 0
    cached: list[str] = []
    for number in range(2):
        began = time.monotonic()
        try:
            _, totals = await build_image(settings, f"form:{number}", options, Report(output=tail.append))
        except SandmeshError as error:
            return f"| {name} | fails: {error.message} {' / '.join(tail[-5:])} |"
        seconds.append(time.monotonic() - began)
        written += totals.written
        cached.append(f"{totals.cached} of {totals.steps}")
    times = ", ".join(f"{second:.1f}" for second in seconds)
    return f"| {name} | {times} | {cached[0]}, {cached[1]} | {written / 1e6:.1f} MB |"


async def measure(names: Sequence[str], base: Path) -> None:
    """Build each form twice, and print the table."""
    folder = Path(tempfile.mkdtemp(prefix="sandmesh-forms-", dir="/var/tmp"))
    try:
        images: dict[str, Path] = {"images": folder / "images"}
        if CERTIFICATES.exists():
            images["image_build_certificates"] = CERTIFICATES
        settings = MeshSettings.model_validate({"image_store": images})
        await ImageStore(settings.image_store, folder).import_image(base, BASE)
        print("| Dockerfile | seconds, first and again | cached, first and again | layers, compressed |")
        print("| --- | --- | --- | --- |")
        for number, name in enumerate(names):
            print(await build_twice(name, FORMS[name], settings, folder / str(number)), flush=True)
        print(f"\nload at the end: {', '.join(f'{one:.1f}' for one in os.getloadavg())}")
    finally:
        await asyncio.to_thread(remove_tree, folder)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FORMS)}; by default all")
    parser.add_argument("--base", type=Path, help="the tar of a Debian root; by default mmdebstrap makes one")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in FORMS]
    if unknown:
        parser.error(f"there is no form {unknown[0]!r}: they are {', '.join(FORMS)}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        base = arguments.base or Path(made, "debian.tar")
        if arguments.base is None:
            program = shutil.which("mmdebstrap") or sys.exit("install mmdebstrap, or name a root by --base")
            subprocess.run([program, "--variant=apt", "--include=ca-certificates", "bookworm", base], check=True)
        asyncio.run(measure(arguments.names or list(FORMS), base))


if __name__ == "__main__":
    main()
