package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newReattach(e *env) *cobra.Command {
	var mode string
	cmd := &cobra.Command{
		Use:   "reattach IF",
		Short: "Change the attach mode of an interface, without a gap",
		Long: `Attaches the network gate to an interface anew: in native mode, where the
driver runs the program, or in generic mode, where the kernel does, later and
slower. It never happens by itself, as the kernel takes one program off before
it takes the other. A program at tc ingress judges meanwhile, on the same rules
and buckets, so nothing passes unjudged. The driver itself may lose what lies in
its queues when it changes over.

Without --mode it is what network.attach_mode of the config says; auto means
native if the driver takes it. Where the new mode is refused, the old one is
attached again and the reason told. "headgate doctor" tells before.`,
		Example: `  headgate reattach eth0
  headgate reattach eth0 --mode generic`,
		Args: need("interface"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			var r daemon.ReattachReply
			q := daemon.ReattachRequest{Interface: args[0], Mode: mode}
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/reattach", q, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			if r.Was == r.AttachMode {
				fmt.Fprintf(e.out, "%s stays in %s mode, program %d\n", r.Interface, r.AttachMode, r.ProgramID)
			} else {
				fmt.Fprintf(e.out, "%s is in %s mode, program %d; it was %s\n", r.Interface, r.AttachMode, r.ProgramID, r.Was)
			}
			if r.Warning != "" {
				e.warn([]string{r.Warning})
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&mode, "mode", "", "attach `mode`: native, generic or auto (default: network.attach_mode)")
	return cmd
}
