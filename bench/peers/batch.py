"""Throughput of several prompts at once, both sides in turn: compare.py --streams 8,32."""

import json
import os
import random
import statistics
import sys
import tempfile

import compare


def measure(side, prompts, decode):
    """Tokens a second over all, from handing in the prompts, and once every stream has its first token."""
    a = side.ask(batch=prompts, decode=decode)
    if [len(t) for t in a["tokens"]] != [decode] * len(prompts):
        raise compare.SideError(side.name, f"gave {[len(t) for t in a['tokens']]} tokens of {decode} each")
    end, started = max(a["lasts"]), max(a["firsts"])
    # Between the first and the last token of each stream, if they ran side by side; the mean shows if they did not.
    return {"whole": len(prompts) * decode / end, "seconds": end, "first": started,
            "decode": statistics.mean((decode - 1) / (last - first) for first, last in zip(a["firsts"], a["lasts"])),
            "tokens": a["tokens"]}


def pair(args, cedrun, setting, streams, log):
    threads, device, dtype = setting
    most = max(streams)
    peer = compare.Side(f"ftllm -t {threads} {device} {dtype}", [
        args.python, os.path.join(compare.HERE, "ftllm_side.py"), "--model", args.model, "--threads", threads,
        "--moe-device", device, "--dtype", dtype, "--context", str(args.context), "--prefill", args.prefill,
        "--streams", str(most)], log)
    rng = random.Random(args.seed)
    rows = []
    try:
        for side in (cedrun, peer):
            side.ask(batch=[random_ids(rng, args, 16) for _ in range(most)], decode=3)  # warm-up
        for n in streams:
            runs = {cedrun.name: [], peer.name: []}
            for i in range(args.runs):
                prompts = [random_ids(rng, args, args.prompt) for _ in range(n)]  # new ones: nothing can be recalled
                for side in (cedrun, peer) if i % 2 == 0 else (peer, cedrun):
                    runs[side.name].append(measure(side, prompts, args.decode))
                    last = runs[side.name][-1]
                    print(f"{n} streams, run {i + 1}/{args.runs} {side.name}: {last['whole']:.1f} tok/s in all, {last['decode']:.2f} a stream",
                          file=sys.stderr)
            rows.append({"streams": n, "same_tokens": same(runs[cedrun.name], runs[peer.name]), "sides": [
                {"name": side.name, "resident_mb": compare.resident_mb(side.process.pid)} |
                {k: compare.spread([r[k] for r in runs[side.name]]) for k in ("whole", "decode", "first")}
                for side in (cedrun, peer)]})
        return {"ftllm": peer.name, "version": peer.ready["version"], "rows": rows}
    finally:
        peer.close()


def random_ids(rng, args, n):
    return [rng.randrange(8, args.vocabulary - 8) for _ in range(n)]


def same(ours, theirs):
    """The median number of equal greedy tokens before the first that differs."""
    return statistics.median(compare.same_prefix(x, y) for a, b in zip(ours, theirs) for x, y in zip(a["tokens"], b["tokens"]))


def run(args):
    streams = [int(n) for n in args.streams.split(",")]
    with open(os.path.join(args.model, "config.json")) as f:
        config = json.load(f)
    args.vocabulary, args.eos = config["text_config"]["vocab_size"], config["eos_token_id"]
    args.context = args.prompt + args.decode + 16
    result = {
        "checkpoint": os.path.basename(os.path.normpath(args.model)), "cpu": compare.cpu_model(), "threads": args.threads,
        "prompt": args.prompt, "decode": args.decode, "prefill": args.prefill, "runs": args.runs,
        "cedrun_version": args.cedrun_version, "load_average": os.getloadavg()[0], "pairs": [], "failed": [],
    }
    with tempfile.TemporaryDirectory(prefix="peers-") as directory:
        cedrun = compare.Side("cedrun", [
            args.cedside, "-model", args.model, "-threads", str(args.threads), "-context", str(args.context),
            "-chunk", str(args.chunk), "-prefill", args.prefill, "-streams", str(max(streams))], os.path.join(directory, "cedrun.log"))
        try:
            for i, setting in enumerate(compare.settings(args)):
                try:
                    result["pairs"].append(pair(args, cedrun, setting, streams, os.path.join(directory, f"ftllm{i}.log")))
                except compare.SideError as e:
                    if e.name == "cedrun":
                        raise
                    result["failed"].append(str(e))
        finally:
            cedrun.close()
    return result


def show(r):
    version = r["pairs"][0]["version"] if r["pairs"] else "-"
    print(f"{r['checkpoint']}, prompts of {r['prompt']} tokens ({r['prefill']}), {r['decode']} written by each stream, {r['threads']} threads, "
          f"median of {r['runs']} runs in turn (lowest to highest)")
    print(f"{r['cpu']}; cedrun {r['cedrun_version']}; ftllm {version}; load average at the start {r['load_average']:.2f}\n")
    print("| streams | | tok/s in all | ratio | tok/s of a stream | s to the last first token | resident MB |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for p in r["pairs"]:
        for row in p["rows"]:
            ours = row["sides"][0]["whole"]["median"]
            for side in row["sides"]:
                w, ratio = side["whole"], "" if side is row["sides"][0] else f"{ours / side['whole']['median']:.2f}"
                print(f"| {row['streams']} | {side['name']} | {w['median']:.1f} ({w['min']:.1f} to {w['max']:.1f}) | {ratio} | "
                      f"{side['decode']['median']:.2f} | {side['first']['median']:.2f} | {side['resident_mb']} |")
    for p in r["pairs"]:
        print(f"\nEqual greedy tokens before the first that differs, cedrun and {p['ftllm']}: "
              + ", ".join(f"{row['same_tokens']:g} of {r['decode']} at {row['streams']} streams" for row in p["rows"]) + " (median).")
    for why in r["failed"]:
        print(f"\ndid not run: {why}")
