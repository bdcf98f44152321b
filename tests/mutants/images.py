"""Protections against images."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LAYERS = "services/sandmeshd/images/layers"
_CASES = "tests/unit/images/test_unpack.py"
_REGISTRY = "tests/unit/images/test_registry.py"

IMAGES = (
    Mutant(
        "a layer's name leads to nothing above it",
        f"{_LAYERS}/unpacker.py",
        'if b".." in parts or b"\\0" in name:',
        'if b"\\0" in name:',
        f"{_CASES}::test_hostile_layers_are_refused_and_leave_nothing",
    ),
    Mutant(
        "overlayfs' own attributes do not come from layers",
        f"{_LAYERS}/unpacker.py",
        'name.startswith(b"user.overlay.") or ',
        "",
        f"{_CASES}::test_overlayfs_own_attributes_do_not_come_from_layers",
    ),
    Mutant(
        "a layer is bounded as it is decompressed",
        f"{_LAYERS}/unpacker.py",
        "        self.bounds.take(size=len(data))\n",
        "",
        f"{_CASES}::test_bombs_are_refused",
    ),
    Mutant(
        "a blob is what its digest says",
        "services/sandmeshd/images/blobs.py",
        "if found != blob.digest:",
        "if not found:",
        f"{_REGISTRY}::test_wrong_digests_are_refused_and_leave_nothing",
    ),
    Mutant(
        "a sandbox that was prepared for one image is not taken for another",
        "services/sandmeshd/drivers/bubblewrap/images/fork_start.py",
        "own = (self.root, ",
        'own = (replace(self.root, layers=(), user="", root=None), ',
        "tests/mesh/images/test_image_zygotes.py::test_sandboxes_of_a_recent_image_are_prepared_ahead",
    ),
    Mutant(
        "an image that a sandbox uses is not removed",
        "services/sandmeshd/images/collection.py",
        "        if lock is None and not has_other:\n            return False\n",
        "",
        f"{_REGISTRY}::test_images_in_use_stay_and_others_go_from_the_least_used_on",
    ),
)
