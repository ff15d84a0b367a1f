"""Fake quantisers (spec 2.3, 3.2 - 3.9) with straight-through gradients. All tensors float32."""
import torch


def _exponent(x: torch.Tensor) -> torch.Tensor:
    """2^floor(log2 |x|), 0 for zeros and subnormals."""
    return (x.view(torch.int32) & 0x7F800000).view(torch.float32)


def pow2_ceil(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)


def e4m3(x: torch.Tensor) -> torch.Tensor:
    """Nearest e4m3fn value of |x| <= 448, ties to even."""
    step = _exponent(x).clamp_(min=2.0**-6).mul_(0.125)
    return torch.round(x / step).mul_(step)


def e2m1(x: torch.Tensor) -> torch.Tensor:
    """Nearest e2m1 value of |x| <= 6, ties to even."""
    step = _exponent(x).clamp_(min=1.0).mul_(0.5)
    return torch.round(x / step).mul_(step)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fn):
        return fn(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def _grouped(x, n, scale_of, limit, code):
    g = x.reshape(*x.shape[:-1], -1, n)
    s = scale_of(g.abs().amax(-1, keepdim=True))
    return code((g / s).clamp_(-limit, limit)).mul_(s).reshape(x.shape)


def _fp8(x):
    return _grouped(x, 32, lambda a: pow2_ceil(a.clamp_(min=1e-4) * (1 / 448)), 448, e4m3)


def _fp4_index(x):
    return _grouped(x, 32, lambda a: pow2_ceil(a.clamp_(min=6 * 2.0**-126) * (1 / 6)), 6, e2m1)


def _fp4_main(x):
    return _grouped(x, 16, lambda a: e4m3((a.clamp_(min=6 * 2.0**-9) / 6).clamp_(max=448)), 6, e2m1)


def fp8_weight_parts(w):
    """w [..., N, K] -> (e4m3 values, scales [..., N/32, K/32]); N and K multiples of 32."""
    t = w.reshape(*w.shape[:-2], w.shape[-2] // 32, 32, w.shape[-1] // 32, 32)
    s = pow2_ceil(t.abs().amax((-3, -1), keepdim=True).clamp_(min=1e-4) * (1 / 448))
    return e4m3(t / s).reshape(w.shape), s.squeeze(-1).squeeze(-2)


def fp4_weight_parts(w):
    """w [..., N, K] -> (e2m1 values, scales [..., N, K/32])"""
    t = w.reshape(*w.shape[:-1], -1, 32)
    s = pow2_ceil(t.abs().amax(-1, keepdim=True).clamp_(min=1e-6) * (1 / 6))
    return e2m1((t / s).clamp_(-6, 6)).reshape(w.shape), s.squeeze(-1)


def _fp8_weight(w):
    v, s = fp8_weight_parts(w)
    return v * s.repeat_interleave(32, -2).repeat_interleave(32, -1)


def _fp4_weight(w):
    v, s = fp4_weight_parts(w)
    return v * s.repeat_interleave(32, -1)


def _ste(fn):
    return lambda x: _StraightThrough.apply(x, fn)


fp8, fp4_index, fp4_main = _ste(_fp8), _ste(_fp4_index), _ste(_fp4_main)
fp8_weight, fp4_weight = _ste(_fp8_weight), _ste(_fp4_weight)
