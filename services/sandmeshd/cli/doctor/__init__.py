"""`sandmesh doctor`: checks of the machine, its drivers and its mesh."""
