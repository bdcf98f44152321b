from sandmesh import FilesystemSandbox, Output

with FilesystemSandbox() as box:
    box.write_file("job.sh", "for i in 1 2 3; do echo step $i; sleep 0.2; done")
    for event in box.stream("run_shell_command", command="bash job.sh"):
        if isinstance(event, Output):
            print(event.text, end="")
    print(box.edit_file("job.sh", [{"oldText": "1 2 3", "newText": "1 2"}]).text)
