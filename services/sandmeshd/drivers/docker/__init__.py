"""The docker driver: a container a sandbox, on the engine whose socket is named.

The engine holds the sandboxes; the mesh's state directory has what changes of them (token, labels), a folder each.
`app` opens it and needs aiodocker; `settings` can be made without.
"""
