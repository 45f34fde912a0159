"""Files, text and processes: what every package may use."""
