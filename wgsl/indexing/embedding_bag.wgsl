// y[b, c] = sum, mean or max of table[index[j], c] over the indices j of bag b,
// from offsets[b] to offsets[b + 1], or to the last index for the last bag.
// One output per invocation. Indices equal to p.padding do not count; a bag
// without any gives 0.
// Supplied: get_table, get_index, get_offsets, scale_of, put_y, MODE (0 sum, 1 mean, 2
// max), p.bags, p.offsets_given (one more than bags if the last one's end is given),
// p.indices, p.rows, p.columns, p.padding.
fn invocation(i: i32) {
  let bag = i / p.columns;
  let column = i - bag * p.columns;
  let first = clamp(get_offsets(bag), 0, p.indices);
  var end = p.indices;
  if (bag + 1 < p.offsets_given) { end = clamp(get_offsets(bag + 1), first, p.indices); }
  var total = 0.0;
  var best = -inf();
  var count = 0;
  for (var j = first; j < end; j++) {
    let index = get_index(j);
    if (index == p.padding) { continue; }
    let value = get_table(strict_index(index, p.rows) * p.columns + column);
    total += value * scale_of(j);
    best = max_nan(best, value);
    count++;
  }
  // Torch takes the last bag to end with the indices, whatever its last offset.
  if (bag == p.bags - 1 && end < p.indices) { count += p.indices - end; }
  if (MODE == 1) { total /= f32(max(count, 1)); }
  if (MODE == 2) { total = select(0.0, best, count > 0); }
  put_y(i, total);
}
