"""What a step does between its products and beside the Mamba mixer, in Triton: RMSNorm with the residual's sum, cross entropy, RoPE."""
import torch
import triton
import triton.language as tl


@triton.jit
def norm_forward_kernel(residual, mixed, gain, total, out, rstd, eps, size, ADDS: tl.constexpr, E: tl.constexpr):
    row, e = tl.program_id(0), tl.arange(0, E)
    inside = e < size
    x = tl.load(residual + row * size + e, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        stored = (x + tl.load(mixed + row * size + e, mask=inside, other=0.0).to(tl.float32)).to(tl.bfloat16)
        tl.store(total + row * size + e, stored, mask=inside)
        x = stored.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / size + eps)
    tl.store(out + row * size + e, (x * scale * tl.load(gain + e, mask=inside, other=0.0)).to(tl.bfloat16), mask=inside)
    tl.store(rstd + row, scale)


@triton.jit
def norm_backward_kernel(x, rstd, gain, dy, dresidual, dx, sums, rows, size, turns, ADDS: tl.constexpr, E: tl.constexpr):
    e = tl.arange(0, E)
    inside = e < size
    gains = tl.load(gain + e, mask=inside, other=0.0)
    kept = tl.zeros([E], tl.float32)
    for turn in range(turns):
        row = tl.program_id(0) * turns + turn
        where = inside & (row < rows)
        scale = tl.load(rstd + row, mask=row < rows, other=0.0)
        normed = tl.load(x + row * size + e, mask=where, other=0.0).to(tl.float32) * scale
        slope = tl.load(dy + row * size + e, mask=where, other=0.0).to(tl.float32)
        v = slope * gains
        result = scale * (v - normed * (tl.sum(normed * v, 0) / size))
        if ADDS:
            result += tl.load(dresidual + row * size + e, mask=where, other=0.0).to(tl.float32)
        kept += slope * normed
        tl.store(dx + row * size + e, result.to(tl.bfloat16), mask=where)
    tl.store(sums + tl.program_id(0) * size + e, kept, mask=inside)


def norm_forward(residual, mixed, gain, eps):
    """The norm of residual + mixed, or of residual alone. Returns that sum, the norm, and what it was scaled by."""
    rows, size = residual.shape
    total = residual if mixed is None else torch.empty_like(residual)
    out, rstd = torch.empty_like(residual), torch.empty(rows, dtype=torch.float32, device=residual.device)
    block = triton.next_power_of_2(size)
    norm_forward_kernel[(rows,)](residual, residual if mixed is None else mixed, gain, total, out, rstd, eps, size, mixed is not None,
                                 block, num_warps=8 if block >= 2048 else 4)
    return total, out, rstd


def norm_backward(x, rstd, gain, dy, dresidual):
    """Returns the gradients of x and gain; `dresidual`, where there is one, is added to the former."""
    rows, size = x.shape
    turns = 16 if rows >= 4096 else 8
    blocks = triton.cdiv(rows, turns)
    dx, sums = torch.empty_like(x), torch.empty(blocks, size, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(size)
    norm_backward_kernel[(blocks,)](x, rstd, gain, dy, x if dresidual is None else dresidual, dx, sums, rows, size, turns,
                                    dresidual is not None, block, num_warps=8 if block >= 2048 else 4)
    return dx, sums.sum(0)


@triton.jit
def cross_entropy_kernel(logits, target, scale, loss, vocabulary, V: tl.constexpr):
    """Replaces logits by their gradients."""
    row = tl.program_id(0).to(tl.int64)
    own, inverse = tl.load(target + row), tl.load(scale)
    most, total = float("-inf"), 0.0
    place = logits + row * vocabulary
    for start in range(0, vocabulary, V):
        v = start + tl.arange(0, V)
        x = tl.load(place + v, mask=v < vocabulary, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(most, tl.max(x, 0))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(x - larger), 0)
        most = larger
    counts = tl.where(own >= 0, inverse, 0.0)
    here = tl.load(place + tl.maximum(own, 0)).to(tl.float32)
    tl.store(loss + row, (most + tl.log(total) - here) * counts)
    tl.debug_barrier()  # The target's logit has been read.
    for start in range(0, vocabulary, V):
        v = start + tl.arange(0, V)
        x = tl.load(place + v, mask=v < vocabulary, other=float("-inf")).to(tl.float32)
        slope = (tl.exp(x - most) / total - tl.where(v == own, 1.0, 0.0)) * counts
        tl.store(place + v, slope.to(tl.bfloat16), mask=v < vocabulary)


def cross_entropy(logits, target, scale):
    """Returns the loss of each row, and leaves the gradients in `logits`. `scale`: one over the number of targets."""
    rows, vocabulary = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(8192, triton.next_power_of_2(vocabulary))
    cross_entropy_kernel[(rows,)](logits, target, scale, loss, vocabulary, block, num_warps=16 if block == 8192 else 4)
    return loss


@triton.jit
def rope_kernel(source, source_stride, table, position, to, to_stride, heads, sign, half, R: tl.constexpr, H: tl.constexpr, E: tl.constexpr):
    """`table`: cosines, then sines, of each position."""
    row, head, e = tl.program_id(0), tl.arange(0, H), tl.arange(0, E)
    inside = (head < heads)[:, None] & (e < half)[None, :]
    here = table + tl.load(position + row) * 2 * half + e
    cosine, sine = tl.load(here, mask=e < half)[None, :], tl.load(here + half, mask=e < half)[None, :] * sign
    place = head[:, None] * 2 * half + e[None, :]
    a = tl.load(source + row * source_stride + place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(source + row * source_stride + place + half, mask=inside, other=0.0).to(tl.float32)
    tl.store(to + row * to_stride + place, (a * cosine - b * sine).to(tl.bfloat16), mask=inside)
    tl.store(to + row * to_stride + place + half, (a * sine + b * cosine).to(tl.bfloat16), mask=inside)


def rotate(source, table, position, to, heads, sign):
    """Turns the first `heads` heads of each row; `to` may be `source`."""
    half = table.shape[1] // 2
    rope_kernel[(source.shape[0],)](source, source.stride(0), table, position, to, to.stride(0), heads, sign, half, 1,
                                    triton.next_power_of_2(heads), triton.next_power_of_2(half), num_warps=4)
