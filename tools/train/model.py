"""Trainable deepseek_v41 text model (spec sections 3, 4, 6): whole sequences from position 0, float32, vectorised.

Quantisers are simulated with straight-through gradients and switched on in stages (Mode), so that the exported checkpoint
computes what training saw up to bf16 rounding. Parameter names are the checkpoint's names; the experts of a layer are stacked.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import quant


@dataclass
class Mode:
    sparse: bool = False    # attend only to the rows the indexer selects (else to all visible rows)
    weights: bool = False   # FP8 / FP4 weights
    cache: bool = False     # FP8 windows, FP4 main KV, FP4 index queries and keys
    acts: bool = False      # FP8 activations of quantised linears
    sinkhorn: int = 20      # iterations of the mHC normalisation (fewer while training: the difference is below 1e-3)


EXACT = Mode(True, True, True, True)


def rope_freqs(dim, base, scaling=None):
    fr = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if scaling:
        n0, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        turns = lambda r: dim * torch.log(torch.tensor(n0 / (r * 2 * torch.pi), dtype=torch.float64)) / (
            2 * torch.log(torch.tensor(base, dtype=torch.float64)))
        lo, hi = max(int(turns(scaling["beta_fast"]).floor()), 0), min(int(turns(scaling["beta_slow"]).ceil()), dim - 1)
        ramp = ((torch.arange(dim // 2, dtype=torch.float64) - lo) / max(hi - lo, 1e-3)).clamp(0, 1)
        fr = fr / factor * ramp + fr * (1 - ramp)
    return fr


def rope_table(freqs, pos):
    ang = pos.double()[:, None] * freqs[None]
    return torch.polar(torch.ones_like(ang), ang).to(torch.complex64)


def rope(x, table, inverse=False):
    """x [B, S, ..., D], table [S, n]: rotates the last 2n channels as adjacent pairs."""
    n = 2 * table.shape[-1]
    t = table.view((1, len(table)) + (1,) * (x.dim() - 3) + (-1,))
    keep, rot = x.split((x.shape[-1] - n, n), -1)
    rot = torch.view_as_complex(rot.unflatten(-1, (-1, 2)).contiguous())
    return torch.cat([keep, torch.view_as_real(rot * (t.conj() if inverse else t)).flatten(-2)], -1)


def rms(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, 1e-20)


def matrix(n, k, gain=1.0):
    return nn.Parameter(torch.randn(n, k) * gain * k**-0.5)


class Linear(nn.Module):
    """Quantised linear; the caller has quantised the input."""

    def __init__(self, n, k, gain=1.0):
        super().__init__()
        self.weight = matrix(n, k, gain)

    def forward(self, x, mode):
        return F.linear(x, quant.fp8_weight(self.weight) if mode.weights else self.weight)


class Plain(nn.Module):
    def __init__(self, n, k, gain=1.0):
        super().__init__()
        self.weight = matrix(n, k, gain)

    def forward(self, x):
        return F.linear(x, self.weight)


class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return rms(x, self.weight)


def act(x, mode):
    return quant.fp8(x) if mode.acts else x


class Compressor(nn.Module):
    def __init__(self, c, ratio):
        super().__init__()
        self.ratio = ratio
        self.wkv = Plain(c["head_dim"], c["hidden_size"])
        if ratio > 1:
            self.wgate = Plain(c["head_dim"], c["hidden_size"], 0.5)
        self.norm = Norm(c["head_dim"])

    def forward(self, x):
        a = self.wkv(x)
        if self.ratio > 1:
            a, g = (t.unflatten(1, (-1, self.ratio)) for t in (a, self.wgate(x)))
            a = (a * g.softmax(2)).sum(2)
        return self.norm(a)


class Indexer(nn.Module):
    def __init__(self, c, owns_keys):
        super().__init__()
        self.nh, self.hd = c["index_n_heads"], c["index_head_dim"]
        self.wq_b = Linear(self.nh * self.hd, c["q_lora_rank"])
        self.weights_proj = Plain(self.nh, c["hidden_size"])
        if owns_keys:
            self.wk = Plain(self.hd, c["head_dim"])
            self.k_norm = Norm(self.hd)

    def keys(self, latent, table, mode):
        k = rope(self.k_norm(self.wk(latent)), table)
        return quant.fp4_index(k) if mode.cache else k

    def scores(self, x, qr, keys, table, mode):
        """x, qr [B, S, .], keys [B, G, hd] -> [B, S, G]"""
        b, s, _ = x.shape
        q = rope(self.wq_b(qr, mode).view(b, s, self.nh, self.hd), table)
        if mode.cache:
            q = quant.fp4_index(q)
        w = self.weights_proj(x) * (self.hd * self.nh) ** -0.5
        dots = torch.bmm(q.view(b, s * self.nh, self.hd), keys.transpose(1, 2)).view(b, s, self.nh, -1)
        return torch.einsum("bshg,bsh->bsg", dots.relu(), w)


class Attention(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.c, self.layer, self.ratio = c, layer, c["compress_ratios"][layer]
        nh, hd, d = c["num_attention_heads"], c["head_dim"], c["hidden_size"]
        self.wq_a, self.q_norm = Linear(c["q_lora_rank"], d), Norm(c["q_lora_rank"])
        self.wq_b, self.wkv, self.kv_norm = Linear(nh * hd, c["q_lora_rank"]), Linear(hd, d), Norm(hd)
        self.wo_a = Linear(c["o_groups"] * c["o_lora_rank"], nh * hd // c["o_groups"])
        self.wo_b = Linear(d, c["o_groups"] * c["o_lora_rank"], 0.5)
        self.attn_sink = nn.Parameter(torch.zeros(nh))
        if layer in c["kv_source_layer_ids"]:
            self.compressor = Compressor(c, self.ratio)
        if layer in c["index_source_layer_ids"]:
            self.indexer = Indexer(c, layer in c["kv_source_layer_ids"])

    def forward(self, x, fwd, mode):
        c, r, nh, hd = self.c, self.ratio, self.c["num_attention_heads"], self.c["head_dim"]
        b, s, _ = x.shape
        tab = fwd.table(r > 0, s)
        xa = act(x, mode)
        qr = self.q_norm(self.wq_a(xa, mode))
        qa = act(qr, mode)
        q = rope(self.wq_b(qa, mode).view(b, s, nh, hd), tab) * hd**-0.5
        kv = rope(self.kv_norm(self.wkv(xa, mode)), tab)
        if mode.cache:
            kv = quant.fp8(kv)
        if hasattr(self, "compressor"):
            latent = self.compressor(x)
            gt = fwd.table(True, latent.shape[1], r)
            main = rope(latent, gt)
            fwd.main = quant.fp4_main(main) if mode.cache else main
            fwd.keys = self.indexer.keys(latent.detach(), gt, mode)
        # window: chunks of W queries against their own and the previous chunk
        w = c["sliding_window"]
        n = s // w
        qw = q.view(b * n, w * nh, hd)
        prev = F.pad(kv, (0, 0, w, 0))[:, :s].view(b, n, w, hd)
        kw = torch.cat([prev, kv.view(b, n, w, hd)], 2).view(b * n, 2 * w, hd)
        near = torch.bmm(qw, kw.transpose(1, 2)).view(b, n, w, nh, 2 * w) + fwd.band(w, n)
        near = near.view(b, s, nh, 2 * w)
        parts = [near, self.attn_sink.view(1, 1, nh, 1).expand(b, s, nh, 1)]
        if r:
            far = torch.bmm(q.view(b, s * nh, hd), fwd.main.transpose(1, 2)).view(b, s, nh, -1)
            unseen = fwd.unseen(s, r)
            if hasattr(self, "indexer"):
                self.index(x, qa, far, near, unseen, tab, fwd, mode)
            hidden = fwd.dropped if mode.sparse else unseen
            parts.append(far.masked_fill(hidden.unsqueeze(-2), -1e30))
        p = torch.cat(parts, -1).softmax(-1)
        pw = p[..., : 2 * w].reshape(b * n, w * nh, 2 * w)
        o = torch.bmm(pw, kw).view(b, s, nh, hd)
        if r:
            pf = p[..., 2 * w + 1 :]
            o = o + torch.bmm(pf.reshape(b, s * nh, -1), fwd.main).view(b, s, nh, hd)
            fwd.guide(self, pf, mode)
        o = rope(o, tab, True).reshape(b, s, c["o_groups"], -1)
        wa = quant.fp8_weight(self.wo_a.weight) if mode.weights else self.wo_a.weight
        z = torch.einsum("bsgk,grk->bsgr", o, wa.view(c["o_groups"], c["o_lora_rank"], -1)).flatten(2)
        return self.wo_b(act(z, mode), mode)

    def index(self, x, qa, far, near, unseen, tab, fwd, mode):
        """Selection of this layer (fwd.dropped) and, on every fourth query, the indexer's loss: divergence of its softmax
        from the dense attention over the visible rows, averaged over the heads."""
        c, x, qa = self.c, x.detach(), qa.detach()
        if fwd.index_loss is not None:
            some = slice(fwd.index_phase, None, 4)
            hide = unseen[:, some]
            with torch.no_grad():
                f = far[:, some].masked_fill(hide.unsqueeze(-2), -1e30)
                z = torch.logaddexp(near[:, some].logsumexp(-1, keepdim=True), f.logsumexp(-1, keepdim=True))
                target = torch.exp(f - z).sum(2)
                target = target / target.sum(-1, keepdim=True).clamp(min=1e-9)
            score = self.indexer.scores(x[:, some], qa[:, some], fwd.keys, tab[some], mode).masked_fill(hide, -1e30)
            kl = (target * (target.clamp(min=1e-9).log() - score.log_softmax(-1))).sum(-1)
            fwd.index_loss.append(kl.mean())
        if not mode.sparse:
            return
        with torch.no_grad():
            score = self.indexer.scores(x, qa, fwd.keys, tab, mode).masked_fill(unseen, -1e30)
        if self.layer == c["candidate_source_layer_id"]:
            size, g = c["candidate_block_size"], score.shape[-1]
            blocks = F.pad(score, (0, -g % size), value=-1e30).unflatten(-1, (-1, size)).amax(-1)
            pos = torch.arange(score.shape[1]) // size
            newest = torch.arange(blocks.shape[-1])[None] == pos[:, None]
            blocks = blocks.masked_fill(newest, 1e30)
            best = blocks.topk(min(c["candidate_topk_blocks"], blocks.shape[-1]), -1).indices
            lost = torch.ones_like(blocks, dtype=torch.bool).scatter(-1, best, False)
            fwd.lost = lost.repeat_interleave(size, -1)[..., :g]
        elif self.layer > c["candidate_source_layer_id"]:
            score = score.masked_fill(fwd.lost, -1e30)
        best = score.topk(min(c["index_topk"], score.shape[-1]), -1).indices
        fwd.dropped = torch.ones_like(score, dtype=torch.bool).scatter(-1, best, False) | unseen


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        e, d, i = c["n_routed_experts"], c["hidden_size"], c["moe_intermediate_size"]
        self.gate = Plain(e, d)
        self.register_buffer("bias", torch.zeros(e))
        self.register_buffer("load", torch.zeros(e))
        self.w1, self.w3 = (nn.Parameter(torch.randn(e, i, d) * d**-0.5) for _ in range(2))
        self.w2 = nn.Parameter(torch.randn(e, d, i) * 0.5 * i**-0.5)
        self.shared_experts = nn.ModuleDict(dict(w1=Linear(i, d), w2=Linear(d, i, 0.5), w3=Linear(i, d)))

    def forward(self, x, mode):
        c, lim = self.c, self.c["swiglu_limit"]
        s = torch.sqrt(F.softplus(self.gate(x)) + 1e-20)
        idx = (s.detach() + self.bias).topk(c["num_experts_per_tok"], -1).indices
        wt = s.gather(-1, idx)
        wt = wt / wt.sum(-1, keepdim=True) * c["routed_scaling_factor"]
        xa = act(x, mode)
        sh = self.shared_experts
        g, u = sh["w1"](xa, mode), sh["w3"](xa, mode)
        y = sh["w2"](act(F.silu(g.clamp(max=lim)) * u.clamp(-lim, lim), mode), mode)
        q = quant.fp4_weight if mode.weights else (lambda w: w)
        w1, w2, w3 = q(self.w1), q(self.w2), q(self.w3)
        k, n = idx.shape[-1], len(self.w1)
        order = idx.flatten().argsort(stable=True)
        counts = torch.bincount(idx.flatten(), minlength=n)
        if self.training:
            self.load += counts
        rows, owner, room = order // k, idx.flatten()[order], int(counts.max())
        slot = owner * room + torch.arange(len(order)) - (counts.cumsum(0) - counts)[owner]
        xe = xa.new_zeros(n * room, x.shape[-1]).index_copy(0, slot, xa.index_select(0, rows)).view(n, room, -1)
        we = wt.new_zeros(n * room).index_copy(0, slot, wt.flatten().index_select(0, order)).view(n, room, 1)
        g, u = torch.bmm(xe, w1.transpose(1, 2)), torch.bmm(xe, w3.transpose(1, 2))
        out = torch.bmm(act(we * (F.silu(g.clamp(max=lim)) * u.clamp(-lim, lim)), mode), w2.transpose(1, 2))
        return y.index_add(0, rows, out.flatten(0, 1).index_select(0, slot))


class Engram(nn.Module):
    def __init__(self, c, rows):
        super().__init__()
        h, d = c["hc_mult"], c["hidden_size"]
        cols = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"]
        self.shape = (h, d)
        self.embed = nn.Parameter(torch.randn(rows, c["engram_head_dim"]) * 0.1)
        self.wkv = Linear(d * (h + 1), cols * c["engram_head_dim"])
        self.q_weight, self.k_weight = nn.Parameter(torch.ones(h, d)), nn.Parameter(torch.ones(h, d))

    def forward(self, h, rows, mode):
        e = F.embedding(rows, self.embed)
        e = (quant.fp8(e) if mode.weights else e).flatten(-2)
        kv = self.wkv(act(e, mode), mode)
        n = h.shape[1] * h.shape[2]
        key, v = kv[:, :n].view_as(h), kv[:, n:]
        w = self.q_weight * self.k_weight
        dot = (rms(h, None) * w * rms(key, None)).sum(-1) * h.shape[-1] ** -0.5
        gate = torch.sigmoid(torch.sign(dot) * dot.abs().clamp(min=1e-4).sqrt())
        return h + gate[..., None] * v[:, None]


class Mixer(nn.Module):
    """The mHC mixes of one sub-layer."""

    def __init__(self, c):
        super().__init__()
        n, d = c["hc_mult"], c["hidden_size"]
        self.n, self.eps = n, c["hc_eps"]
        self.fn = nn.Parameter(torch.randn((2 + n) * n, n * d) * (n * d) ** -0.5)
        pre = torch.full((n,), -1.1) + 0.5 * torch.randn(n)
        self.base = nn.Parameter(torch.cat([pre, 0.5 * torch.randn(n), (2.5 * torch.eye(n)).flatten()]))
        self.scale = nn.Parameter(torch.full((3,), 0.2))

    def forward(self, h, mode):
        """h [T, n, D] -> pre [T, n], post [T, n], comb [T, out, in]"""
        n, eps = self.n, self.eps
        x = h.flatten(1)
        m = (self.fn @ x.t()) * torch.rsqrt(x.square().mean(-1) + 1e-20)
        pre = torch.sigmoid(m[:n] * self.scale[0] + self.base[:n, None]) + eps
        post = 2 * torch.sigmoid(m[n : 2 * n] * self.scale[1] + self.base[n : 2 * n, None])
        k = (m[2 * n :] * self.scale[2] + self.base[2 * n :, None]).view(n, n, -1).softmax(1) + eps
        k = k / (k.sum(0, keepdim=True) + eps)
        for _ in range(mode.sinkhorn - 1):
            k = k / (k.sum(1, keepdim=True) + eps)
            k = k / (k.sum(0, keepdim=True) + eps)
        return pre.t().contiguous(), post.t().contiguous(), k.permute(2, 1, 0).contiguous()


def collapse(h, pre):
    return torch.bmm(pre.unsqueeze(1), h).squeeze(1)


def expand(y, h, post, comb):
    return torch.baddbmm(post.unsqueeze(-1) * y.unsqueeze(1), comb, h)


class Block(nn.Module):
    def __init__(self, c, layer, engram_rows):
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(c["hidden_size"]), Norm(c["hidden_size"])
        self.attn, self.ffn = Attention(c, layer), MoE(c)
        self.hc_attn, self.hc_ffn = Mixer(c), Mixer(c)
        self.engram = Engram(c, engram_rows) if engram_rows else None

    def forward(self, h, pre, shape, rows, fwd, mode):
        if self.engram is not None:
            h = self.engram(h, rows, mode)
        a_pre, post, comb = self.hc_attn(h, mode)
        y = self.attn(self.attn_norm(collapse(h, pre)).view(*shape, -1), fwd, mode)
        h = expand(y.flatten(0, 1), h, post, comb)
        f_pre, post, comb = self.hc_ffn(h, mode)
        y = self.ffn(self.ffn_norm(collapse(h, a_pre)), mode)
        return expand(y, h, post, comb), f_pre


class Forward:
    """What layers of one forward share: tables, masks, main KV, selections, auxiliary losses."""

    def __init__(self, net, ids, losses, guide):
        self.net, self.ids, self.cache = net, ids, {}
        self.main = self.keys = self.dropped = self.lost = None
        self.index_loss = [] if losses else None
        self.index_phase = int(torch.randint(4, ())) if losses else 0
        self.guide_at, self.guide_loss, self.copy_loss = guide, [], []

    def _once(self, key, make):
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    def table(self, compressed, n, stride=1):
        freqs = self.net.freq_comp if compressed else self.net.freq_plain
        return self._once(("rope", compressed, n, stride), lambda: rope_table(freqs, torch.arange(n) * stride))

    def band(self, w, n):
        def make():
            i, j = torch.arange(w)[:, None] + w, torch.arange(2 * w)[None]
            ok = (j <= i) & (j > i - w)
            m = torch.full((1, n, w, 1, 2 * w), -1e30)
            m[:, :, ok.nonzero()[:, 0], :, ok.nonzero()[:, 1]] = 0
            m[:, 0, :, :, :w] = -1e30
            return m
        return self._once(("band", n), make)

    def unseen(self, s, r):
        return self._once(("unseen", s, r), lambda: (torch.arange(s // r)[None] >= (torch.arange(s)[:, None] + 1) // r)[None])

    def guide(self, attn, p, mode):
        """Auxiliary losses at recall answers: head 0 of each decoder layer looks at the row that holds the value, and what it
        reads from that row, projected straight to the vocabulary, is the row's token."""
        if self.guide_at is None or attn.ratio != 1:
            return
        b, at, row = self.guide_at
        self.guide_loss.append(-(p[b, at, 0, row] + 1e-4).log().mean())
        c, plain = self.net.c, attn.c["head_dim"] - attn.c["qk_rope_head_dim"]
        wa, wb = attn.wo_a.weight[: c["o_lora_rank"], :plain], attn.wo_b.weight[:, : c["o_lora_rank"]]
        y = F.linear(F.linear(self.main[b, row, :plain], wa), wb)
        self.copy_loss.append(F.cross_entropy(self.net.logits(self.net.norm(y)), self.ids[b, row]))


class Net(nn.Module):
    def __init__(self, c, engram_rows):
        """engram_rows: layer -> table rows"""
        super().__init__()
        self.c = c
        self.embed = nn.Parameter(torch.randn(c["vocab_size"], c["hidden_size"]) * 0.3)
        self.layers = nn.ModuleList(Block(c, i, engram_rows.get(i)) for i in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])
        self.head = nn.Parameter(torch.randn(c["vocab_size"], c["hidden_size"]) * 0.02)
        self.freq_plain = rope_freqs(c["qk_rope_head_dim"], c["rope_theta"])
        self.freq_comp = rope_freqs(c["qk_rope_head_dim"], c["compress_rope_theta"], c["rope_scaling"])

    def forward(self, ids, engram_rows, mode, losses=False, guide=None):
        """ids [B, S], S a multiple of the window; engram_rows: layer -> [B, S, columns].
        Returns (final norm output [B*S, D], Forward with the auxiliary losses)."""
        h = F.embedding(ids.flatten(), self.embed).unsqueeze(1).repeat(1, self.c["hc_mult"], 1)
        pre = F.one_hot(torch.zeros(len(h), dtype=torch.long), self.c["hc_mult"]).float()
        fwd = Forward(self, ids, losses, guide)
        for i, block in enumerate(self.layers):
            rows = engram_rows[i].flatten(0, 1) if i in engram_rows else None
            h, pre = block(h, pre, ids.shape, rows, fwd, mode)
        return self.norm(collapse(h, pre)), fwd

    def logits(self, x):
        return F.linear(x, self.head)
