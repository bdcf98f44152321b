"""The modes of starting a sandbox: by a separate bwrap, or by a zygote."""
