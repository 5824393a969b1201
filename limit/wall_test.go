package limit

import (
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

// wallClock shows a time that runs with the moments that it is set to. Nobody
// steps it but step.
type wallClock struct {
	base    time.Time
	begun   bool
	last    Ticks
	elapsed time.Duration
	rest    Ticks // beyond elapsed
}

// set lets the clock run up to now; moments before that leave it.
func (w *wallClock) set(now Ticks) {
	switch {
	case w == nil:
		return
	case !w.begun:
		w.begun, w.last = true, now
	case int64(now-w.last) > 0:
		w.rest += now - w.last
		w.elapsed += time.Duration(w.rest / ticksPerNano)
		w.rest %= ticksPerNano
		w.last = now
	}
}

func (w *wallClock) step(by time.Duration) { w.base = w.base.Add(by) }

func (w *wallClock) now() time.Time { return w.base.Add(w.elapsed) }

func (w *wallClock) drawBase(t *rapid.T) {
	hours := rapid.IntRange(0, 24*365*14).Draw(t, "hours")
	*w = wallClock{base: time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(hours) * time.Hour)}
}

func (w *wallClock) drawFixed(t *rapid.T) Limit {
	w.drawBase(t)
	c, err := NewAligned(time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "window")), w.now)
	if err != nil {
		t.Fatal(err)
	}
	return drawTally(t, c)
}

func (w *wallClock) drawQuota(t *rapid.T) Limit {
	w.drawBase(t)
	zone := mustZone(rapid.SampledFrom(oddZones).Draw(t, "zone"))
	unit := rapid.SampledFrom([]Unit{Day, Week, Month}).Draw(t, "unit")
	anchor := map[Unit]int{Week: rapid.IntRange(0, 6).Draw(t, "weekday"), Month: rapid.IntRange(1, 31).Draw(t, "day")}[unit]
	c, err := NewCalendar(unit, zone, anchor, w.now)
	if err != nil {
		t.Fatal(err)
	}
	return drawTally(t, c)
}

func drawTally(t *rapid.T, c *Calendar) Limit {
	l, err := NewTally(rapid.Int64Range(1, 40).Draw(t, "n"), c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// oddZones change their clocks at midnight, just after it, by half an hour, or
// skipped a whole day.
var oddZones = []string{
	"UTC", "America/Sao_Paulo", "America/Havana", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia",
	"Asia/Beirut", "Africa/Cairo", "America/New_York", "Asia/Kolkata",
}

func mustZone(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return zone
}
