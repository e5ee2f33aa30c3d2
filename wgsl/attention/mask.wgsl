// Library: where the mask of a score is, for a row of all queries and key k. A mask of
// fewer keys repeats its last.
// Supplied: p.queries; mask_s (offset, strides of batch, head, query and key, heads,
// keys of the mask).
fn mask_index(row: i32, k: i32) -> i32 {
  let head = row / p.queries;
  return mask_s_at(0) + (head / mask_s_at(5)) * mask_s_at(1)
         + (head % mask_s_at(5)) * mask_s_at(2) + (row % p.queries) * mask_s_at(3)
         + min(k, mask_s_at(6) - 1) * mask_s_at(4);
}
