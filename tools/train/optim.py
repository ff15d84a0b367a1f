"""Muon for the matrices inside the layers (work shared between ranks), Adam for everything else."""
import torch
import torch.distributed as dist


def _orthogonal(g: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz iteration towards the orthogonal factor of every matrix of g [B, N, K]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    flip = g.shape[-2] > g.shape[-1]
    x = g.transpose(-1, -2) if flip else g
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).contiguous()
    for _ in range(5):
        s = torch.bmm(x, x.transpose(-1, -2))
        x = a * x + torch.bmm(b * s + c * torch.bmm(s, s), x)
    return x.transpose(-1, -2) if flip else x


class Optimizer:
    def __init__(self, net, rank, world):
        self.rank, self.world, self.step_no = rank, world, 0
        self.groups, self.adam = {}, []
        for name, p in net.named_parameters():
            matrix = ".layers." in f".{name}" and p.dim() >= 2 and name.split(".")[-1] not in ("embed", "fn", "q_weight", "k_weight")
            if matrix and "gate.weight" not in name and "weights_proj" not in name:
                self.groups.setdefault(tuple(p.shape[-2:]), []).append(p)
            else:
                # (rate, second-moment decay)
                rate = {"embed": 6e-3, "fn": 2e-3, "base": 1e-2, "scale": 1e-2}.get(name.split(".")[-1], 4e-3)
                if name in ("embed", "head"):
                    rate = 4e-3
                self.adam.append((p, rate))
        self.momentum = {k: torch.zeros(sum(p.numel() // (k[0] * k[1]) for p in ps), *k) for k, ps in self.groups.items()}
        self.m = [torch.zeros_like(p) for p, _ in self.adam]
        self.v = [torch.zeros_like(p) for p, _ in self.adam]

    @torch.no_grad()
    def step(self, scale):
        """One update with all rates multiplied by scale; gradients are already averaged over the ranks."""
        self.step_no += 1
        updates = []
        for shape, ps in self.groups.items():
            g = torch.cat([p.grad.reshape(-1, *shape) for p in ps])
            m = self.momentum[shape].mul_(0.95).add_(g)
            u, n = torch.zeros_like(g), len(g)
            a, b = n * self.rank // self.world, n * (self.rank + 1) // self.world
            if b > a:
                u[a:b] = _orthogonal(g[a:b].add(m[a:b], alpha=0.95)) * max(1.0, shape[0] / shape[1]) ** 0.5
            updates.append(u)
        flat = torch.cat([u.flatten() for u in updates])
        if self.world > 1:
            dist.all_reduce(flat)
        at = 0
        for ps in self.groups.values():
            for p in ps:
                p.mul_(1 - 0.02 * 0.02 * scale).add_(flat[at : at + p.numel()].view_as(p), alpha=-0.02 * scale)
                at += p.numel()
        t = self.step_no
        for (p, rate), m, v in zip(self.adam, self.m, self.v):
            m.lerp_(p.grad, 0.1)
            v.mul_(0.98).addcmul_(p.grad, p.grad, value=0.02)
            p.addcdiv_(m, (v / (1 - 0.98**t)).sqrt_().add_(1e-10), value=-rate * scale / (1 - 0.9**t))

    def state(self):
        return dict(step=self.step_no, momentum=self.momentum, m=self.m, v=self.v)

    def load(self, s):
        self.step_no, self.momentum, self.m, self.v = s["step"], s["momentum"], s["m"], s["v"]
