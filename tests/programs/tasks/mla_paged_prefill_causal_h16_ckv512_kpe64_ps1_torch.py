"""Query by query, in float32."""


def attention(q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, output, lse, total_q, num_pages,
              len_indptr, num_kv_indices, sm_scale):  # fmt: skip
    queries, ends = qo_indptr.tolist(), kv_indptr.tolist()
    for b in range(len_indptr - 1):
        pages = kv_indices[ends[b] : ends[b + 1]].long()
        latent, rotated = ckv_cache[pages, 0].float(), kpe_cache[pages, 0].float()
        for row in range(queries[b], queries[b + 1]):
            seen = len(pages) - (queries[b + 1] - row) + 1
            logits = q_nope[row].float() @ latent[:seen].t() + q_pe[row].float() @ rotated[:seen].t()
            logits *= sm_scale
            output[row] = logits.softmax(1) @ latent[:seen]
            lse[row] = logits.logsumexp(1) * 1.4426950408889634
