"""The reference of the gRPC API, from the protos and their comments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

ROOT: Final = Path(__file__).resolve().parents[2]
HEAD: Final = """# gRPC reference

Made from the protos, a page for each package. [Other languages](../../grpc.md) shows how to call it.

"""
# Numbers of fields in descriptor.proto, of which a location's path is made.
_MESSAGE, _ENUM, _SERVICE, _NESTED, _NESTED_ENUM = 4, 5, 6, 3, 4
_LEAF: Final = 2
Comments = Mapping[tuple[int, ...], str]


def read_protos() -> FileDescriptorSet:
    """Return the protos with their comments."""
    buf = Path(sys.executable).with_name("buf")
    command = [str(buf), "build", "--as-file-descriptor-set", "--exclude-imports", "-o", "-#format=binpb"]
    return FileDescriptorSet.FromString(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def write_reference(folder: Path) -> list[str]:
    """Write a page for each package and an index, and return their names."""
    folder.mkdir(parents=True)
    names, rows = list[str](), list[str]()
    for file in sorted(read_protos().file, key=lambda one: one.package):
        name = file.package.removeprefix("sandmesh.api.").removesuffix(".v1")
        (folder / f"{name}.md").write_text("\n".join(Page(file).lines()) + "\n")
        services = ", ".join(f"{one.name} ({len(one.method)} RPCs)" for one in file.service)
        rows.append(f"| [{file.package}]({name}.md) | {services or 'messages'} |")
        names.append(name)
    (folder / "index.md").write_text(HEAD + "\n".join(["| package | what it has |", "| --- | --- |", *rows, ""]))
    return names


class Page:
    """The page of a package."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments: Comments = {
            tuple(one.path): " ".join(one.leading_comments.split()) or " ".join(one.trailing_comments.split())
            for one in file.source_code_info.location
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page."""
        yield f"# {self._file.package}\n"
        for number, service in enumerate(self._file.service):
            yield from self._service(service, (_SERVICE, number))
        for number, message in enumerate(self._file.message_type):
            yield from self._message(message, self._file.package, (_MESSAGE, number))
        for number, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, self._file.package, (_ENUM, number))

    def _comment(self, path: tuple[int, ...]) -> str:
        return _escaped(self._comments.get(path, ""))

    def _service(self, service: ServiceDescriptorProto, path: tuple[int, ...]) -> Iterator[str]:
        yield from _heading(f"service {service.name}", f"{self._file.package}.{service.name}")
        yield f"{self._comment(path)}\n"
        for number, method in enumerate(service.method):
            yield from _heading(method.name, f"{self._file.package}.{service.name}.{method.name}", 3)
            sent = f"{'stream ' if method.client_streaming else ''}{_reference(method.input_type, self._file.package)}"
            got = f"{'stream ' if method.server_streaming else ''}{_reference(method.output_type, self._file.package)}"
            yield f"{sent} → {got}\n"
            yield f"{self._comment((*path, _LEAF, number))}\n"

    def _message(self, message: DescriptorProto, scope: str, path: tuple[int, ...]) -> Iterator[str]:
        if message.options.map_entry:
            return
        full = f"{scope}.{message.name}"
        yield from _heading(full.removeprefix(f"{self._file.package}."), full)
        yield f"{self._comment(path)}\n"
        maps = {f".{full}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
        if message.field:
            yield "| field | type | |\n| --- | --- | --- |"
            for number, field in enumerate(message.field):
                kind = self._kind(field, maps)
                yield f"| `{field.name}` = {field.number} | {kind} | {self._comment((*path, _LEAF, number))} |"
            yield ""
        for number, nested in enumerate(message.nested_type):
            yield from self._message(nested, full, (*path, _NESTED, number))
        for number, enum in enumerate(message.enum_type):
            yield from self._enum(enum, full, (*path, _NESTED_ENUM, number))

    def _kind(self, field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto]) -> str:
        entry = maps.get(field.type_name)
        if entry is not None:
            key, value = (self._kind(one, {}) for one in entry.field)
            return f"map of {key} to {value}"
        kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        kind = _reference(field.type_name, self._file.package) if field.type_name else kind
        return f"repeated {kind}" if field.label == FieldDescriptorProto.LABEL_REPEATED else kind

    def _enum(self, enum: EnumDescriptorProto, scope: str, path: tuple[int, ...]) -> Iterator[str]:
        full = f"{scope}.{enum.name}"
        yield from _heading(full.removeprefix(f"{self._file.package}."), full)
        yield f"{self._comment(path)}\n"
        yield "| value | |\n| --- | --- |"
        for number, value in enumerate(enum.value):
            yield f"| `{value.name}` = {value.number} | {self._comment((*path, _LEAF, number))} |"
        yield ""


def _heading(text: str, anchor: str, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {text} {{ #{anchor} }}\n"


def _reference(type_name: str, package: str) -> str:
    """Return a link to a type of these protos; one of another project is its name."""
    full = type_name.removeprefix(".")
    if not full.startswith("sandmesh.api."):
        return f"`{full}`"
    page = full.split(".")[2]
    where = "" if full.startswith(f"{package}.") else f"{page}.md"
    return f"[{'.'.join(full.split('.')[4:])}]({where}#{full})"


def _escaped(text: str) -> str:
    """Return a comment for a cell of a table: what is not code has no markup."""
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))
