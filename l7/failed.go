package l7

import (
	"errors"
	"net"
	"net/http"
)

// failed answers for an upstream that did not.
func (p *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	gone := r.Context().Err() != nil
	v := r.Context().Value(visitKey{}).(*visit)
	switch body := v.body; {
	case gone && body.fellSilent(), !gone && body.isStalled():
		v.last = r.ProtoMajor == 1
		v.say(problem{Status: http.StatusRequestTimeout, Detail: "the request's body stopped coming"})
		return
	case !gone && body.isBroken():
		v.last = r.ProtoMajor == 1
		v.say(problem{Status: http.StatusBadRequest, Detail: "the request's body is malformed or incomplete"})
		return
	case gone:
		panic(http.ErrAbortHandler) // the client is
	}
	if v.target != nil && !unreached(err) { // else it was warned of
		p.warnUpstream(v.target, err)
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		v.say(problem{Status: http.StatusGatewayTimeout, Detail: "the upstream does not answer in time"})
		return
	}
	v.say(problem{Status: http.StatusBadGateway, Detail: "the upstream does not answer"})
}
