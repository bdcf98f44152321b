"""The commands: `sandmesh` for users, `sandmeshd` for services; the only readers of the environment."""
