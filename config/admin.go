package config

import (
	"path/filepath"
)

// longestSocket is sun_path of unix(7) without the zero byte.
const longestSocket = 107

func (o *object) admin() Admin {
	a := Admin{Socket: o.absolute("socket")}
	if len(a.Socket) > longestSocket {
		o.errorf(o.at("socket"), "socket path of %d bytes: the most is %d", len(a.Socket), longestSocket)
	}
	w, ok := o.word("listen")
	switch {
	case !ok || w.text == "off":
	case w.text == "false" || w.text == "none" || w.text == "no":
		o.errorf(w.node, "%s is no address: write `listen: off` for none", quote(w.text))
	default:
		a.Listen = w.text
		if err := checkAddress(w.text); err != nil {
			o.errorf(w.node, "%s", err)
		}
	}
	return a
}

func (o *object) state() State {
	return State{Dir: o.absolute("dir"), Pins: o.absolute("pins")}
}

// absolute reads a path from the root: a daemon's folder is not its user's.
func (o *object) absolute(key string) string {
	w, ok := o.word(key)
	if !ok {
		return ""
	}
	if !filepath.IsAbs(w.text) {
		o.errorf(w.node, "%s %s: write the whole path, from `/`", key, quote(w.text))
	}
	return filepath.Clean(w.text)
}
