"""What each check of the stack wants, in a sentence: for its answer where a fact is missing, and
for the reference."""

from __future__ import annotations

from collections.abc import Mapping

#: By the name of the check. Complete for ``CHECKS``: a test says so.
WANTED: Mapping[str, str] = {
    "interpreter": "The serving interpreter runs as its user, in its folder, with its environment.",
    "python": "Its version is in `stack.python`.",
    "engine_version": "The server's version, as that interpreter finds it, is in "
    "`stack.engine_version`.",
    "packages": "The packages of `stack.packages` are there in their ranges.",
    "model": "The model is there, readable and whole, with `stack.model_sha256` where given.",
    "draft": "The draft is there, readable and whole.",
    "draft_fits": "The draft has hidden size, vocabulary and positions for the target.",
    "cores": "`stack.min_cores` processors may be used.",
    "memory": "`stack.min_memory_gib` are available.",
    "disk": "`stack.min_disk_gib` are free at `server.cwd`, `stack.want_model_disk_gib` at the "
    "model and its draft.",
    "shm": "`stack.min_shm_gib` are free in `/dev/shm`.",
    "limits": "Open files and locked memory can be had as the service asks for them.",
    "tools": "The programs of `stack.tools`, and on GPUs a C compiler, are on the server's `PATH`.",
    "environment": "No variable is reserved or changed at the start of Python; the toolkit, "
    "libraries and caches that are named can be used.",
    "torch": "Torch has kernels for the cards, and the driver is new enough for its CUDA.",
    "kernels": "The packages with kernels (FlashInfer, SGLang's own) belong together.",
    "nccl": "One NCCL is found, and it is in `stack.nccl`.",
    "nccl_conf": "No file of NCCL settings acts beside the environment.",
    "nccl_graph": "A graph file that is given can be read.",
    "collective": "A trial all-reduce over all cards, and a transfer in both directions of "
    "every pair, bring what was sent, and are not slow.",
    "loaded_link": "Every link reaches its generation and width while that runs.",
    "sitecustomize": "Which `sitecustomize` Python loads, which it shadows, what it sets; the same "
    "for every configuration.",
    "shell": "No variable of the shell the runbook is started from is missing in a launch, and its "
    "path to modules leads to the same `sitecustomize`.",
    "port": "`server.port` is free, and those the server opens besides; who holds one is named, "
    "and not ended.",
    "systemd": "A systemd takes orders: of the host, or in a throw-away box.",
    "gpus": "As many GPUs answer as `stack.gpus` wants.",
    "gpu_name": "Every GPU is of `stack.gpu_name`, and all of one model.",
    "gpu_memory": "Every GPU has `stack.gpu_memory_gib`.",
    "compute_cap": "Every GPU has `stack.compute_cap`.",
    "mig": "MIG is off on every GPU.",
    "driver": "The driver is in `stack.driver_version`.",
    "pcie_link": "Every link reaches `stack.pcie_gen` and `stack.pcie_width`, and has them while "
    "its card is busy.",
    "persistence": "Persistence mode is on.",
    "ecc": "ECC is alike on all GPUs.",
    "power": "Power limits are alike, and those the cards come with.",
    "virtual_machine": "No hypervisor stands between the cards and this system.",
    "topology": "The cards are connected as `stack.topology` says, and as NCCL was tuned for.",
    "p2p": "Cards may read one another's memory.",
    "p2p_write": "Cards may write to one another's memory.",
    "acs": "No PCIe bridge above a card redirects what goes from card to card.",
    "iommu": "The IOMMU does not translate what goes from card to card.",
    "bar1": "The whole memory of a card can be addressed from the others.",
    "kernel_driver": "Kernel module and nvidia-smi are of one version.",
    "nvcc": "The compiler of CUDA is in `stack.nvcc`, and of torch's release.",
    "driver_options": "What modprobe.d asks of the driver is loaded.",
    "numa": "All processors are on line; the server may run on those near its cards.",
    "cpu_settings": "Frequency governor, NUMA balancing and swappiness are as asked.",
    "huge_pages": "Huge pages, for the record.",
    "kernel_log": "The kernel told of no GPU error (Xid) and no PCIe error.",
    "ecc_errors": "No card counts uncorrected memory errors.",
    "clocks": "No card is slowed down; all have the same clocks.",
    "idle": "Nobody uses the cards; who does is named with its unit, and not ended.",
}
