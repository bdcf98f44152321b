"""The modes of starting a sandbox: by a bwrap of its own, or by a zygote."""
