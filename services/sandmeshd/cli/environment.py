"""Settings from the environment: SANDMESH_ and the setting's name."""

from __future__ import annotations

import os
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.clients import read_clients
from sandmeshd.mesh.settings import MeshSettings


class EnvironmentSettings(MeshSettings):
    """MeshSettings with the environment below what is given, and the configuration of pip and npm below that."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what is given, then the environment, then what this machine's own clients are configured with."""
        return (init_settings, env_settings, InitSettingsSource(settings_cls, read_clients(os.environ)))


def read_settings(**given: Any) -> MeshSettings:
    """Read the environment; what is given and not None goes before it.

    Raises:
        InvalidArgument: A value does not fit; the message names the variable.
    """
    stated = {name: value for name, value in given.items() if value is not None}
    try:
        return EnvironmentSettings(**stated)
    except ValidationError as error:
        problems = "; ".join(
            f"SANDMESH_{'.'.join(str(part) for part in problem['loc']).upper()}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise InvalidArgument(f"settings do not fit: {problems}") from None
