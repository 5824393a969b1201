package board

// Copy is this host's copy of what is posted, by id. It is not safe for
// concurrent use.
type Copy map[string]Notice

// Facts tell two copies apart without comparing them.
type Facts struct {
	Count int
	Sum   int64 // of all versions, modulo
}

// modulo keeps sums within what Redis' Lua holds exactly.
const modulo = 1_000_000_007

// Facts returns those of c.
func (c Copy) Facts() (f Facts) {
	for _, n := range c {
		f.Count++
		f.Sum = (f.Sum + n.Version) % modulo
	}
	return f
}

// Newest returns the highest version in c.
func (c Copy) Newest() (v int64) {
	for _, n := range c {
		v = max(v, n.Version)
	}
	return v
}

// Forget drops what is over at now, and returns whether anything was.
func (c Copy) Forget(now int64) bool {
	some := false
	for id, n := range c {
		if n.over(now) {
			delete(c, id)
			some = true
		}
	}
	return some
}

// Newer returns those of all that c has in an older version or not at all.
func (c Copy) Newer(all []Notice) (out []Notice) {
	for _, n := range all {
		if c[n.ID].Version < n.Version {
			out = append(out, n)
		}
	}
	return out
}

// Lacking returns what of c is not in all, or only in an older version.
func (c Copy) Lacking(all []Notice) (out []Notice) {
	versions := make(map[string]int64, len(all))
	for _, n := range all {
		versions[n.ID] = n.Version
	}
	for id, n := range c {
		if versions[id] < n.Version {
			out = append(out, n)
		}
	}
	return out
}
