"""What the command line does beside a run: one module a verb."""
