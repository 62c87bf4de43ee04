"""Shared by all tests: this folder on the path, so that one test may use another's inputs."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

#: What needs the real SGLang runs by ``make test-sglang``, in the environment that has it.
collect_ignore = [] if os.environ.get("RUNBOOK_TEST_SGLANG") else ["real_sglang"]
