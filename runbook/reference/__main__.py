"""``python -m runbook.reference FOLDER`` (``make reference``): write the references."""

from __future__ import annotations

import sys
from pathlib import Path

from runbook.reference import write

if __name__ == "__main__":
    print("\n".join(map(str, write(Path(sys.argv[1])))))
