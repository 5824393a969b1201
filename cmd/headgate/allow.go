package main

import "github.com/spf13/cobra"

func newAllow(e *env) *cobra.Command {
	var f entryFlags
	cmd := &cobra.Command{
		Use:   "allow PREFIX | --from-file FILE",
		Short: "Let an address or prefix pass blocks and rules",
		Long: `Lets all from an address or prefix pass, whatever blocks and rules say. Without
--for or --forever it lasts 1 hour. The end of an allow needs the daemon: one
that ends while the daemon is stopped is lifted when it starts.` + longFile,
		Example: `  headgate allow 203.0.113.9 --for 2h --reason "load test"
  headgate allow 192.0.2.0/24 --forever
  headgate allow --from-file partners.txt --forever`,
		Args: f.needPrefixes,
		RunE: work(func(cmd *cobra.Command, args []string) error {
			if f.file != "" {
				return allowList.putFile(cmd.Context(), e, f)
			}
			return allowList.put(cmd.Context(), e, args[0], f)
		}),
	}
	f.add(cmd)
	f.addFile(cmd)
	return cmd
}

func newDisallow(e *env) *cobra.Command {
	var reason string
	var force, all bool
	cmd := &cobra.Command{
		Use:     "disallow PREFIX",
		Short:   "End the allow of exactly this prefix",
		Example: "  headgate disallow 203.0.113.9",
		Args:    need("address or prefix"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			return allowList.take(cmd, e, args[0], reason, force, all)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "only the allow with this `text`")
	allHosts(cmd, &all)
	cmd.Flags().BoolVar(&force, "force", false, "even where a block then holds for you")
	return cmd
}

func newAllows(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "allows",
		Short:   "List what is allowed, until when, by whom and why",
		Long:    longList("allowed"),
		Example: "  headgate allows -o json",
		Args:    cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			return allowList.show(cmd.Context(), e)
		}),
	}
}
