// y[i, k] = code[id, k] * scale[g, id] + offset[g, id], with id = ids[i] and g the
// group of k, from words packed as for linear_packed.wgsl. One element per invocation.
// Supplied: get_ids, get_w, get_s, codes(word, f), offset1(i, s), put_y; p.depth (K),
// p.vocab (rows of the table, of which w has p.count, from row p.first on), p.rows (of
// w, padded to 4), p.words (per group), p.group (its size); FOURS (in a word).
fn invocation(i: i32) {
  let which = i / p.depth;
  let k = i - which * p.depth;
  let id = clamped_index(get_ids(which), p.vocab) - p.first;
  if (id < 0 || id >= p.count) { return; }
  let g = k / p.group;
  let inside = k - g * p.group;
  let word = bitcast<u32>(get_w((g * p.words + inside / (FOURS * 4)) * p.rows + id));
  let f = (inside / 4) % FOURS;
  let code = codes(word, f)[inside & 3];
  let scale = get_s(g * p.rows + id);
  put_y(i, code * scale + offset1(g * p.rows + id, scale));
}
