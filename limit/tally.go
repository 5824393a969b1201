package limit

// Tally counts the admissions of one period of a Calendar: it admits N in each,
// so up to 2·N in a short time around a boundary. What was counted stays when
// figures or calendar change: it is then spent in the new calendar's period. The
// zero value is empty; the size is fixed.
type Tally struct {
	end    Ticks // of the period that is counted
	count  int64
	share  float32
	denied bool // it has refused in this period
}

// settle makes the period of now the tally's and returns its end.
func (t *Tally) settle(now Ticks, l *Limit) Ticks {
	p := l.calendar.at(now)
	switch {
	case t.end == p.end:
	case int64(t.end-p.start) > 0 && Until(t.end, now) > 0:
		t.end = p.end // of another calendar, and still running
	default:
		*t = Tally{end: p.end}
	}
	return p.end
}

func (t *Tally) wait(now Ticks, l *Limit) Ticks {
	end := t.settle(now, l)
	return t.until(now, end, l.most)
}

func (t *Tally) until(now, end Ticks, n int64) Ticks {
	if t.count < n {
		return 0
	}
	return Until(end, now)
}

// charge counts one more; what is refused only up to the limit.
func (t *Tally) charge(now Ticks, l *Limit) {
	t.settle(now, l)
	if t.count < l.most {
		t.count++
	}
	t.note(l)
}

func (t *Tally) note(l *Limit) { t.share = float32(float64(t.count) / float64(l.most)) }

func (t *Tally) deny() { t.denied = true }

func (t *Tally) giveBack(now Ticks, l *Limit, n int64) int64 {
	t.settle(now, l)
	t.count = min(t.count, l.most)
	n = min(n, t.count)
	t.count -= n
	t.denied = false
	t.note(l)
	return n
}

func (t *Tally) answer(now Ticks, l *Limit) Answer {
	end := t.settle(now, l)
	a := Answer{
		Wait: t.until(now, end, l.most), Under: t.until(now, end, l.quota),
		Remaining: max(0, l.quota-t.count), Over: t.count > l.quota,
	}
	if t.count > 0 {
		a.Reset = Until(end, now)
	}
	return a
}

func (t *Tally) used(now Ticks) float32 {
	if t.count == 0 || Until(t.end, now) == 0 {
		return 0
	}
	return t.share
}

func (t *Tally) firm(now Ticks) bool { return t.used(now) > 0 && (t.denied || t.share >= 1) }
