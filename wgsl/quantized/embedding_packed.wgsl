// y[i, k] = codes[ids[i], k] * scale[g, id] + offset[g, id], from the same words
// as linear_packed.wgsl reads. One element per invocation.
// Supplied: get_ids, get_w, get_s, codes(word, part), offset1(i, s), put_y; p.depth
// (K), p.vocab (rows of the table), of which p.count from p.first on are here, p.rows
// (padded to 4), p.words, p.group; PARTS (of a word).
fn invocation(i: i32) {
  let which = i / p.depth;
  let k = i - which * p.depth;
  let id = clamped_index(get_ids(which), p.vocab) - p.first;
  if (id < 0 || id >= p.count) { return; }
  let g = k / p.group;
  let inside = k - g * p.group;
  let word = bitcast<u32>(get_w((g * p.words + inside / (PARTS * 4)) * p.rows + id));
  let part = (inside / 4) % PARTS;
  let code = codes(word, part)[inside & 3];
  let scale = get_s(g * p.rows + id);
  put_y(i, code * scale + offset1(g * p.rows + id, scale));
}
