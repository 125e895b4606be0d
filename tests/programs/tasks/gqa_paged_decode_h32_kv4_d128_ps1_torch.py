"""Sequence by sequence, in float32."""

import torch


def attention(q, k_cache, v_cache, kv_indptr, kv_indices, output, lse, batch_size, num_pages, len_indptr,
              num_kv_indices, sm_scale):  # fmt: skip
    ends = kv_indptr.tolist()
    for b in range(batch_size):
        pages = kv_indices[ends[b] : ends[b + 1]].long()
        keys = k_cache[pages, 0].float().repeat_interleave(8, 1)
        values = v_cache[pages, 0].float().repeat_interleave(8, 1)
        logits = torch.einsum("hd,thd->ht", q[b].float(), keys) * sm_scale
        output[b] = torch.einsum("ht,thd->hd", logits.softmax(1), values)
        lse[b] = logits.logsumexp(1) * 1.4426950408889634
