package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/l7"
)

const (
	redisTime = 2 * time.Second // for Redis to answer
	mostSkew  = 2 * time.Second // between its clock and this host's
)

// lookAtRedis asks the fleet's Redis who is there.
func lookAtRedis(p *Patient) []Finding {
	if p.Config == nil {
		return nil
	}
	f := p.Config.Fleet
	if f == nil {
		return ok("no fleet: limits are per host")
	}
	o, err := l7.FleetOptions(f)
	if err != nil {
		return failure(err.Error(), "mend fleet in "+p.Path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), redisTime)
	defer cancel()
	seen, err := fleet.Look(ctx, o)
	at := strings.Join(f.Redis.Addresses, " ")
	if err != nil {
		return failure(fmt.Sprintf("the fleet's Redis at %s: %s", at, fleet.Why(err)), "see to Redis; each host goes on alone with its share of each limit meanwhile")
	}
	out := ok(fmt.Sprintf("Redis at %s answers; fleet %s has %d hosts (secret %s)", at, f.Name, len(seen.Hosts), fleet.Fingerprint(f.Secret)))
	if len(seen.Others) > 0 {
		out = append(out, failure(fmt.Sprintf("%s have another secret and share no count with this host", strings.Join(seen.Others, " ")), "give all hosts the same fleet.secret_file")...)
	}
	if d := seen.Behind.Abs(); d > mostSkew {
		out = append(out, warning(fmt.Sprintf("this host's clock and that of Redis are %s apart: quotas may end that much early or late", d.Round(time.Second)), "run a time service on both (chrony, systemd-timesyncd)")...)
	}
	return out
}
