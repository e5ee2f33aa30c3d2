// Library: how the invocations of attention_flash combine what they have of each row:
// across a subgroup in registers, and one value of each subgroup and row through
// workgroup memory; none where a subgroup is the whole workgroup. Nothing is assumed of
// subgroups, neither their size nor which invocations they hold.
// Supplied: ROWS, WG; QUADS, Quads, k_tile, most, total.
const WORDS = (WG + 31) / 32;

// A bit for each invocation that is the first of its subgroup.
var<workgroup> firsts: array<atomic<u32>, WORDS>;
var<private> is_first: bool;
var<private> is_alone: bool;  // its subgroup holds the whole workgroup
var<private> highs: Quads;  // the running maxima
// Of each row: what is subtracted from scores, and the factor that rescales what was
// summed before.
var<private> base: array<f32, ROWS>;
var<private> kept: array<f32, ROWS>;

fn begin_rows(id: i32) {
  is_first = subgroupExclusiveAdd(1u) == 0u;
  is_alone = subgroupAdd(1u) == u32(WG);
  if (id < WORDS) { atomicStore(&firsts[id], 0u); }  // not every runtime clears memory
  workgroupBarrier();
  if (is_first) { atomicOr(&firsts[id / 32], 1u << u32(id % 32)); }
  for (var q = 0; q < QUADS; q++) { highs[q] = vec4<f32>(-inf()); }
}

// The maximum, or the sum, over all subgroups. Each leaves its own where the key of its
// first invocation was, which nobody else reads before the next slice. Their order is
// that of these invocations, so that sums do not depend on timing.
fn over_subgroups(id: i32, own: Quads, is_sum: bool) -> Quads {
  if (is_first && !is_alone) {
    for (var q = 0; q < QUADS; q++) { k_tile[id][q] = own[q]; }
  }
  workgroupBarrier();
  var all = own;
  if (!is_alone) {
    for (var q = 0; q < QUADS; q++) { all[q] = vec4<f32>(select(-inf(), 0.0, is_sum)); }
    for (var word = 0; word < WORDS; word++) {
      for (var left = atomicLoad(&firsts[word]); left != 0u; left &= left - 1u) {
        let first = word * 32 + i32(firstTrailingBit(left));
        for (var q = 0; q < QUADS; q++) {
          let one = k_tile[first][q];
          all[q] = select(max(all[q], one), all[q] + one, is_sum);
        }
      }
    }
  }
  return all;
}

// Raises the running maxima to the scores of this invocation's key.
fn raise_rows(id: i32, s: Quads) {
  let before = highs;
  var own = Quads();
  for (var q = 0; q < QUADS; q++) { own[q] = max(before[q], subgroupMax(s[q])); }
  highs = over_subgroups(id, own, false);
  for (var q = 0; q < QUADS; q++) {
    let low = select(highs[q], vec4<f32>(), highs[q] == vec4<f32>(-inf()));
    let factor = exp(before[q] - low);
    for (var i = 0; i < 4; i++) {
      base[q * 4 + i] = low[i];
      kept[q * 4 + i] = factor[i];
    }
  }
}

// Adds up the weights of all keys. `most` and `total` can be read after a barrier.
fn add_up_rows(id: i32, totals: Quads) {
  var own = Quads();
  for (var q = 0; q < QUADS; q++) { own[q] = subgroupAdd(totals[q]); }
  let all = over_subgroups(id, own, true);
  if (id == 0) {
    for (var r = 0; r < ROWS; r++) {
      most[r] = highs[r / 4][r % 4];
      total[r] = all[r / 4][r % 4];
    }
  }
}
