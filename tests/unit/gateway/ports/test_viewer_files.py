"""The page of a desktop has noVNC as its makers published it."""

from __future__ import annotations

import base64
import hashlib
import tarfile

from sandmeshd.contracts import novnc

INTEGRITY = "ucEJOx4T2avIRCleodk7YobZj5O2Ga2AeLfQ69A/yjG9HHba2+PDgwSkN3FttrmG+70ZGx21sElNFouK13RzyA=="
"""What the npm registry says of @novnc/novnc 1.7.0."""


def test_novnc_is_the_published_package_with_its_licences() -> None:
    assert base64.b64encode(hashlib.sha512(novnc.PACKAGE.read_bytes()).digest()).decode() == INTEGRITY
    with tarfile.open(novnc.PACKAGE) as archive:
        names = set(archive.getnames())
    assert {"package/LICENSE.txt", "package/docs/LICENSE.MPL-2.0", "package/vendor/pako/LICENSE"} <= names
