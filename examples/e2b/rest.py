"""The methods of E2B's client that the other programs leave."""

import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

from e2b import Sandbox, Secret, Template
from e2b.sandbox.commands.command_handle import PtySize
from e2b_code_interpreter import Sandbox as Interpreter

HOME = "/home/user"
sandbox = Sandbox.create(timeout=300)
assert sandbox.get_host(8000).startswith("8000-")
assert "signature" in sandbox.upload_url("note", use_signature_expiration=60)
sandbox.files.write("note", "by its address")
with urlopen(sandbox.download_url("note", use_signature_expiration=60), timeout=30) as note:  # noqa: S310 - a mesh
    assert note.read() == b"by its address"

# Changes of a directory.
sandbox.files.make_dir("watched")
watched = sandbox.files.watch_dir("watched")
sandbox.files.write("watched/new", "x")
end = time.monotonic() + 30
events = []
while not events and time.monotonic() < end:
    events = watched.get_new_events()
assert events[0].name == "new", events
watched.stop()

# Input of commands, and a second client of one.
reader = sandbox.commands.run("cat", background=True, stdin=True)
reader.send_stdin("one\n")
sandbox.commands.send_stdin(reader.pid, "two\n")
again = sandbox.commands.connect(reader.pid)
again.disconnect()
reader.close_stdin()
assert reader.wait().stdout == "one\ntwo\n"
streamed = sandbox.commands.run("cat", background=True, stdin=True)
sandbox.commands.stream_input(streamed.pid, ["a", b"b"])
sandbox.commands.close_stdin(streamed.pid)
assert streamed.wait().stdout == "ab"
assert sandbox.commands.run("sleep 1000", background=True).kill()

# Terminals.
terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
sandbox.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
sandbox.pty.send_stdin(terminal.pid, b"stty size > size\n")
sandbox.pty.stream_input(terminal.pid, [b"echo done > done\n"])
while not sandbox.files.exists("done"):
    time.sleep(0.05)
assert sandbox.files.read("size") == "30 100\n"
sandbox.pty.connect(terminal.pid).disconnect()
assert sandbox.pty.kill(terminal.pid)

# Git, with another repository of the sandbox in the place of a remote one.
sandbox.commands.run("git init -q --bare -b main origin.git")
sandbox.git.clone(f"file://{HOME}/origin.git", path="clone")
sandbox.git.configure_user("Ada", "ada@example.org")
assert sandbox.git.get_config("user.name") == "Ada"
sandbox.files.write("clone/note", "first")
sandbox.git.add("clone")
sandbox.git.commit("clone", "Begin")
branch = sandbox.git.status("clone").current_branch or "main"
sandbox.git.push("clone", remote="origin", branch=branch)
assert sandbox.commands.run("git -C origin.git log --format=%an:%s").stdout == "Ada:Begin\n"
sandbox.git.create_branch("clone", "more")
sandbox.git.checkout_branch("clone", branch)
sandbox.git.delete_branch("clone", "more", force=True)
sandbox.commands.run(
    "git clone -q origin.git other && cd other && touch new && git add new && git commit -qm More && git push -q"
)
sandbox.git.pull("clone", remote="origin", branch=branch)
assert sandbox.files.exists("clone/new")
sandbox.git.remote_add("clone", "other", "https://example.org/other.git")
assert sandbox.git.remote_get("clone", "other") == "https://example.org/other.git"
sandbox.files.write("clone/note", "second")
sandbox.git.restore("clone", ["note"])
assert sandbox.files.read("clone/note") == "first"
sandbox.files.write("clone/note", "third")
sandbox.git.reset("clone", mode="hard")
assert sandbox.files.read("clone/note") == "first"
sandbox.git.dangerously_authenticate("ada", "not-a-password", host="example.org")
assert list(sandbox.git.branches("clone").branches) == [branch]

# Templates in the background.
folder = Path(tempfile.mkdtemp())
template = Template(file_context_path=folder).skip_cache().from_base_image().run_cmd("true")
assert Template.to_json(template)
begun = Template.build_in_background(template, "trial-rest")
while Template.get_build_status(begun).status.value not in ("ready", "error"):
    time.sleep(0.1)
assert Template.get_build_status(begun).status.value == "ready"
assert Template.alias_exists("trial-rest")
assert not Template.alias_exists("trial-nothing")

# Pauses by their older name, a restarted context, and what a mesh does not offer: 501.
sandbox.beta_pause()
assert sandbox.connect().is_running()
assert Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id).next_items() == []
snapshot = sandbox.create_snapshot()
listed = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id).next_items()
assert [one.snapshot_id for one in listed] == [snapshot.snapshot_id]
assert Sandbox.delete_snapshot(snapshot.snapshot_id)
assert sandbox.kill()
interpreter = Interpreter.create(timeout=120)
context = interpreter.create_code_context()
interpreter.run_code("x = 1", context=context)
interpreter.restart_code_context(context)
assert interpreter.run_code("x", context=context).error is not None
assert interpreter.kill()
for call in (
    lambda: Secret.create("trial", "value"),
    lambda: Secret.exists("trial"),
    lambda: Secret.get_info("trial"),
    lambda: Secret.update("trial", "other"),
    lambda: Secret.destroy("trial"),
    lambda: Secret.list().next_items(),
):
    try:
        call()
    except Exception as error:  # Of which class it is is the client's own affair.
        assert "does not offer" in str(error), error
    else:
        raise AssertionError("a mesh has no secrets for E2B's clients")
print("every call answered")
