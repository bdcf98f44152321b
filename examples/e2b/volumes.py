"""What E2B's pages show of volumes, by its own client: files that outlive sandboxes, and that several have at once."""

import io

from e2b import Sandbox, Volume
from e2b.exceptions import NotFoundException

HOME = "/home/user"
volume = Volume.create("trial-data")
assert volume.name == "trial-data"
assert volume.token
try:
    Volume.create("trial-data")
except Exception as error:  # Of which class it is is the client's own affair.
    assert "already exists" in str(error), error
else:
    raise AssertionError("two volumes have one name")

# Its contents, without a sandbox.
written = volume.write_file("/notes/first.txt", "hello")
assert (written.type.value, written.size, written.path) == ("file", 5, "/notes/first.txt"), written
assert volume.read_file("/notes/first.txt") == "hello"
volume.write_file("/numbers.bin", io.BytesIO(bytes(range(256)) * 4096), mode=0o640)
assert volume.get_info("/numbers.bin").mode == 0o640
assert b"".join(volume.read_file("/numbers.bin", format="stream")) == bytes(range(256)) * 4096
assert volume.make_dir("/deep/er", force=True).type.value == "directory"
assert [one.path for one in volume.list("/")] == ["/deep", "/notes", "/numbers.bin"]
assert [one.path for one in volume.list("/", depth=2)][1] == "/deep/er"
assert volume.update_metadata("/deep/er", mode=0o750).mode == 0o750
assert volume.exists("/notes/first.txt")
volume.remove("/deep")
assert not volume.exists("/deep")
try:
    volume.read_file("/deep/none")
except NotFoundException:
    pass
else:
    raise AssertionError("a missing file was read")

# Two sandboxes that have it at once, at places of their own.
first = Sandbox.create(timeout=120, volume_mounts={"/mnt/data": volume})
second = Sandbox.create(timeout=120, volume_mounts={f"{HOME}/data": "trial-data"})
assert first.commands.run("cat /mnt/data/notes/first.txt").stdout == "hello"
first.commands.run("echo from the first > /mnt/data/shared.txt")
assert second.commands.run("cat data/shared.txt; ls data").stdout == "from the first\nnotes\nnumbers.bin\nshared.txt\n"
second.files.write(f"{HOME}/data/shared.txt", "from the second")
assert first.files.read("/mnt/data/shared.txt") == "from the second"
assert volume.read_file("/shared.txt") == "from the second"
for sandbox in (first, second):
    assert sandbox.kill()

# They are gone, and it is there for the next.
third = Sandbox.create(timeout=120, volume_mounts={"/mnt/data": Volume.connect("trial-data")})
assert third.commands.run("cat /mnt/data/shared.txt").stdout == "from the second"
assert third.kill()
assert [one.name for one in Volume.list()] == ["trial-data"]
assert Volume.get_info("trial-data").name == "trial-data"
assert Volume.destroy("trial-data")
assert not Volume.destroy("trial-data")
assert Volume.list() == []
try:
    Sandbox.create(timeout=120, volume_mounts={"/mnt/data": "trial-data"})
except Exception as error:  # As above.
    assert "volume 'trial-data' not found" in str(error), error
else:
    raise AssertionError("a volume that is gone was mounted")
print("every call answered")
