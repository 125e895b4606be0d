"""Synthetic page tables of attention over a paged cache of page size 1. Imports torch alone.

They have the structure of tables that were recorded from a serving system: lengths are heavy-tailed; every sequence
begins with one page that all share; the pages of its prompt follow one another; and the pages of the tokens that were
decoded are as far apart as there are sequences, since each step of the batch takes one page for each.
"""

from __future__ import annotations

import torch

SPREAD = 1.6
"""Standard deviation of the logarithm of lengths; that of the recorded tables lies between 1.5 and 2."""


def lengths(generator: torch.Generator, count: int, total: int, least: int = 1) -> torch.Tensor:
    """`count` log-normal lengths that sum to `total` exactly, each at least `least`; int64 on the CPU.

    ValueError when the total is too small.
    """
    spare = total - count * least
    if count < 1 or spare < 0:
        raise ValueError(f"{count} lengths of at least {least} cannot sum to {total}")
    weights = (SPREAD * _normal(generator, count)).exp()
    extra = (weights / weights.sum() * spare).floor().long()
    extra[weights.argmax()] += spare - extra.sum()
    return extra + least


def offsets(sizes: torch.Tensor, device: torch.device | str = "cpu") -> torch.Tensor:
    """Where each part begins, and the end: int32 of shape [count + 1] on the device."""
    ends = torch.zeros(len(sizes) + 1, dtype=torch.int64)
    ends[1:] = sizes.cumsum(0)
    return ends.int().to(device)


def page_table(
    generator: torch.Generator, sizes: torch.Tensor | int, num_kv_indices: int, num_pages: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """kv_indptr [sequences + 1] and kv_indices [num_kv_indices], int32 on the generator's device.

    `sizes` holds the lengths of the sequences (int64 on the CPU), or says how many sequences there are. No sequence is
    empty; no page is twice in a sequence, and but for the shared one none is in two. ValueError when the numbers do not
    fit together.
    """
    known = lengths(generator, sizes, num_kv_indices) if isinstance(sizes, int) else sizes
    used = num_kv_indices - len(known) + 1
    if int(known.min()) < 1 or int(known.sum()) != num_kv_indices:
        raise ValueError(f"the lengths must be at least 1 and sum to {num_kv_indices}")
    if used > num_pages:
        raise ValueError(f"{num_kv_indices} indices of {len(known)} sequences need {used} pages, not {num_pages}")
    decoded = int(_integers(generator, 1, int(known.min())))
    begins = _begins(generator, known - 1 - decoded, num_pages - used)
    sequence = torch.repeat_interleave(torch.arange(len(known)), known)
    starts = known.cumsum(0) - known
    place = torch.arange(num_kv_indices) - starts[sequence]
    step = place - (known - decoded)[sequence]
    prompt = begins[1:-1][sequence] + place - 1
    pages = torch.where(step < 0, prompt, begins[-1] + step * len(known) + sequence)
    pages[starts] = begins[0]
    return offsets(known, generator.device), pages.int().to(generator.device)


def _begins(generator: torch.Generator, prompts: torch.Tensor, free: int) -> torch.Tensor:
    """First pages of the shared page, of each prompt and of the decoded tokens, with the free pages between them."""
    sizes = torch.cat([torch.ones(1, dtype=torch.int64), prompts])
    gaps = _integers(generator, len(sizes) + 1, free + 1).sort().values
    before = torch.zeros(len(sizes) + 1, dtype=torch.int64)
    before[1:] = sizes.cumsum(0)
    return before + gaps


def _normal(generator: torch.Generator, count: int) -> torch.Tensor:
    return torch.randn(count, generator=generator, device=generator.device, dtype=torch.float64).cpu()


def _integers(generator: torch.Generator, count: int, below: int) -> torch.Tensor:
    """Uniform in [0, below)."""
    return torch.randint(below, (count,), generator=generator, device=generator.device).cpu()
