"""Where a client meets other people's software; each part is imported when it is asked for."""
