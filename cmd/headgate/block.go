package main

import "github.com/spf13/cobra"

func newBlock(e *env) *cobra.Command {
	var f entryFlags
	cmd := &cobra.Command{
		Use:   "block PREFIX | --from-file FILE",
		Short: "Drop all that comes from an address or prefix",
		Long: `Drops all packets from an address or prefix, and answers 403 to its requests
where it comes through a proxy. Without --for or --forever it lasts 1 hour.

A block keeps its end over restarts. Blocks of one prefix with different reasons
stand beside each other, and the latest end counts. Allow wins over block. A
block of the management sources, of a declared proxy, of the default gateway or of
where you are logged in from by SSH (also through sudo) needs --force.` + longFile,
		Example: `  headgate block 203.0.113.9
  headgate block 203.0.113.0/24 --for 10m --reason "scans ports"
  headgate block 2001:db8:5:6::/64 --forever
  headgate block 203.0.113.0/24 --for 1h --all-hosts
  headgate block --from-file drop.txt --for 1d --reason "drop list"`,
		Args: f.needPrefixes,
		RunE: work(func(cmd *cobra.Command, args []string) error {
			if f.file != "" {
				return blockList.putFile(cmd.Context(), e, f)
			}
			return blockList.put(cmd.Context(), e, args[0], f)
		}),
	}
	f.add(cmd)
	f.addFile(cmd)
	cmd.Flags().BoolVar(&f.force, "force", false, "even where it may lock you out")
	return cmd
}

func newUnblock(e *env) *cobra.Command {
	var reason string
	var all bool
	cmd := &cobra.Command{
		Use:   "unblock PREFIX",
		Short: "Lift the block of exactly this prefix",
		Long: `Lifts the blocks of exactly this prefix, never of one around it. Exit code 1
says that there was none, and names what covers it still.`,
		Example: `  headgate unblock 203.0.113.9
  headgate unblock 203.0.113.9 --reason "scans ports"
  headgate unblock 203.0.113.0/24 --all-hosts`,
		Args: need("address or prefix"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			return blockList.take(cmd, e, args[0], reason, false, all)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "only the block with this `text`")
	allHosts(cmd, &all)
	return cmd
}

func newBlocks(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "blocks",
		Short:   "List what is blocked, until when, by whom and why",
		Long:    longList("blocked"),
		Example: "  headgate blocks -o json",
		Args:    cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			return blockList.show(cmd.Context(), e)
		}),
	}
}
