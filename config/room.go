package config

import "fmt"

// Room is how much memory the bucket keys of the HTTP gate's rules may take.
type Room struct {
	Bound   int64 `json:"bound"`   // bytes, of all rules: http.memory
	Rules   int64 `json:"rules"`   // bytes, of those with a bound of their own, added up
	Bounded int   `json:"bounded"` // so many those are
	Others  int   `json:"others"`  // rules that have none
}

// Memory returns the room that c gives its rules, nil where there is no HTTP gate.
func Memory(c *Config) *Room {
	if len(c.HTTP.Listeners) == 0 {
		return nil
	}
	m := &Room{Bound: c.HTTP.Memory}
	for _, r := range c.Rules {
		switch {
		case r.Gate != GateHTTP:
		case r.Memory > 0:
			m.Bounded++
			m.Rules += min(r.Memory, m.Bound)
		default:
			m.Others++
		}
	}
	return m
}

// String says m in words.
func (m *Room) String() string {
	s := "memory: the keys of all rules take at most " + bytesText(m.Bound, false) + " (http.memory)"
	if m.Bounded == 0 {
		return s
	}
	s += fmt.Sprintf("; the bounds that rules have of their own (%d) add up to %s", m.Bounded, bytesText(m.Rules, false))
	switch {
	case m.Rules > m.Bound:
		s += ", which is more: rules can take each other's room (raise http.memory)"
	case m.Others > 0:
		s += fmt.Sprintf(", without one: %d", m.Others)
	}
	return s
}
