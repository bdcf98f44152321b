"""The files of a sandbox as programs read and write them."""
