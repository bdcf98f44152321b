"""The sandboxes of one driver: a folder each with its record, and a box that runs or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.boxlite.boxes import Box, box_name
from sandmeshd.drivers.node.records import Folder, MeshFolders, read_record


class BoxView:
    """The sandboxes of one mesh, as their records and the last list of boxes have them."""

    def __init__(self, mesh_id: str, folders: MeshFolders) -> None:
        self._mesh_id = mesh_id
        self._folders = folders
        self._boxes: dict[str, Box] = {}

    def renew(self, boxes: Mapping[str, Box]) -> set[str]:
        """Take a list of boxes by name; return the sandboxes whose box ran before and does not any more."""
        former, self._boxes = self._boxes, dict(boxes)
        return {
            folder.sandbox_id
            for folder in self._folders.all()
            if (name := box_name(self._mesh_id, folder.sandbox_id))
            and (before := former.get(name)) is not None
            and before.is_running
            and not (name in boxes and boxes[name].is_running)
        }

    def note(self, box: Box) -> None:
        """Note what became of one box."""
        self._boxes[box.name] = box

    def folder(self, sandbox_id: str) -> Folder:
        """Return a sandbox's folder."""
        return self._folders.folder(sandbox_id)

    def find(self, sandbox_id: str) -> pb.RuntimeSandbox | None:
        """Return a sandbox, None if nothing of it is left."""
        folder = self._folders.folder(sandbox_id)
        record = read_record(folder)
        if record is None:
            if not folder.root.is_dir():
                return None
            return pb.RuntimeSandbox(
                sandbox_id=sandbox_id,
                mesh_id=self._mesh_id,
                state=pb.RUNTIME_STATE_ENDED,
                end_detail="its start was left unfinished",
            )
        box = self._boxes.get(box_name(self._mesh_id, sandbox_id))
        if box is None or not box.is_running:
            record.sandbox.state = pb.RUNTIME_STATE_ENDED
            record.sandbox.end_detail = f"its box is {box.status}" if box else "its box is gone"
        return record.sandbox

    def all(self) -> list[pb.RuntimeSandbox]:
        """Return every sandbox that has left anything, by id."""
        found = (self.find(folder.sandbox_id) for folder in self._folders.all())
        return [sandbox for sandbox in found if sandbox is not None]


def born_directory(folder: Folder) -> Path:
    """Return where the files are that configure a sandbox's agent."""
    return folder.root / "born"
