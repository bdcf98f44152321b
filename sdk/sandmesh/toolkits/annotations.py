"""Python signatures of JSON Schemas, for frameworks that read the parameters of functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import Parameter, Signature
from typing import Any, Literal, cast

_NONE = type(None)
_SCALARS = {"string": str, "integer": int, "number": float, "boolean": bool, "null": _NONE}


def signature_of(parameters: Mapping[str, Any]) -> Signature:
    """Return the signature of an object's schema: required parameters first, each with its type and default.

    A default of None means that the argument was omitted: the tool's own default is in its schema.
    """
    required = parameters.get("required", ())
    properties = cast("dict[str, dict[str, Any]]", parameters.get("properties", {}))
    made = [
        _parameter(name, schema, is_required=name in required)
        for name, schema in sorted(properties.items(), key=lambda item: item[0] not in required)
    ]
    return Signature(made, return_annotation=str)


def docstring_of(description: str, parameters: Mapping[str, Any]) -> str:
    """Return a docstring with a section on the arguments, in Google's style."""
    properties = cast("dict[str, dict[str, Any]]", parameters.get("properties", {}))
    described = {name: " ".join(str(schema.get("description", "")).split()) for name, schema in properties.items()}
    lines = [f"    {name}: {text}" for name, text in described.items() if text]
    return "\n".join([description, "", "Args:", *lines]) if lines else description


def _parameter(name: str, schema: Mapping[str, Any], *, is_required: bool) -> Parameter:
    kind, annotation = Parameter.POSITIONAL_OR_KEYWORD, _annotation(schema)
    if is_required:
        return Parameter(name, kind, annotation=annotation)
    default = schema.get("default")
    if default is None and annotation is not Any:
        annotation = _union([annotation, _NONE])
    return Parameter(name, kind, default=default, annotation=annotation)


def _annotation(schema: object) -> Any:
    if not isinstance(schema, Mapping):
        return Any
    about = cast("Mapping[str, Any]", schema)
    alternatives = about.get("anyOf") or about.get("oneOf")
    if alternatives:
        return _union(map(_annotation, alternatives))
    return Literal[tuple(about["enum"])] if about.get("enum") else _by_type(about)


def _by_type(about: Mapping[str, Any]) -> Any:
    kind: object = about.get("type", "object" if "$ref" in about else None)
    if isinstance(kind, list):
        return _union(_annotation({**about, "type": name}) for name in cast("list[object]", kind))
    if kind == "array":
        return _generic(list, _annotation(about.get("items") or _first(about.get("prefixItems"))))
    if kind == "object":
        return _generic(dict, str, _annotation(about.get("additionalProperties")))
    return _SCALARS.get(kind, Any) if isinstance(kind, str) else Any


def _generic(kind: Any, *arguments: Any) -> Any:
    return kind[arguments]


def _first(items: object) -> object:
    return cast("list[object]", items)[0] if isinstance(items, list) and items else None


def _union(annotations: Iterable[Any]) -> Any:
    kinds = list(dict.fromkeys(annotations))
    if not kinds or Any in kinds:
        return Any
    union = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return union
