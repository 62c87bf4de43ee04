"""As an operator patches a stack at the start of Python: a variable that no shell has set."""

import os

os.environ.setdefault("SGLANG_SM120_PATCHES", "1")
