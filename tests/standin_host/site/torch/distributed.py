"""The all-reduce of the stand-in: what eight such cards take, without them."""

import time


def init_process_group(backend):
    assert backend == "nccl"


def all_reduce(count):
    time.sleep(20e-6 + count * 8e-11)


def broadcast(value, source):
    pass


def destroy_process_group():
    time.sleep(0.5)  # so long the links can be read under load
