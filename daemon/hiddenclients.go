package daemon

import (
	"fmt"

	"github.com/headgate/headgate/l7"
)

// HiddenCure is what to do where HTTPStatus.Hidden says something.
const HiddenCure = "declare it under http.proxies, or all its clients share one bucket"

// hiddenWords says that clients are probably hidden behind a proxy that is not
// declared, if they are.
func hiddenWords(h l7.Hidden) string {
	if !h.Likely() {
		return ""
	}
	from := "1 address that is"
	if h.Addresses != 1 {
		from = fmt.Sprintf("%d addresses that are", h.Addresses)
	}
	return fmt.Sprintf("the source address is probably hidden behind a proxy: %d of %d requests came from %s not declared, with X-Forwarded-For or the like", h.Requests, max(h.Of, h.Requests), from)
}
