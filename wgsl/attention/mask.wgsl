// Library: the index in the mask for `row`, of all heads' queries, and key k. A mask
// with fewer columns than keys repeats its last one.
// Supplied: p.queries; mask_s (offset, strides of batch, head, query and key, heads,
// keys of the mask).
fn mask_index(row: i32, k: i32) -> i32 {
  let head = row / p.queries;
  return mask_s_at(0) + (head / mask_s_at(5)) * mask_s_at(1)
         + (head % mask_s_at(5)) * mask_s_at(2) + (row % p.queries) * mask_s_at(3)
         + min(k, mask_s_at(6) - 1) * mask_s_at(4);
}
