"""Settings from the environment: SANDMESH_ and the setting's name."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from sandmesh.errors import InvalidArgument
from sandmeshd.mesh.settings import MeshSettings


class EnvironmentSettings(MeshSettings):
    """MeshSettings with the environment below what is given."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what is given, then the environment."""
        return (init_settings, env_settings)


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
