"""Images that programs describe, and a mesh builds: each method is an instruction of a Dockerfile."""
