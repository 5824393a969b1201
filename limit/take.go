package limit

// mostBuckets is how many charges takeBuckets decides.
const mostBuckets = 8

// takeBuckets is take for the common request: all its charges are to token
// buckets of this host that are there already. So no place is made, none moves,
// and each is looked for and brought up to date once. Where a charge is of
// another kind, nothing is done, and done is false.
func (s *Store) takeBuckets(now Ticks, charges []Charge, may bool) (ok, done bool) {
	var buckets [mostBuckets]*Bucket
	if len(charges) > mostBuckets {
		return false, false
	}
	for i := range charges {
		c := &charges[i]
		if c.Limit.kind() != TokenBucket {
			return false, false
		}
		b := s.shard(c.Key).buckets.find(c.Key)
		if b == nil {
			return false, false
		}
		buckets[i] = b
	}
	var debts [mostBuckets]Ticks
	var over uint // bits of the buckets whose debt the figures have no room for
	ok = true
	for i := range charges {
		c, b := &charges[i], buckets[i]
		c.Shared, c.Asks, c.Refused = false, false, true
		if b.adopt(now, c.Limit) {
			debts[i] = Until(b.tat, now)
			c.Refused = late(debts[i], c.Limit.cost, c.Limit.deep) > 0
		} else {
			over |= 1 << i
		}
		ok = ok && (c.Watch || !c.Refused)
	}
	for i := range charges {
		c, b := &charges[i], buckets[i]
		adopted := over&(1<<i) == 0
		if adopted && (ok && may && !c.Refused || c.Limit.always && (may || !ok)) {
			debts[i] = b.add(now, c.Limit, debts[i])
		}
		if c.Refused {
			b.deny()
		}
		if adopted {
			c.Answer = answerOf(debts[i], c.Limit)
		} else {
			c.Answer = b.answer(now, c.Limit)
		}
	}
	return ok, true
}
