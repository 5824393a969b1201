package l7

import (
	"net/http"
	"strings"
)

// overHeader tells the upstream which rules a request is above the line of, in
// their soft part: it may serve less, or warn its user.
const overHeader = "Headgate-Over"

// mark sets overHeader. Rules that only watch are not told. What a client or a
// proxy has sent under this name goes.
func (d *decision) mark(h http.Header) {
	h.Del(overHeader)
	if d == nil {
		return
	}
	var over []string
	for i := range d.charges {
		if c := &d.charges[i]; c.Answer.Over && !c.Watch {
			over = append(over, d.rules[i].name)
		}
	}
	if len(over) > 0 {
		h.Set(overHeader, strings.Join(over, ", "))
	}
}
