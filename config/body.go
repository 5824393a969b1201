package config

import (
	"bytes"
	html "html/template"
	"io"
	"mime"
	"strings"
	text "text/template"
)

// largestBody bounds the file of a body: it is filled in for each refusal.
const largestBody = 256 << 10

// Body is what a refusal says instead of application/problem+json.
type Body struct {
	File string // path as written
	Type string // media type; text/* has a charset
	Text string // what File holds: a template of Go's
}

// Refusal is what a body's template may name. It holds nothing of the request
// itself, so that a body cannot give away an address or a key.
type Refusal struct {
	Status     int      // 429
	Title      string   // of the problem type
	Detail     string   // a sentence in English that names the rules and the wait
	Rule       string   // the binding one: who refuses longest
	Rules      []string // all that refuse, the binding one first
	RetryAfter int64    // s; 0 where waiting does not help
	RequestID  string   // for `headgate explain`
}

// Template fills in a body.
type Template interface {
	Execute(w io.Writer, data any) error
}

// Template returns the body ready to be filled in with a Refusal. What is put
// into HTML is escaped.
func (b Body) Template() (Template, error) {
	if kind, _, _ := mime.ParseMediaType(b.Type); kind == "text/html" || kind == "application/xhtml+xml" {
		return html.New("body").Option("missingkey=error").Parse(b.Text)
	}
	return text.New("body").Option("missingkey=error").Parse(b.Text)
}

// body reads `http.answers.body` and the file that it names.
func (o *object) body() Body {
	if !o.need("file", "name the file that holds the body, such as refused.html") {
		return Body{}
	}
	b := Body{Type: o.mediaType()}
	w, ok := o.word("file")
	if !ok {
		return Body{}
	}
	b.File = w.text
	path := beside(o.file, w.text)
	data, err := o.read(path, largestBody)
	if err != nil {
		o.errorf(w.node, "read body: %s", err)
		return b
	}
	b.Text = string(data)
	if err := b.try(); err != nil {
		o.errorf(w.node, "body %s: %.300q (it may name .Status .Title .Detail .Rule .Rules .RetryAfter .RequestID)", path, err.Error())
	}
	return b
}

// try fills the body in once: a field that does not exist shows only then.
func (b Body) try() error {
	t, err := b.Template()
	if err != nil {
		return err
	}
	return t.Execute(&bytes.Buffer{}, Refusal{Status: 429, Rule: "login", Rules: []string{"login"}, RetryAfter: 1})
}

// mediaType reads `type`. A text without a charset would be guessed at.
func (o *object) mediaType() string {
	w, ok := o.word("type")
	if !ok {
		return ""
	}
	kind, params, err := mime.ParseMediaType(w.text)
	if err != nil || !strings.Contains(kind, "/") {
		o.errorf(w.node, "type %s: write a media type, such as text/html", quote(w.text))
		return w.text
	}
	if strings.HasPrefix(kind, "text/") && params["charset"] == "" {
		return w.text + "; charset=utf-8"
	}
	return w.text
}
