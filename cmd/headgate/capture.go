package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

// captureFlags are the flags of capture.
type captureFlags struct {
	drops              bool
	file, rule, within string
	span               string
	packets            uint32
}

// captured is what became of a capture, for -o json.
type captured struct {
	File   string `json:"file"`
	Frames uint64 `json:"frames"`
	Not    uint64 `json:"not_captured"` // frames that those stand for beside themselves
	Lost   uint64 `json:"lost"`
}

func newCapture(e *env) *cobra.Command {
	var f captureFlags
	cmd := &cobra.Command{
		Use:   "capture --drops -w FILE",
		Short: "Write packets that the network gate drops to a file for Wireshark",
		Long: `Writes the first 256 bytes of frames that the network gate drops to a pcapng file,
which Wireshark, tshark and tcpdump read. The comment of each frame names the rule
and the reason. It ends after --for, after --packets, or by Ctrl-C.

At most about two thousand frames a second on a CPU are captured, whatever the
flood: they stand for the others, and at the end it says for how many.`,
		Example: `  headgate capture --drops -w drops.pcapng --for 10s
  headgate capture --drops -w - --rule syn --packets 100 | tshark -r -`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			q, err := f.query()
			if err != nil {
				return err
			}
			return capture(cmd.Context(), e, f, q)
		}),
	}
	cmd.Flags().BoolVar(&f.drops, "drops", false, "capture what is dropped (nothing else can be)")
	cmd.Flags().StringVarP(&f.file, "write", "w", "", "the `file`, or - for standard output")
	cmd.Flags().StringVar(&f.rule, "rule", "", "only drops by this `rule`")
	cmd.Flags().StringVar(&f.within, "from", "", "only from this `address` or prefix")
	cmd.Flags().StringVar(&f.span, "for", "", "how `long`, 1s to 1h")
	cmd.Flags().Uint32Var(&f.packets, "packets", 0, "end after so `many`")
	return cmd
}

func (f *captureFlags) query() (string, error) {
	q := url.Values{}
	switch {
	case !f.drops:
		return "", badf("say what to capture: --drops")
	case f.file == "":
		return "", badf("say where to: -w FILE, or -w - for standard output")
	}
	if f.rule != "" {
		q.Set("rule", f.rule)
	}
	if f.within != "" {
		p, err := config.ParsePrefix(f.within)
		if err != nil {
			return "", badf("--from: %w", err)
		}
		q.Set("within", p.String())
	}
	if f.span != "" {
		d, err := config.ParseDuration(f.span)
		if err != nil || d < time.Second || d > time.Hour {
			return "", badf("--for %s: give 1s to 1h", f.span)
		}
		q.Set("seconds", strconv.Itoa(int((d+time.Second-1)/time.Second)))
	}
	if f.packets > 0 {
		q.Set("packets", strconv.Itoa(int(f.packets)))
	}
	return "/v1/capture?" + q.Encode(), nil
}

func capture(ctx context.Context, e *env, f captureFlags, query string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	body, trailer, err := e.stream(ctx, query)
	if err != nil {
		return err
	}
	defer body.Close()
	to := e.out
	if f.file != "-" {
		file, err := os.OpenFile(f.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // packets are nobody else's
		if err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		defer file.Close()
		to = file
	}
	if err := copyBlocks(to, body); err != nil && ctx.Err() == nil {
		return fmt.Errorf("capture to %s: %w", f.file, err)
	}
	if ctx.Err() != nil {
		fmt.Fprintf(e.err, "captured to %s until it was interrupted\n", f.file)
		return nil
	}
	return f.tell(e, trailer())
}

// copyBlocks copies whole blocks of pcapng, little-endian, so that what came
// until Ctrl-C reads.
func copyBlocks(to io.Writer, from io.Reader) error {
	const head, longest = 8, 1 << 20
	block := make([]byte, head, 4096)
	for {
		if _, err := io.ReadFull(from, block[:head]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		n := int(binary.LittleEndian.Uint32(block[4:head]))
		if n < head || n > longest {
			return fmt.Errorf("the daemon sent a block of %d bytes", n)
		}
		block = append(block[:head], make([]byte, n-head)...)
		if _, err := io.ReadFull(from, block[head:]); err != nil {
			return err
		}
		if _, err := to.Write(block); err != nil {
			return err
		}
	}
}

// tell says what is in the file and what is not.
func (f *captureFlags) tell(e *env, t http.Header) error {
	count := func(name string) uint64 {
		n, _ := strconv.ParseUint(t.Get(name), 10, 64)
		return n
	}
	if t.Get(daemon.CapturedTrailer) == "" {
		return errors.New("the capture was cut short: the daemon ended")
	}
	c := captured{f.file, count(daemon.CapturedTrailer), count(daemon.PassedByTrailer), count(daemon.LostTrailer)}
	if f.file != "-" {
		if done, err := e.asJSON(c); done {
			return err
		}
	}
	fmt.Fprintf(e.err, "captured %d frames to %s, which stand for %d more; %d were lost\n", c.Frames, c.File, c.Not, c.Lost)
	return nil
}
