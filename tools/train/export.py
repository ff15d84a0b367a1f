"""Writes a trained model in the released on-disk format.

    python3 export.py WORKDIR CHECKPOINT.pt OUTDIR

OUTDIR gets config.json, model.safetensors, model.safetensors.index.json, tokenizer.json, engram_tables.json, heldout.txt and
recall.json.
"""
import argparse
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import torch

import data
import quant
import tokenizer as tok
from evaluate import build
from geometry import TEXT, config


def bf16(w):
    return "BF16", w.to(torch.bfloat16).view(torch.int16).numpy()


def f32(w):
    return "F32", w.float().numpy()


def e8m0(scale):
    return "F8_E8M0", ((scale.contiguous().view(torch.int32) >> 23) & 255).to(torch.uint8).numpy()


def e4m3(values):
    return "F8_E4M3", values.to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def fp8(w):
    values, scale = quant.fp8_weight_parts(w)
    return e4m3(values), e8m0(scale)


def fp4(w):
    """Two codes a byte, the even column in the low nibble."""
    values, scale = quant.fp4_weight_parts(w)
    steps = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    code = torch.searchsorted(steps, values.abs().contiguous()) | (torch.signbit(values).long() << 3)
    packed = (code[..., 0::2] | (code[..., 1::2] << 4)).to(torch.uint8)
    return ("I8", packed.numpy().view(np.int8)), e8m0(scale)


def engram_table(w):
    g = w.reshape(len(w), -1, 32)
    s = quant.pow2_ceil(g.abs().amax(-1).clamp(min=1e-4) * (1 / 448))
    return e4m3(quant.e4m3(g / s[..., None]).reshape(w.shape)), e8m0(s)


def tensors(net) -> dict[str, tuple[str, np.ndarray]]:
    """Released name -> (safetensors dtype, bits)."""
    out = {"embed.weight": bf16(net.embed), "norm.weight": bf16(net.norm.weight), "head.weight": bf16(net.head)}

    def put(name, pair):
        out[name + ".weight"], out[name + ".scale"] = pair

    for i, b in enumerate(net.layers):
        p, a, f = f"layers.{i}.", b.attn, b.ffn
        out[p + "attn_norm.weight"], out[p + "ffn_norm.weight"] = bf16(b.attn_norm.weight), bf16(b.ffn_norm.weight)
        for s in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b"):
            put(f"{p}attn.{s}", fp8(getattr(a, s).weight))
        for s in ("q_norm", "kv_norm"):
            out[f"{p}attn.{s}.weight"] = bf16(getattr(a, s).weight)
        out[p + "attn.attn_sink"] = f32(a.attn_sink)
        for s, m in (("attn", b.hc_attn), ("ffn", b.hc_ffn)):
            for t in ("fn", "base", "scale"):
                out[f"{p}hc_{s}_{t}"] = f32(getattr(m, t))
        out[p + "ffn.gate.weight"], out[p + "ffn.gate.bias"] = bf16(f.gate.weight), f32(f.bias)
        out[p + "ffn.gate.bias_vl"] = f32(f.bias)
        for e in range(len(f.w1)):
            for s in ("w1", "w2", "w3"):
                put(f"{p}ffn.experts.{e}.{s}", fp4(getattr(f, s)[e]))
        for s in ("w1", "w2", "w3"):
            put(f"{p}ffn.shared_experts.{s}", fp8(f.shared_experts[s].weight))
        if hasattr(a, "compressor"):
            out[p + "attn.compressor.wkv.weight"] = bf16(a.compressor.wkv.weight)
            if a.ratio > 1:
                out[p + "attn.compressor.wgate.weight"] = bf16(a.compressor.wgate.weight)
            out[p + "attn.compressor.norm.weight"] = bf16(a.compressor.norm.weight)
            out[p + "attn.indexer.wk.weight"] = bf16(a.indexer.wk.weight)
            out[p + "attn.indexer.k_norm.weight"] = bf16(a.indexer.k_norm.weight)
        if hasattr(a, "indexer"):
            put(p + "attn.indexer.wq_b", fp8(a.indexer.wq_b.weight))
            out[p + "attn.indexer.weights_proj.weight"] = bf16(a.indexer.weights_proj.weight)
        if b.engram is not None:
            out[p + "engram.embed.weight"], out[p + "engram.embed.scale"] = engram_table(b.engram.embed)
            put(p + "engram.wkv", fp8(b.engram.wkv.weight))
            out[p + "engram.q_weight"], out[p + "engram.k_weight"] = bf16(b.engram.q_weight), bf16(b.engram.k_weight)
    return out


def write_safetensors(path: Path, parts: dict[str, tuple[str, np.ndarray]]) -> int:
    """Returns the payload size. Wider dtypes first, so that every tensor is aligned to its element."""
    order = sorted(parts, key=lambda n: -parts[n][1].itemsize)
    head, at = {}, 0
    for n in order:
        dtype, a = parts[n]
        head[n] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw)
        for n in order:
            f.write(np.ascontiguousarray(parts[n][1]).tobytes())
    return at


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("workdir", "checkpoint", "outdir"):
        ap.add_argument(name, type=Path)
    a = ap.parse_args()
    src = data.Source(a.workdir, "heldout")
    net, h = build(src)
    net.load_state_dict(torch.load(a.checkpoint)["net"])
    for p in net.parameters():
        p.requires_grad_(False)
    a.outdir.mkdir(parents=True, exist_ok=True)
    parts = tensors(net)
    file = "model.safetensors"
    total = write_safetensors(a.outdir / file, parts)
    index = {"metadata": {"total_size": total}, "weight_map": {n: file for n in sorted(parts)}}
    (a.outdir / f"{file}.index.json").write_text(json.dumps(index, indent=0))
    c = config([h.rows(layer) for layer in h.layers], h.classes, src.t.token_to_id(tok.IMAGE))
    assert src.t.get_vocab_size() == TEXT["vocab_size"]
    (a.outdir / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    tables = {"token_map": h.map.tolist(), "pad_token_id": TEXT["engram_pad_token_id"], "layers": {
        str(layer): {"multipliers": [str(m) for m in h.mult[layer]], "primes": h.primes[layer], "offsets": h.offsets[layer]}
        for layer in h.layers}}
    (a.outdir / "engram_tables.json").write_text(json.dumps(tables) + "\n")
    for name in ("tokenizer.json", "heldout.txt", "recall.json"):
        shutil.copy(a.workdir / name, a.outdir / name)
    size = sum(p.stat().st_size for p in a.outdir.iterdir())
    print(f"{a.outdir}: {len(parts)} tensors, {total} bytes of weights, {size} bytes in all")


if __name__ == "__main__":
    main()
