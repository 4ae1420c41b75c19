"""What is to be run: scenarios and experiments, read from TOML."""
