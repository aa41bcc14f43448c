"""How communicators of torch begin under the NCCL library, against stock.

On a machine with GPUs and torch:

  python scripts/check_nccl_start.py --compare --ranks 4
  polypath run --reproducible -- torchrun --nproc-per-node 4 scripts/check_nccl_start.py

The first one runs torchrun without polypath, under `polypath run` and under `polypath run
--reproducible`, in turn, and prints a table of medians. The second one is one such run: rank 0
prints one line of JSON. Times are the slowest rank's, in seconds; `groups` are those of new_group
and its first sum, from the second group on. Memory is what all processes have of a GPU, in MiB, the
most of all GPUs. CPU times are of all ranks together.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GROUPS = 12
FOLDER = "CHECK_NCCL_START"  # of the environment: where ranks leave what they measured


def timed(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def run_rank(groups, eager):
    import torch
    import torch.distributed as dist

    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    times = {}

    def first_call():
        torch.cuda.set_device(local)
        torch.ones(1, device="cuda")
        torch.cuda.synchronize()

    def sum_on(group=None):
        ones = torch.ones(1000, device="cuda")
        dist.all_reduce(ones, group=group)
        torch.cuda.synchronize()
        assert ones.eq(dist.get_world_size()).all()

    times["first_call"] = timed(first_call)
    times["first_group"] = timed(
        lambda: (
            dist.init_process_group("nccl", device_id=device if eager else None),
            sum_on(),
        )
    )
    later = []
    for _ in range(groups - 1):
        dist.barrier()
        later.append(timed(lambda: sum_on(dist.new_group(list(range(dist.get_world_size()))))))
    times["groups"] = later
    dist.barrier()
    free, total = torch.cuda.mem_get_info()
    times["memory_mib"] = (total - free) / 2**20
    times["destroy"] = timed(dist.destroy_process_group)
    return times


def gathered(times, folder):
    """Gathers the times of all ranks by files: the process groups are gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    times.update(user=used.ru_utime, system=used.ru_stime)
    part = folder / f"{os.environ['RANK']}.part"
    part.write_text(json.dumps(times))
    part.rename(part.with_suffix(".json"))
    if os.environ["RANK"] != "0":
        return None
    parts = []
    for rank in range(int(os.environ["WORLD_SIZE"])):
        while not (folder / f"{rank}.json").exists():
            time.sleep(0.05)
        parts.append(json.loads((folder / f"{rank}.json").read_text()))
    slowest = {
        name: max(part[name] for part in parts)
        for name in ("first_call", "first_group", "destroy", "memory_mib")
    }
    slowest["groups"] = [
        max(each) for each in zip(*(part["groups"] for part in parts), strict=True)
    ]
    for name in ("user", "system"):
        slowest[name] = sum(part[name] for part in parts)
    return slowest


def compare(arguments):
    ways = {
        "stock": [],
        "run": ["polypath", "run", "--"],
        "run --reproducible": ["polypath", "run", "--reproducible", "--"],
    }
    results_by_way = {way: [] for way in ways}
    for _ in range(arguments.rounds):
        for way, before in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                command = [*before, sys.executable, "-m", "torch.distributed.run"]
                command += ["--nproc-per-node", str(arguments.ranks), __file__]
                command += ["--groups", str(arguments.groups)]
                command += ["--eager"] if arguments.eager else []
                environment = {**os.environ, FOLDER: folder}
                done = subprocess.run(
                    command, env=environment, stdout=subprocess.PIPE, text=True, check=True
                )
            result = json.loads(done.stdout.strip().splitlines()[-1])
            result["second_group"] = result["groups"][0]
            result["worst_group"] = max(result["groups"])
            results_by_way[way].append(result)
    names = ["first_call", "first_group", "second_group", "worst_group"]
    names += ["destroy", "memory_mib", "user", "system"]
    print(f"{'':20}" + "".join(f"{name:>14}" for name in names))
    for way, results in results_by_way.items():
        medians = [statistics.median(result[name] for result in results) for name in names]
        print(f"{way:20}" + "".join(f"{median:14.2f}" for median in medians))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--eager", action="store_true", help="groups are parts of the first")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--ranks", type=int, default=4, help="of --compare")
    parser.add_argument("--rounds", type=int, default=3, help="of --compare")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments)
        return
    folder = Path(os.environ.get(FOLDER, f"{tempfile.gettempdir()}/nccl_start.{os.getppid()}"))
    folder.mkdir(exist_ok=True)
    result = gathered(run_rank(arguments.groups, arguments.eager), folder)
    if result is not None:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
