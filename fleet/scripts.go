package fleet

import (
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed common.lua
	common string
	//go:embed debit.lua
	debitText string
	//go:embed decide.lua
	decideText string
	//go:embed hosts.lua
	hostsText string
	//go:embed board.lua
	boardText string

	debit  = redis.NewScript(head + common + debitText)
	decide = redis.NewScript(head + common + decideText)
	hosts  = redis.NewScript(head + common + hostsText)

	boardScript = redis.NewScript(head + common + boardText)
)

// head makes Redis (7.0 and later) look at the script as a whole: where it has
// no memory to write, or is a replica, it runs nothing instead of a part.
const head = "#!lua\n"

// numbers reads a script's reply: integers, and numbers as text.
type numbers struct {
	words []any
	err   error
}

func (n *numbers) next() (text string) {
	switch {
	case n.err != nil:
	case len(n.words) == 0:
		n.err = fmt.Errorf("a script of the fleet answered too little")
	default:
		text = fmt.Sprint(n.words[0])
		n.words = n.words[1:]
	}
	return text
}

func (n *numbers) int() int64 {
	v, err := strconv.ParseInt(n.next(), 10, 64)
	if err != nil && n.err == nil {
		n.err = fmt.Errorf("a script of the fleet answered no number: %w", err)
	}
	return v
}

func (n *numbers) float() float64 {
	v, err := strconv.ParseFloat(n.next(), 64)
	if err != nil && n.err == nil {
		n.err = fmt.Errorf("a script of the fleet answered no number: %w", err)
	}
	return v
}
