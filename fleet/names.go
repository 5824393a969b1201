package fleet

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"github.com/headgate/headgate/limit"
)

// version is that of the names and of what is kept under them. Hosts of another
// version use other names, and leave these alone.
const version = "hg1"

// shards is how many hash slots a fleet's bucket keys are spread over on a
// Cluster; elsewhere one call can carry them all.
const shards = 16

// names makes the names of one fleet's keys: at most 128 bytes, those of a shard
// in one hash slot.
type names struct {
	shards   int
	prefixes [shards]string
}

func newNames(o *Options) names {
	n := names{shards: 1}
	if o.Cluster {
		n.shards = shards
	}
	for i := range n.prefixes {
		n.prefixes[i] = fmt.Sprintf("%s:{%s:%d}:", version, o.Name, i)
	}
	return n
}

func nameFits(name string) bool {
	if len(name) < 1 || len(name) > 40 {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-':
		default:
			return false
		}
	}
	return true
}

// shard returns which shard k is in.
func (n *names) shard(k limit.Key) int {
	b := k.Shared()
	return int(b[0]) % n.shards
}

// bucket returns the name of what is counted for k, and lent that of its shares.
func (n *names) bucket(k limit.Key) string { return n.prefixes[n.shard(k)] + "b:" + encode(k) }
func (n *names) lent(k limit.Key) string   { return n.prefixes[n.shard(k)] + "s:" + encode(k) }

// last returns where the number of a host's last batch is kept.
func (n *names) last(shard int, host string) string { return n.prefixes[shard] + "n:" + host }

// hosts returns the list of live hosts.
func (n *names) hosts() string { return n.prefixes[0] + "hosts" }

// board returns the keys of the fleet's board, in the order of board.lua.
func (n *names) board() (all []string) {
	for _, part := range []string{"notices", "order", "keep", "stream", "hosts", "facts"} {
		all = append(all, n.prefixes[0]+"board:"+part)
	}
	return all
}

func encode(k limit.Key) string {
	b := k.Shared()
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Fingerprint tells secrets apart without telling what they are.
func Fingerprint(secret []byte) string {
	sum := sha256.Sum256(append([]byte("headgate fleet secret "), secret...))
	return hex.EncodeToString(sum[:6])
}
