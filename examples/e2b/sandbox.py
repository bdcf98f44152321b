"""What E2B's start pages show of sandboxes, by its own client: only environment variables say that it is a mesh."""

from e2b import CommandExitException, Sandbox, SandboxQuery

sandbox = Sandbox.create(timeout=120, metadata={"task": "a trial & more"}, envs={"GREETING": "hello"})
assert sandbox.is_running()
assert sandbox.get_info().metadata == {"task": "a trial & more"}

# Commands: in the foreground, with input, in the background.
result = sandbox.commands.run('echo "$GREETING from $(pwd)"')
assert result.stdout == "hello from /home/user\n", result
try:
    sandbox.commands.run("echo trouble >&2; exit 3")
except CommandExitException as error:
    assert (error.exit_code, error.stderr) == (3, "trouble\n")
reader = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
sandbox.commands.send_stdin(reader.pid, "a line\n")
assert reader.wait().stdout == "got a line\n"
sleeper = sandbox.commands.run("sleep 1000", background=True)
assert sleeper.pid in {process.pid for process in sandbox.commands.list()}
assert sandbox.commands.kill(sleeper.pid)
assert not sandbox.commands.kill(99_999)

# Files: text, bytes, several at once, directories, a path beyond the home.
sandbox.files.write("data/note.txt", "hello")
assert sandbox.files.read("data/note.txt") == "hello"
assert bytes(sandbox.files.read("data/note.txt", format="bytes")) == b"hello"
assert len(sandbox.files.write_files([{"path": "a", "data": "1"}, {"path": "b", "data": b"2"}])) == 2
assert sandbox.files.make_dir("made")
assert not sandbox.files.make_dir("made")
sandbox.files.rename("data/note.txt", "made/note.txt")
assert [entry.name for entry in sandbox.files.list("made")] == ["note.txt"]
assert not sandbox.files.exists("data/note.txt")
sandbox.files.write("/tmp/beyond", "of the home")
assert sandbox.files.read("/tmp/beyond") == "of the home"
sandbox.files.remove("made")
names = {entry.name for entry in sandbox.files.list("/home/user")}
assert {name for name in names if not name.startswith(".")} == {"a", "b", "data"}

# Whom it is done as: one user, who answers to root.
assert sandbox.commands.run("whoami; echo $HOME; sudo whoami").stdout == "user\n/home/user\nuser\n"
assert sandbox.commands.run("sudo -E -u root -- env MODE=x sh -c 'echo $MODE'", user="root").stdout == "x\n"
assert sandbox.files.read("a", user="root") == "1"
assert sandbox.commands.run("python --version").stdout.startswith("Python 3")

# Git.
sandbox.git.init("repository")
sandbox.git.configure_user("Ada", "ada@example.org", scope="local", path="repository")
sandbox.files.write("repository/note", "hello")
sandbox.git.add("repository")
assert [one.name for one in sandbox.git.status("repository").file_status] == ["note"]
sandbox.git.commit("repository", "Begin")
sandbox.git.create_branch("repository", "more")
assert sandbox.git.branches("repository").current_branch == "more"
assert not sandbox.git.status("repository").file_status

# What it uses, lists, time limits, a second client, snapshots.
assert sandbox.get_metrics()[0].mem_used > 0
end = sandbox.get_info().end_at
sandbox.set_timeout(300)
assert sandbox.get_info().end_at > end
found = Sandbox.list(query=SandboxQuery(metadata={"task": "a trial & more"})).next_items()
assert [one.sandbox_id for one in found] == [sandbox.sandbox_id]
assert Sandbox.connect(sandbox.sandbox_id).commands.run("cat a").stdout == "1"
snapshot = sandbox.create_snapshot()
copy = Sandbox.create(snapshot.snapshot_id)
assert copy.files.read("b") == "2"
assert copy.kill()
assert Sandbox.delete_snapshot(snapshot.snapshot_id)

assert sandbox.kill()
assert not sandbox.kill()
assert not sandbox.is_running()
print("every call answered")
