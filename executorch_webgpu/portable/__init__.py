"""Plans made at export, which travel in the file and are played without Python."""
