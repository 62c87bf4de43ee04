"""The options of the stand-in, as its own parser resolves them."""

import argparse
import os

TEXTS = (
    *("--model-path", "--host", "--api-key", "--attention-backend"),
    *("--speculative-algorithm", "--speculative-draft-model-path"),
    "--speculative-draft-model-quantization",
)
NUMBERS = (
    *("--port", "--max-running-requests", "--tensor-parallel-size", "--speculative-eagle-topk"),
    *("--speculative-num-steps", "--speculative-num-draft-tokens"),
)


def prepare_server_args(argv):
    parser = argparse.ArgumentParser()
    for option in TEXTS:
        parser.add_argument(option)
    for option in NUMBERS:
        parser.add_argument(option, type=int)
    parser.add_argument("--mem-fraction-static", type=float)
    for option in ("--enable-metrics", "--trust-remote-code"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args(argv)
    v2 = os.environ.get("SGLANG_ENABLE_SPEC_V2") == "True"
    options.tp_size = options.tensor_parallel_size or 1
    options.disable_overlap_schedule = options.speculative_algorithm is not None and not v2
    return options
