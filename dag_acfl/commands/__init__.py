"""One module per command: options, help, and the way from them into the packages."""
