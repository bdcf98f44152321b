"""PostgreSQL and nginx, installed by apt-get into a root of Debian, in snapshots and forks: minutes, so on request.

SANDMESH_TEST_DEBIAN names the tar of the root, as of `mmdebstrap --variant=apt bookworm root.tar`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from tests.mesh.conftest import MeshMaker
from tests.mesh.images.test_image_packages import Program, check
from tests.mesh.images.test_image_roots import mesh_with
from tests.ordinary import run_tests, subordinate_home

pytestmark = [pytest.mark.needs("uids for sandboxes"), pytest.mark.timeout(1800)]

DEBIAN = Program(
    install="export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && "
    "apt-get -qq install -y --no-install-recommends postgresql nginx curl && service postgresql start && "
    'su postgres -c "createdb shop" && su postgres -c "psql -qc \'create table t as select 6*7 as answer\' shop"',
    start="service postgresql start; service nginx start",
    look="curl -sS --noproxy '*' http://127.0.0.1/ | grep -o 'Welcome to nginx' | head -1;"
    "su postgres -c \"psql -Atc 'select answer from t' shop\"; stat -c %U /var/lib/postgresql",
    expected=("Welcome to nginx", "42", "postgres"),
)


async def test_postgresql_and_nginx_serve_in_snapshots_and_forks(make_mesh: MeshMaker) -> None:
    async with mesh_with(make_mesh, {}) as (mesh, folder):
        store = ImageStore(ImageSettings(images=folder / "images"), folder)
        await store.import_image(Path(os.environ["SANDMESH_TEST_DEBIAN"]), "debian:1")
        await check(mesh.addresses[0], "debian:1", DEBIAN, ["packages"])


@pytest.mark.needs("root", "uidmap")
def test_postgresql_and_nginx_serve_for_an_ordinary_user_with_subordinate_ids() -> None:
    with subordinate_home() as home:
        run_tests(home, __file__, "-k", "not ordinary_user")
