"""Shared by all tests: this folder on the path, so that one test may use another's inputs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
