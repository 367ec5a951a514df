"""The workers' processes: what they load, the command that runs them, and starting it before the settings are read."""
