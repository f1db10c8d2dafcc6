"""Output of commands: tables, progress, log lines, and the streams that carry them."""
