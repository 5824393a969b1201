package fleet

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
)

// refusals are errors that Redis answers, by their first word, and what to do.
var refusals = map[string]string{
	"WRONGPASS":   "Redis refuses the user or password: look at fleet.redis.user and fleet.redis.password_file",
	"NOAUTH":      "Redis wants a password: name it in fleet.redis.password_file",
	"NOPERM":      "Redis does not let this user run the fleet's scripts: allow what docs/fleet.md lists",
	"READONLY":    "this Redis is a replica: waiting for the new primary",
	"OOM":         "Redis is out of memory: raise its maxmemory",
	"LOADING":     "Redis is loading its data",
	"BUSY":        "Redis is busy with another script",
	"MASTERDOWN":  "Redis has lost its primary",
	"CLUSTERDOWN": "the Redis Cluster is down",
	"MISCONF":     "Redis cannot write to its disk and accepts no change",
	"NOREPLICAS":  "Redis has too few replicas and accepts no change",
	"DENIED":      "Redis refuses connections that are not from its own host: see its protected-mode",
}

// Why returns what keeps Redis from answering, and the cure where there is one.
func Why(err error) string {
	word, _, _ := strings.Cut(err.Error(), " ")
	var timeout net.Error
	switch {
	case refusals[word] != "":
		return refusals[word]
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "Redis does not answer in time"
	}
	return err.Error()
}
