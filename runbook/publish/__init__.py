"""The record: tables, figures, the document of a run, and the block in the plan document."""
