"""Trains the demo model on the CPU.

    python3 train.py WORKDIR [--steps N] [--minutes M] [--ranks R] [--seed S]

One single-threaded process per rank; gradients are averaged over the ranks after every step. Data, initialisation and
schedule depend on (seed, ranks, steps) only, unless --minutes ends the run early: then the schedule follows the clock.
WORKDIR/state.pt is written every few minutes and resumed from if it exists; WORKDIR/log.jsonl gets a line per report.

Stages, by progress p in 0..1: rows of 128, then 256 tokens with dense attention; from LONG on rows of 384; from SPARSE on top-k selection,
weight and cache quantisers, and some rows of 512 and 1024; from ACTS on FP8 activations too. The rate is flat, then falls.
"""
import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

import data
from evaluate import bits_per_byte, build, recall
from model import EXACT, Mode
from optim import Optimizer

SHORT, LONG, SPARSE, ACTS, DECAY = 0.12, 0.3, 0.52, 0.75, 0.5
UNSEEN = (0.06, 0.30, 0.58)  # share of held-out bigrams, trigrams, 4-grams that the training text lacks


def schedule(p, step):
    """(progress, step) -> (rows, tokens per row, mode, rate, recall share)"""
    mode = Mode(p >= SPARSE, p >= SPARSE, p >= SPARSE, p >= ACTS, 20 if p >= 0.9 else 5)
    rate = min(1.0, p / 0.015 + 0.05) * min(1.0, 0.03 + 0.97 * (1 - p) / (1 - DECAY))
    b, n = (16, 128) if p < SHORT else (8, 256) if p < LONG else (5, 384)
    if p >= SPARSE:
        b, n = {3: (4, 512), 6: (2, 1024)}.get(step % 8, (b, n))
    return b, n, mode, rate, 0.3


def unseen_ngrams(h, ids, rng):
    """Engram rows with the n-grams of some tokens replaced by random rows, as often as held-out text has n-grams that the
    training text lacks. Without this the gates trust every row and the tables memorise the training text."""
    u, cols = rng.random(ids.shape), {}
    for layer in h.layers:
        out = h(layer, ids)
        for k, share in enumerate(UNSEEN):
            c = slice(k * h.heads, (k + 1) * h.heads)
            other = rng.integers(h.rows(layer), size=(*ids.shape, h.heads))
            out[..., c] = np.where((u < share)[..., None], other, out[..., c])
        cols[layer] = torch.from_numpy(out)
    return cols


def run(rank, a):
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    dist.init_process_group("gloo", init_method=f"file://{a.workdir.resolve()}/sync", rank=rank, world_size=a.ranks)
    src, held = data.Source(a.workdir, "train"), data.Source(a.workdir, "heldout")
    cases = data.recall_cases(held, 7, 4)
    net, h = build(src)
    opt = Optimizer(net, rank, a.ranks)
    step, spent, tokens, state = 0, 0.0, 0, a.workdir / "state.pt"
    if state.exists():
        s = torch.load(state)
        net.load_state_dict(s["net"])
        opt.load(s["opt"])
        step, spent, tokens = s["step"], s["spent"], s["tokens"]
    params, began, saved, sums = list(net.parameters()), time.time() - spent, time.time(), None

    def report(**kw):
        if rank == 0:
            line = json.dumps(dict(step=step, minutes=round((time.time() - began) / 60, 2), tokens=tokens, **kw))
            print(line, flush=True)
            with open(a.workdir / "log.jsonl", "a") as f:
                f.write(line + "\n")

    def save():
        if rank == 0:
            tmp = state.with_suffix(".tmp")
            torch.save(dict(net=net.state_dict(), opt=opt.state(), step=step, spent=time.time() - began, tokens=tokens), tmp)
            os.replace(tmp, state)

    while True:
        clock = torch.tensor([(time.time() - began) / 60 / a.minutes, time.time() - saved > 240], dtype=torch.float64)
        dist.broadcast(clock, 0)
        p = max(step / a.steps, float(clock[0]))
        if p >= 1:
            break
        b, n, mode, rate, share = schedule(p, step)
        ids, weight, guide = src.batch(a.seed, step, rank, b, n, share, 0.12, min(1.0, p / 0.4))
        torch.manual_seed(a.seed + step)
        x, y = torch.from_numpy(ids[:, :-1].copy()), torch.from_numpy(ids[:, 1:].copy())
        wt = torch.from_numpy(weight).flatten()
        at = tuple(torch.from_numpy(g) for g in guide) if guide.shape[1] else None
        grams = unseen_ngrams(h, ids[:, :-1], np.random.default_rng([a.seed, step, rank, 1]))
        out, fwd = net(x, grams, mode, losses=True, guide=at)
        ce = F.cross_entropy(net.logits(out), y.flatten(), reduction="none")
        loss = (ce * wt).sum() / wt.numel()
        index = sum(fwd.index_loss)
        total = loss + 0.3 * index
        looked = sum(fwd.guide_loss) if fwd.guide_loss else torch.zeros(())
        copied = sum(fwd.copy_loss) if fwd.copy_loss else torch.zeros(())
        total = total + 0.03 * looked + 0.1 * copied
        total.backward()
        grads = torch.cat([(p_.grad if p_.grad is not None else torch.zeros_like(p_)).flatten() for p_ in params]
                          + [blk.ffn.load for blk in net.layers])
        dist.all_reduce(grads)
        k = 0
        for p_ in params:
            p_.grad = grads[k : k + p_.numel()].view_as(p_) / a.ranks
            k += p_.numel()
        for blk in net.layers:
            load = grads[k : k + len(blk.ffn.load)]
            k += len(load)
            blk.ffn.bias += 0.01 * rate * torch.sign(load.mean() - load)
            blk.ffn.load.zero_()
        opt.step(rate)
        net.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + b * n * a.ranks
        hits = ce.detach()[at[0] * n + at[1]].mean() if at else torch.tensor(float("nan"))
        plain = ce.detach()[wt == 1].mean()
        now = torch.stack([plain, index.detach(), looked.detach() / 3, hits, copied.detach() / 3])
        sums = now if sums is None else torch.where(now.isnan(), sums, torch.where(sums.isnan(), now, 0.95 * sums + 0.05 * now))
        if step % 20 == 0:
            report(p=round(p, 4), ce=round(float(sums[0]), 3), index=round(float(sums[1]), 3),
                   guide=round(float(sums[2]), 3), recall_ce=round(float(sums[3]), 3), copy=round(float(sums[4]), 3))
        if clock[1]:
            saved = time.time()
            save()
        if step % 300 == 0 and rank == 0:
            exact = EXACT if p >= SPARSE else mode
            report(bpb=round(bits_per_byte(net, h, held, exact, 4), 4), recall=recall(net, h, held, cases, exact))
    save()


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("workdir", type=Path)
    ap.add_argument("--steps", type=int, default=2000)
    ap.add_argument("--minutes", type=float, default=75)
    ap.add_argument("--ranks", type=int, default=2)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    (a.workdir / "sync").unlink(missing_ok=True)
    mp.spawn(run, (a,), a.ranks)


if __name__ == "__main__":
    main()
