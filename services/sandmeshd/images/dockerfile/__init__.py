"""Reads Dockerfiles: instructions with their lines, words with variables and quotes."""

from sandmeshd.images.dockerfile.parser import Heredoc, ParsedInstruction, parse_dockerfile
from sandmeshd.images.dockerfile.words import expand, raw_words

__all__ = ["Heredoc", "ParsedInstruction", "expand", "parse_dockerfile", "raw_words"]
