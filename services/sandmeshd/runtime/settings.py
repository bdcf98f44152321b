"""The base of all settings classes, and the variables that their fields are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pydantic import BaseModel, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sandmeshd.runtime.setting_types import check_number, check_text

PREFIX = "SANDMESH_"
OF_DERIVED = "*"
"""The `env_prefix` of a class whose fields have the prefix of whichever class derives from it."""


class Settings(BaseSettings):
    """A frozen settings class that takes its arguments only: the environment is read by the command line.

    A field can be configured if it has a variable: its `validation_alias`, or else its name after the `env_prefix` of
    the class that declares it. A field without one is set by the services themselves.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_text(cls, value: Any, info: ValidationInfo) -> Any:
        check_text(value, cls.model_fields[str(info.field_name)])
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _check_number(cls, value: Any, info: ValidationInfo) -> Any:
        check_number(value, str(info.field_name))
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the arguments as the only source."""
        return (init_settings,)


@dataclass(frozen=True)
class Variable:
    """A variable of the environment, and the field that it sets."""

    name: str
    path: tuple[str, ...]
    """The names of the nested fields, from the outermost class to the value."""
    field: FieldInfo

    @property
    def setting(self) -> str:
        """The setting's name: the variable's without the prefix, in lower case."""
        return self.name.removeprefix(PREFIX).lower()

    def read(self, settings: BaseModel) -> Any:
        """Return the value that settings have for it."""
        value: Any = settings
        for name in self.path:
            value = getattr(value, name)
        return value

    def read_plain(self, dump: Mapping[str, Any]) -> Any:
        """Return the value that dumped settings have for it."""
        return reduce(lambda value, name: value[name], self.path, dump)


def variables_of(cls: type[BaseModel]) -> dict[str, Variable]:
    """Return the variables of a settings class and of those nested in it, by name."""
    found: dict[str, Variable] = {}
    for name, field in cls.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            nested = variables_of(field.annotation)
            found |= {one.name: replace(one, path=(name, *one.path)) for one in nested.values()}
        elif variable := _variable(cls, name, field):
            found[variable] = Variable(variable, (name,), field)
    return found


def nested(values: Mapping[str, object], variables: Mapping[str, Variable]) -> dict[str, Any]:
    """Return values by variable as the nested arguments of their class."""
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        *outer, last = variables[name].path
        inner = arguments
        for step in outer:
            inner = inner.setdefault(step, {})
        inner[last] = value
    return arguments


def _variable(cls: type[BaseModel], name: str, field: FieldInfo) -> str:
    if isinstance(field.validation_alias, str):
        return field.validation_alias
    declaring = next(
        base for base in reversed(cls.__mro__) if issubclass(base, BaseModel) and name in base.model_fields
    )
    prefix = str(declaring.model_config.get("env_prefix", ""))
    prefix = str(cls.model_config.get("env_prefix", "")) if prefix == OF_DERIVED else prefix
    return f"{prefix}{name}".upper() if prefix and not field.exclude else ""
