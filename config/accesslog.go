package config

import "slices"

// LogFormat is how a line of the access log is written.
type LogFormat string

const (
	JSON     LogFormat = "json"     // an object a line
	Combined LogFormat = "combined" // as web servers write it, then the rule and the request's id
)

// AccessLog says which requests the HTTP gate writes down, and how.
type AccessLog struct {
	File    string // absolute path; opened by the daemon, and anew when it is reloaded or the file was moved away
	Format  LogFormat
	Passed  bool // those that pass are written
	Refused int  // refusals written a second and rule; below 0: all
}

// mostRefusals is how many refusals a second and rule may be asked for: who wants
// more wants all.
const mostRefusals = 100_000

// accessLog reads `http.access_log`.
func (o *object) accessLog() *AccessLog {
	l := &AccessLog{Format: JSON, Passed: o.flag("passed"), Refused: o.refused()}
	if o.need("file", "name the file, such as /var/log/headgate/access.log") {
		l.File = o.absolute("file")
	}
	formats := []string{string(JSON), string(Combined)}
	if w, ok := o.word("format"); ok {
		if !slices.Contains(formats, w.text) {
			o.errorf(w.node, "%s", oneOf("format", w.text, formats))
		}
		l.Format = LogFormat(w.text)
	}
	return l
}

// refused reads how many refusals are written: a rate a second, all or none.
func (o *object) refused() int {
	w, _ := o.word("refused")
	switch w.text {
	case "all", "true":
		return -1
	case "", "none", "false":
		return 0
	}
	r, err := parseRate(w.text)
	if err != nil || r.Interval.Seconds() != 1 || r.Unit != Count || r.Amount > mostRefusals {
		o.errorf(w.node, "refused %s: write how many a second and rule, such as 10/s, or all, or none", quote(w.text))
	}
	return int(r.Amount)
}
