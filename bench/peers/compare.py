"""Runs cedrun and ftllm in turn on one checkpoint and prints a table; see README.md. Only the standard library."""

import argparse
import array
import json
import math
import operator
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class SideError(RuntimeError):
    def __init__(self, name, why):
        super().__init__(f"{name}: {why}")
        self.name = name


class Side:
    """A program that has the model loaded. It is stopped (SIGSTOP) while it is not measured: ftllm's workers spin."""

    def __init__(self, name, command, log):
        self.name = name
        self.reset()
        self.log = open(log, "wb")
        begin = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.ready = self.read()
        self.load_s = time.monotonic() - begin
        self.process.send_signal(signal.SIGSTOP)

    def reset(self):
        self.first, self.rest, self.tokens = [], [], []

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            with open(self.log.name, "rb") as f:
                text = re.sub(r"Load(ing)? \d+ |\r", "", f.read().decode(errors="replace"))
            raise SideError(self.name, f"ended with status {code}: ...{text.strip()[-300:]}")
        return json.loads(line)

    def ask(self, **request):
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            return self.read()
        except BrokenPipeError:
            return self.read()  # says why
        finally:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGSTOP)

    def measure(self, ids, decode):
        a = self.ask(ids=ids, decode=decode)
        if len(a["tokens"]) != decode:
            raise SideError(self.name, f"gave {len(a['tokens'])} tokens of {decode}")
        self.first.append(len(ids) / a["first"])
        self.rest.append((decode - 1) / a["rest"])
        self.tokens.append(a["tokens"])

    def row(self):
        return {"name": self.name, "load_s": self.load_s, "resident_mb": resident_mb(self.process.pid),
                "prefill_tok_s": spread(self.first), "decode_tok_s": spread(self.rest)}

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": values}


def resident_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
    return 0


def rows_of(path, vocabulary):
    values = array.array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    return [values[i:i + vocabulary] for i in range(0, len(values), vocabulary)]


def agreement(args, cedrun, peer, directory):
    """Logits of both at the same positions: after each prompt, and along the tokens that the peer chose."""
    rng = random.Random(args.seed + 1)
    top, cosines, largest = 0, [], 0.0
    for length in sorted({min(args.prompt, n) for n in (1, 24, 160)}):
        ids = [rng.randrange(8, args.vocabulary - 8) for _ in range(length)]
        theirs, ours = os.path.join(directory, "peer"), os.path.join(directory, "cedrun")
        tokens = peer.ask(ids=ids, decode=min(8, args.decode), logits=theirs)["tokens"]
        cedrun.ask(ids=ids, forced=tokens[:-1], logits=ours)
        for a, b in zip(rows_of(ours, args.vocabulary), rows_of(theirs, args.vocabulary), strict=True):
            a[args.eos] = b[args.eos] = 0  # ftllm overwrites it: texts may not end early
            top += max(range(len(a)), key=a.__getitem__) == max(range(len(b)), key=b.__getitem__)
            cosines.append(dot(a, b) / math.sqrt(dot(a, a) * dot(b, b)))
            largest = max(largest, max(abs(x - y) for x, y in zip(a, b)) / (max(a) - min(a)))
    return {"positions": len(cosines), "same_top_token": top, "cosine_min": min(cosines),
            "cosine_median": statistics.median(cosines), "max_difference_of_range": largest,
            "same_greedy_tokens": [same_prefix(x, y) for x, y in zip(cedrun.tokens, peer.tokens)]}


def dot(a, b):
    return sum(map(operator.mul, a, b))


def same_prefix(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


def cpu_model():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())


def settings(args):
    """ftllm's settings: threads/device of the experts/dtype. Its workers and the thread that feeds them spin, so they
    want a core each: one thread less is tried, too. The best dtype differs with the device."""
    if args.peer:
        return [s.split("/") for s in args.peer.split(",")]
    less = str(max(1, args.threads - 1))
    return [(str(args.threads), "cpu", "float16"), (less, "cpu", "float16"), (less, "numa", "bfloat16")]


def pair(args, cedrun, setting, prompts, log):
    """Runs cedrun and one setting of ftllm in turn; ftllm is loaded only for this."""
    threads, device, dtype = setting
    peer = Side(f"ftllm -t {threads} {device} {dtype}", [
        args.python, os.path.join(HERE, "ftllm_side.py"), "--model", args.model, "--threads", threads,
        "--moe-device", device, "--dtype", dtype, "--context", str(args.context), "--prefill", args.prefill], log)
    try:
        for side in (cedrun, peer):
            side.reset()
            side.ask(ids=prompts[-1][:32], decode=4)  # warm-up
        for i, ids in enumerate(prompts):
            for side in (cedrun, peer) if i % 2 == 0 else (peer, cedrun):
                side.measure(ids, args.decode)
                print(f"run {i + 1}/{len(prompts)} {side.name}: prefill {side.first[-1]:.1f}, decode {side.rest[-1]:.2f} tok/s",
                      file=sys.stderr)
        ours, theirs = cedrun.row(), peer.row()
        result = {"cedrun": ours, "ftllm": theirs, "version": peer.ready["version"], "ratio": {
            k: ours[k]["median"] / theirs[k]["median"] for k in ("prefill_tok_s", "decode_tok_s")}}
        if not args.no_check:
            result["agreement"] = agreement(args, cedrun, peer, os.path.dirname(log))
        return result
    finally:
        peer.close()


def run(args):
    with open(os.path.join(args.model, "config.json")) as f:
        config = json.load(f)
    args.vocabulary, args.eos = config["text_config"]["vocab_size"], config["eos_token_id"]
    args.context = args.prompt + args.decode + 16
    rng = random.Random(args.seed)
    # New ids for each run, so that nothing can be recalled.
    prompts = [[rng.randrange(8, args.vocabulary - 8) for _ in range(args.prompt)] for _ in range(args.runs)]
    result = {
        "checkpoint": os.path.basename(os.path.normpath(args.model)), "cpu": cpu_model(), "threads": args.threads,
        "prompt": args.prompt, "decode": args.decode, "prefill": args.prefill, "runs": args.runs,
        "cedrun_version": args.cedrun_version, "load_average": os.getloadavg()[0], "pairs": [], "failed": [],
    }
    with tempfile.TemporaryDirectory(prefix="peers-") as directory:
        cedrun = Side("cedrun", [
            args.cedside, "-model", args.model, "-threads", str(args.threads), "-context", str(args.context),
            "-chunk", str(args.chunk), "-prefill", args.prefill], os.path.join(directory, "cedrun.log"))
        try:
            for i, setting in enumerate(settings(args)):
                try:
                    result["pairs"].append(pair(args, cedrun, setting, prompts, os.path.join(directory, f"ftllm{i}.log")))
                except SideError as e:
                    if e.name == "cedrun":
                        raise
                    result["failed"].append(str(e))
        finally:
            cedrun.close()
    if result["pairs"]:
        # Against the setting that suits ftllm best, for each phase.
        result["ratio"] = {k: min(p["ratio"][k] for p in result["pairs"]) for k in ("prefill_tok_s", "decode_tok_s")}
    return result


def show(r):
    version = r["pairs"][0]["version"] if r["pairs"] else "-"
    print(f"{r['checkpoint']}, {r['prompt']} prompt tokens ({r['prefill']}), {r['decode']} decoded, {r['threads']} threads, "
          f"median of {r['runs']} runs in turn (lowest to highest)")
    print(f"{r['cpu']}; cedrun {r['cedrun_version']}; ftllm {version}; load average at the start {r['load_average']:.2f}\n")
    print(f"| {'':24} | {'prefill tok/s':>28} | {'decode tok/s':>26} | {'resident MB':>11} | {'load s':>6} |")
    print(f"| {'-' * 24} | {'-' * 27}: | {'-' * 25}: | {'-' * 10}: | {'-' * 5}: |")
    for p in r["pairs"]:
        for row in (p["cedrun"], p["ftllm"]):
            cells = []
            for key, width in (("prefill_tok_s", 28), ("decode_tok_s", 26)):
                v = row[key]
                cells.append(f"{v['median']:.2f} ({v['min']:.2f} to {v['max']:.2f})".rjust(width))
            print(f"| {row['name']:24} | {' | '.join(cells)} | {row['resident_mb']:11} | {row['load_s']:6.1f} |")
        print(ratio_row("cedrun / ftllm", p["ratio"]))
    if len(r["pairs"]) > 1:
        print(ratio_row("cedrun / best of each", r["ratio"]))
    for why in r["failed"]:
        print(f"\ndid not run: {why}")
    for p in r["pairs"]:
        if a := p.get("agreement"):
            print(f"\nLogits, cedrun and {p['ftllm']['name']}: the same most likely token at {a['same_top_token']} of "
                  f"{a['positions']} positions, cosine {a['cosine_median']:.5f} (lowest {a['cosine_min']:.5f}), largest "
                  f"difference {100 * a['max_difference_of_range']:.1f} % of the range.")
            print(f"Greedy tokens before the first that differs, of {r['decode']}: {', '.join(map(str, a['same_greedy_tokens']))}.")


def ratio_row(name, ratio):
    return f"| {name:24} | {ratio['prefill_tok_s']:28.2f} | {ratio['decode_tok_s']:26.2f} | {'':11} | {'':6} |"


def main():
    p = argparse.ArgumentParser(prog="bench/peers/run.sh", description="cedrun and ftllm in turn on one checkpoint")
    p.add_argument("--model", required=True, metavar="DIR", help="checkpoint in the released format")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--prompt", type=int, default=512, help="prompt tokens (%(default)s)")
    p.add_argument("--decode", type=int, default=64, help="tokens to decode (%(default)s)")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--prefill", choices=["exact", "replay"], default="exact", help="replay is ftllm's --fast_prefill")
    p.add_argument("--chunk", type=int, default=512, help="cedrun's prefill tokens of a step (%(default)s)")
    p.add_argument("--peer", help="ftllm's settings, THREADS/EXPERT_DEVICE/DTYPE with commas between (N/cpu/float16,N-1/cpu/float16,N-1/numa/bfloat16)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--streams", metavar="N,...", help="throughput of so many prompts at once instead")
    p.add_argument("--no-check", action="store_true", help="do not compare logits")
    p.add_argument("--json", metavar="FILE", help="write the figures to FILE, too")
    p.add_argument("--cedside", required=True, help=argparse.SUPPRESS)
    p.add_argument("--python", required=True, help=argparse.SUPPRESS)
    p.add_argument("--cedrun-version", default="", help=argparse.SUPPRESS)
    args = p.parse_args()
    if min(args.threads, args.prompt, args.runs) < 1 or args.decode < 2:
        p.error("threads, prompt and runs are 1 or more, decode 2 or more: the first token belongs to prefill")
    if args.streams and not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", args.streams):
        p.error(f"--streams {args.streams}: use numbers from 1 on, with commas between")
    sys.modules["compare"] = sys.modules[__name__]  # batch imports this file
    import batch
    what = batch if args.streams else sys.modules[__name__]
    try:
        result = what.run(args)
    except (SideError, OSError) as e:
        sys.exit(f"bench/peers: {e}")
    what.show(result)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
