"""Protections against images."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LAYERS = "services/sandmeshd/images/layers"
_CASES = "tests/unit/images/test_unpack.py"
_REGISTRY = "tests/unit/images/test_registry.py"

_DOCKERFILES = "tests/unit/images/test_dockerfiles.py"
_BUILDS = "tests/mesh/images/test_builds.py"
_DESCRIBED = "tests/mesh/images/test_described_images.py"

IMAGES = (
    Mutant(
        "a link of a build's directory leads not out of it",
        "services/sandmeshd/agent/boot/build_step/sources.py",
        "if real != whole and not real.startswith(f\"{whole.rstrip('/')}/\"):",
        "if not real:",
        f"{_DOCKERFILES}::test_files_of_a_build_have_a_digest_of_what_they_are",
    ),
    Mutant(
        "a command of a build reaches only what is granted",
        "services/sandmeshd/drivers/bubblewrap/images/steps.py",
        "mode = sandbox_pb2.NETWORK_MODE_HOSTS if network else sandbox_pb2.NETWORK_MODE_NONE",
        "mode = sandbox_pb2.NETWORK_MODE_PUBLIC\n    network = (*network, '127.0.0.1')",
        f"{_BUILDS}::test_a_command_reaches_what_is_granted_and_nothing_else",
    ),
    Mutant(
        "users share no result of a command of a build",
        "services/sandmeshd/images/builds/plans.py",
        "    if options.owner:\n",
        "    if not options.owner:\n",
        f"{_DESCRIBED}::test_users_build_under_names_of_their_own_and_reach_no_file_of_the_host",
    ),
    Mutant(
        "a name for all of a mesh takes an administrator",
        "services/sandmeshd/images/builds/servicer.py",
        'if request.name and principal.scope == "user":',
        "if not principal:",
        f"{_DESCRIBED}::test_users_build_under_names_of_their_own_and_reach_no_file_of_the_host",
    ),
    Mutant(
        "what a command of a build leaves on disk is bounded",
        "services/sandmeshd/drivers/bubblewrap/images/step_limits.py",
        "if await asyncio.to_thread(_size, directory, most) > most:",
        "if await asyncio.to_thread(_size, directory, most) < 0:",
        f"{_BUILDS}::test_a_command_is_bounded_in_memory_processes_and_disk",
    ),
    Mutant(
        "what a step has for itself is in no layer",
        "services/sandmeshd/agent/boot/build_step/step.py",
        '"run/agent", ',
        "",
        f"{_BUILDS}::test_mounts_are_there_for_their_command_only",
    ),
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
