"""Sequence by sequence, in float32."""


def attention(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, output, lse, batch_size, num_pages, len_indptr,
              num_kv_indices, sm_scale):  # fmt: skip
    ends = kv_indptr.tolist()
    for b in range(batch_size):
        pages = kv_indices[ends[b] : ends[b + 1]].long()
        latent, rotated = ckv_cache[pages, 0].float(), kpe_cache[pages, 0].float()
        logits = (q_nope[b].float() @ latent.t() + q_pe[b].float() @ rotated.t()) * sm_scale
        output[b] = logits.softmax(1) @ latent
        lse[b] = logits.logsumexp(1) * 1.4426950408889634
